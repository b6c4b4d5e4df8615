"""airunner: run long jobs anywhere, watch every line of them live, and never lose one.

The names of this module are the Python SDK; docs/sdk.md says how to use them. Each is imported from its home
when it is first used, so that `import airunner` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any, Final

    from airunner.client import AsyncClient, Client, ConnectionState, StoredBatch, StreamOptions
    from airunner.domain.answers import DequeuedJob, Enqueued, QueueStats, WorkerSeen
    from airunner.domain.batching import Batcher
    from airunner.domain.errors import (
        AirunnerError,
        AlreadyExists,
        DeadlineExceeded,
        FailedPrecondition,
        InternalError,
        InvalidArgument,
        JobProcessingError,
        NotFound,
        PermanentFailure,
        PermissionDenied,
        ResourceExhausted,
        SequenceMismatch,
        Unauthenticated,
        Unavailable,
    )
    from airunner.domain.event import (
        Event,
        EventType,
        Gap,
        Output,
        OutputBatch,
        ProcessEnd,
        ProcessError,
        ProcessStart,
        Progress,
        StreamType,
    )
    from airunner.domain.job import Job, JobParams, JobResult, JobState, Outcome, ProcessType
    from airunner.domain.listing import JobPage, JobQuery
    from airunner.domain.requests import (
        Abilities,
        BatchingOverride,
        CompleteRequest,
        EnqueueRequest,
        ExecutionOverride,
        ReleaseRequest,
        UpdateRequest,
    )
    from airunner.generation.verdict import GenerationFailure, GenerationSession
    from airunner.handlers import Context, HandlerError, handler
    from airunner.handlers.images import Image, Images
    from airunner.outbox.enqueueing import enqueue_generation, enqueue_generation_sync
    from airunner.outbox.start import start_outbox_relay
    from airunner.reading.event_buffer import EventBuffer
    from airunner.reading.proof import Coverage, LogProof, LogVerdict, VerdictKind

__version__ = "0.1.0"
__all__ = [
    "Abilities",
    "AirunnerError",
    "AlreadyExists",
    "AsyncClient",
    "Batcher",
    "BatchingOverride",
    "Client",
    "CompleteRequest",
    "ConnectionState",
    "Context",
    "Coverage",
    "DeadlineExceeded",
    "DequeuedJob",
    "EnqueueRequest",
    "Enqueued",
    "Event",
    "EventBuffer",
    "EventType",
    "ExecutionOverride",
    "FailedPrecondition",
    "Gap",
    "GenerationFailure",
    "GenerationSession",
    "HandlerError",
    "Image",
    "Images",
    "InternalError",
    "InvalidArgument",
    "Job",
    "JobPage",
    "JobParams",
    "JobProcessingError",
    "JobQuery",
    "JobResult",
    "JobState",
    "LogProof",
    "LogVerdict",
    "NotFound",
    "Outcome",
    "Output",
    "OutputBatch",
    "PermanentFailure",
    "PermissionDenied",
    "ProcessEnd",
    "ProcessError",
    "ProcessStart",
    "ProcessType",
    "Progress",
    "QueueStats",
    "ReleaseRequest",
    "ResourceExhausted",
    "SequenceMismatch",
    "StoredBatch",
    "StreamOptions",
    "StreamType",
    "Unauthenticated",
    "Unavailable",
    "UpdateRequest",
    "VerdictKind",
    "WorkerSeen",
    "__version__",
    "enqueue_generation",
    "enqueue_generation_sync",
    "handler",
    "start_outbox_relay",
]

_HOMES: Final = {
    "airunner.client": ("AsyncClient", "Client", "ConnectionState", "StoredBatch", "StreamOptions"),
    "airunner.domain.answers": ("DequeuedJob", "Enqueued", "QueueStats", "WorkerSeen"),
    "airunner.domain.batching": ("Batcher",),
    "airunner.domain.errors": (
        "AirunnerError",
        "AlreadyExists",
        "DeadlineExceeded",
        "FailedPrecondition",
        "InternalError",
        "InvalidArgument",
        "JobProcessingError",
        "NotFound",
        "PermanentFailure",
        "PermissionDenied",
        "ResourceExhausted",
        "SequenceMismatch",
        "Unauthenticated",
        "Unavailable",
    ),
    "airunner.domain.event": (
        "Event",
        "EventType",
        "Gap",
        "Output",
        "OutputBatch",
        "ProcessEnd",
        "ProcessError",
        "ProcessStart",
        "Progress",
        "StreamType",
    ),
    "airunner.domain.job": ("Job", "JobParams", "JobResult", "JobState", "Outcome", "ProcessType"),
    "airunner.domain.listing": ("JobPage", "JobQuery"),
    "airunner.domain.requests": (
        "Abilities",
        "BatchingOverride",
        "CompleteRequest",
        "EnqueueRequest",
        "ExecutionOverride",
        "ReleaseRequest",
        "UpdateRequest",
    ),
    "airunner.generation.verdict": ("GenerationFailure", "GenerationSession"),
    "airunner.handlers": ("Context", "HandlerError", "handler"),
    "airunner.handlers.images": ("Image", "Images"),
    "airunner.outbox.enqueueing": ("enqueue_generation", "enqueue_generation_sync"),
    "airunner.outbox.start": ("start_outbox_relay",),
    "airunner.reading.event_buffer": ("EventBuffer",),
    "airunner.reading.proof": ("Coverage", "LogProof", "LogVerdict", "VerdictKind"),
}

# Hidden from type checkers, which would take every name for one that exists.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Import a public name from its home, and keep it."""
        from airunner.domain import import_late

        found = globals()[name] = import_late(__name__, name, _HOMES)
        return found


def __dir__() -> list[str]:
    """Return the public names, those included that nobody has used yet."""
    return sorted({*globals(), *__all__})
