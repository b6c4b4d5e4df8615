"""The client library: AsyncClient for asyncio, Client for everybody else.

Each name is imported from its home when it is first used: a command that lists jobs loads nothing that plays
them back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from airunner.client.async_client import DEFAULT_QUEUE, AsyncClient, StreamOptions
    from airunner.client.monitor import ConnectionState
    from airunner.client.stored_batch import StoredBatch
    from airunner.client.sync_client import Client
    from airunner.client.wire_client import DEFAULT_SERVER, WireClient
    from airunner.domain.answers import DequeuedJob, Enqueued, HeldJob, Published, QueueStats, WorkerSeen
    from airunner.domain.listing import JobPage, JobQuery
    from airunner.domain.requests import (
        CompleteRequest,
        DequeueRequest,
        EnqueueRequest,
        ReleaseRequest,
        StreamRequest,
        UpdateRequest,
    )
    from airunner.reading.event_buffer import EventBuffer
    from airunner.reading.proof import Coverage, LogProof, LogVerdict, VerdictKind

__all__ = [
    "DEFAULT_QUEUE",
    "DEFAULT_SERVER",
    "AsyncClient",
    "Client",
    "CompleteRequest",
    "ConnectionState",
    "Coverage",
    "DequeueRequest",
    "DequeuedJob",
    "EnqueueRequest",
    "Enqueued",
    "EventBuffer",
    "HeldJob",
    "JobPage",
    "JobQuery",
    "LogProof",
    "LogVerdict",
    "Published",
    "QueueStats",
    "ReleaseRequest",
    "StoredBatch",
    "StreamOptions",
    "StreamRequest",
    "UpdateRequest",
    "VerdictKind",
    "WireClient",
    "WorkerSeen",
]

_HOMES = {
    "airunner.client.async_client": ("DEFAULT_QUEUE", "AsyncClient", "StreamOptions"),
    "airunner.client.monitor": ("ConnectionState",),
    "airunner.client.stored_batch": ("StoredBatch",),
    "airunner.client.sync_client": ("Client",),
    "airunner.client.wire_client": ("DEFAULT_SERVER", "WireClient"),
    "airunner.domain.answers": (
        "DequeuedJob",
        "Enqueued",
        "HeldJob",
        "Published",
        "QueueStats",
        "WorkerSeen",
    ),
    "airunner.domain.listing": ("JobPage", "JobQuery"),
    "airunner.domain.requests": (
        "CompleteRequest",
        "DequeueRequest",
        "EnqueueRequest",
        "ReleaseRequest",
        "StreamRequest",
        "UpdateRequest",
    ),
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
