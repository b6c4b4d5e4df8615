"""What can be asked of airunner, as protocols: the services answer in process, the client over the wire.

Tokens are texts here, and secrets are masked in every job except those handed to the worker that dequeues.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from airunner.domain import limits
from airunner.domain.record import record

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from airunner.domain.errors import AirunnerError
    from airunner.domain.event import Event, EventType
    from airunner.domain.job import ExecutionConfig, Job, JobParams, JobResult, JobState
    from airunner.domain.override import ExecutionOverride
    from airunner.stores.base import Enqueued, JobPage, JobQuery, QueueStats


@dataclass(frozen=True, slots=True, kw_only=True)
class EnqueueRequest:
    """A job to add. The bytes are the canonical encodings, where the caller has them already."""

    request_id: str
    queue: str
    params: JobParams
    delay_seconds: int = 0
    max_attempts: int = 0
    execution: ExecutionConfig | ExecutionOverride | None = None
    """What the job has instead of the server's; what an override does not set stays the server's."""
    params_bytes: bytes = b""
    execution_bytes: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class DequeueRequest:
    """A wish for jobs. Zero means the default; wait_seconds None means the default, 0 not to wait."""

    queue: str
    more_queues: Sequence[str] = ()
    max_jobs: int = 0
    visibility_timeout_seconds: int = 0
    wait_seconds: int | None = None
    worker_id: str = ""
    instance_id: str = ""


@record
class DequeuedJob:
    """A job in a worker's hands, and the token that proves it."""

    job: Job
    task_token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateRequest:
    """A heartbeat; with wait_seconds it also waits for news beyond what the worker knows."""

    queue: str
    task_token: str
    visibility_timeout_seconds: int = 0
    wait_seconds: int = 0
    watched: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldJob:
    """What a holder is told about its job."""

    cancel_requested: bool
    watched: bool
    visible_until: int


@record
class CompleteRequest:
    """The end of an attempt. `job_id`, when given, must be the token's.

    `result_bytes` is the encoding of `result`, where the caller has it already.
    """

    task_token: str
    result: JobResult
    events: Sequence[Event] = ()
    job_id: str = ""
    result_bytes: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseRequest:
    """An attempt given back."""

    task_token: str
    delay_seconds: int = 0
    unstarted: bool = False
    error: str = ""
    events: Sequence[Event] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What a publisher is told."""

    next_sequence: int
    cancel_requested: bool
    watched: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRequest:
    """Which events to stream; all given conditions must hold.

    Without a position: every attempt in order. `from_sequence` without `attempt` applies to the attempt
    current at the call. `attempt` shows only that one and ends with it. `cursor` resumes after an event.
    """

    job_id: str
    from_sequence: int = 0
    from_timestamp: int = 0
    event_filter: frozenset[EventType] = frozenset()
    attempt: int = 0
    cursor: str = ""
    follow: bool = True

    def validate(self) -> StreamRequest:
        """Refuse what is out of range."""
        limits.check_range(self.from_sequence, "from_sequence", 0, limits.MAX_SEQUENCE)
        limits.check_range(self.from_timestamp, "from_timestamp", 0, limits.MAX_INSTANT)
        limits.check_range(self.attempt, "attempt", 0, 2**31 - 1)
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSeen:
    """A worker that was heard of lately."""

    worker_id: str
    instance_id: str
    queues: Sequence[str]
    last_seen_at: int
    job_ids: Sequence[str]


class JobsApi(Protocol):
    """The queue side."""

    async def enqueue_jobs(self, requests: Sequence[EnqueueRequest]) -> Sequence[Enqueued | AirunnerError]:
        """Add jobs, each with its own outcome. Idempotent on (principal, request_id)."""

    async def dequeue_jobs(self, request: DequeueRequest) -> Sequence[DequeuedJob]:
        """Claim jobs; wait for the first ones if there are none. Cancelling the call hands back its jobs."""

    async def update_job(self, request: UpdateRequest) -> HeldJob:
        """Extend the visibility of a held job."""

    async def complete_jobs(self, requests: Sequence[CompleteRequest]) -> Sequence[JobState | AirunnerError]:
        """End held jobs, each with its own outcome."""

    async def release_job(self, request: ReleaseRequest) -> JobState:
        """Give a held job back."""

    async def get_job(self, job_id: str, *, wait_seconds: int = 0, want_payload_urls: bool = False) -> Job:
        """Return a job; with wait_seconds, at its end or as it is by then.

        With `want_payload_urls` and where the store keeps its payloads apart, also where these can be read.
        """

    async def list_jobs(self, query: JobQuery) -> JobPage:
        """Return jobs, newest first."""

    async def cancel_job(self, job_id: str) -> Job:
        """Cancel a job; a terminal one is returned unchanged."""

    async def retry_job(self, job_id: str, request_id: str) -> Job:
        """Enqueue a copy of a terminal job. Idempotent on request_id."""

    async def list_queues(self) -> Sequence[QueueStats]:
        """Return the queues that were used, by name."""

    async def set_paused(self, queue: str, *, paused: bool) -> None:
        """Stop or allow claims from a queue."""

    async def list_workers(self) -> Sequence[WorkerSeen]:
        """Return the workers that were heard of lately."""


class EventsApi(Protocol):
    """The event side."""

    async def publish_events(self, task_token: str, events: Sequence[Event]) -> Published:
        """Append events of the attempt that the token holds. May be repeated."""

    def stream_events(self, request: StreamRequest) -> AsyncIterator[Event]:
        """Yield single events: what is stored, then what comes, until the job ends."""
