"""The JobStore: where jobs and their events are kept.

A store applies the rules of `domain.lifecycle` inside its writes; it knows no tokens, no protobuf messages
and no wall clock. Everything a caller was told is durable. All stores pass the same conformance suite;
where they differ, `Capabilities` says so.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from airunner.domain.lifecycle import Lifecycle
from airunner.domain.record import record

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence

    from airunner.domain.errors import AirunnerError
    from airunner.domain.event import EncodedEvent, Position
    from airunner.domain.job import ExecutionConfig, Job, JobParams, JobResult, JobState


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """Where stores may differ."""

    # Whether a queue is strictly first in, first out, also after redelivery.
    strict_fifo: bool
    # How long after its visibility lapsed a job may still not be claimable.
    redelivery_slack_seconds: float
    durable: bool
    # Whether queues are those that somebody configured, or any name that is used.
    configured_queues: bool = False
    # Whether `read_changes` tells of events that other servers stored.
    tells_changes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJob:
    """A validated job to be. `params_bytes` is the canonical encoding of `params`, which stores may keep."""

    job_id: str
    queue: str
    principal: str
    request_id: str
    fingerprint: bytes
    params: JobParams
    params_bytes: bytes
    execution: ExecutionConfig
    max_attempts: int
    created_at: int
    due_at: int
    retried_from: str = ""

    def first_life(self) -> Lifecycle:
        """Return the life a job begins with."""
        return Lifecycle(max_attempts=self.max_attempts, due_at=self.due_at, updated_at=self.created_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Enqueued:
    """The job that an enqueue made, now or earlier."""

    job_id: str
    created_at: int
    state: JobState


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Demand:
    """One caller's wish for jobs; `queues` in the order of preference. Compared by identity."""

    queues: tuple[str, ...]
    max_jobs: int
    visibility_seconds: int
    worker_id: str = ""
    instance_id: str = ""
    # Whether to wait for jobs when there are none; `withdraw` ends the wait.
    patient: bool = True


@record
class AttemptKey:
    """One attempt of one job: the fence that every write of a holder is conditional on."""

    job_id: str
    attempt: int
    receipt: str = ""
    """On SQS, the handle of its message."""


@record
class Completion:
    """The end of an attempt, with the last events that belong to it.

    `result_bytes` is the encoding of `result` where the caller has it already; stores may keep it.
    """

    key: AttemptKey
    result: JobResult
    events: Sequence[EncodedEvent] = ()
    result_bytes: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """An attempt given back, with the last events that belong to it."""

    key: AttemptKey
    delay_seconds: int = 0
    unstarted: bool = False
    error: str = ""
    events: Sequence[EncodedEvent] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobQuery:
    """Which jobs to list, newest first: by page number, or after a cursor of an earlier page."""

    queue: str = ""
    state: JobState | None = None
    page: int = 1
    page_size: int = 20
    cursor: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPage:
    """One page of jobs. `next_cursor` is empty when there is nothing more."""

    jobs: Sequence[Job]
    last_page: int
    next_cursor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EventQuery:
    """Which events to read, in order: those after a position."""

    job_id: str
    after: Position
    from_timestamp: int = 0
    only_attempt: int = 0
    limit: int = 64
    # A stream that waits for its reader holds on to its page, and there may be many such streams.
    max_bytes: int = 128 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class EventPage:
    """Events, and the job's state and attempt as they were not later than the events were read.

    `full` says that the page ended by its limits, so that more may follow.
    """

    events: Sequence[EncodedEvent]
    state: JobState
    attempt: int
    full: bool = False


def fill_page(
    events: Iterable[EncodedEvent], query: EventQuery, *, state: JobState, attempt: int
) -> EventPage:
    """Return a page of as many events as the query allows; the one that reaches its size is the last."""
    taken: list[EncodedEvent] = []
    size = 0
    for event in events:
        taken.append(event)
        size += len(event.payload)
        if len(taken) == query.limit or size >= query.max_bytes:
            return EventPage(events=taken, state=state, attempt=attempt, full=True)
    return EventPage(events=taken, state=state, attempt=attempt)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStats:
    """A queue that has been used."""

    name: str
    paused: bool
    scheduled: int
    running: int
    # When the oldest scheduled job was enqueued; 0 when there is none.
    oldest_scheduled_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long finished jobs and stored events are kept, in milliseconds."""

    jobs_ms: int = 7 * 24 * 3600 * 1000
    events_ms: int = 30 * 24 * 3600 * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Upkeep:
    """What one pass of maintenance did."""

    ended_jobs: Sequence[str] = ()
    purged_jobs: int = 0
    purged_events: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """A key that opens the API. Only the hash of its secret is kept; its principal is its name."""

    key_id: str
    name: str
    secret_hash: bytes
    scopes: frozenset[str]
    # The queues a worker key is bound to; empty means all.
    queues: frozenset[str] = field(default_factory=frozenset)
    created_at: int = 0
    revoked_at: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadLinks:
    """Where payloads of a job can be read by anybody for a while; empty for one that is not kept apart."""

    params_url: str = ""
    result_url: str = ""


class KeyStore(Protocol):
    """Where API keys are kept."""

    async def add_key(self, key: ApiKey) -> None:
        """Keep a new key."""

    async def find_key(self, key_id: str) -> ApiKey | None:
        """Return a key, revoked or not."""

    async def list_keys(self) -> Sequence[ApiKey]:
        """Return all keys, oldest first."""

    async def revoke_key(self, key_id: str, now: int) -> bool:
        """End a key; tell whether it exists. A revoked one stays as it is."""


class JobStore(KeyStore, Protocol):
    """Jobs and their events. Opened before use, closed once."""

    @property
    def capabilities(self) -> Capabilities:
        """Where this store differs from others."""

    async def open(self) -> None:
        """Make ready; running jobs get their whole visibility again: our downtime is not their fault."""

    async def close(self) -> None:
        """Finish what was accepted, then let go of everything. Waiting dequeues answer with nothing."""

    async def check(self) -> None:
        """Raise if the store cannot answer."""

    async def enqueue_jobs(
        self, jobs: Sequence[NewJob], *, max_queued: int = 0
    ) -> Sequence[Enqueued | AirunnerError]:
        """Add jobs in their order, each with its own outcome.

        Per (principal, request_id) there is one job: the same fingerprint returns it, another one is
        `AlreadyExists`; also when the calls race. With `max_queued`, a queue that holds that many scheduled
        jobs refuses more with `ResourceExhausted`.
        """

    async def dequeue_jobs(self, demand: Demand) -> Sequence[Job]:
        """Claim the oldest claimable jobs of the first queue that has any, in enqueue order.

        Claimable: not cancelled, tries left, queue not paused, and scheduled and due, or running with its
        visibility lapsed. A patient demand waits until there is one; "found nothing" and "now waiting" are
        one step, and demands are served in the order of arrival. Never cancel this call: `withdraw` the
        demand, and take what it answers.
        """

    async def withdraw(self, demand: Demand) -> None:
        """Make a waiting dequeue answer with nothing, unless it was served already."""

    async def extend_job(self, key: AttemptKey, visibility_seconds: int, now: int) -> Lifecycle:
        """Give the holder more time; zero keeps the visibility it has."""

    async def append_events(self, key: AttemptKey, events: Sequence[EncodedEvent], now: int) -> Lifecycle:
        """Store the events that continue the attempt, all or none; see `lifecycle.append`."""

    async def complete_jobs(
        self, completions: Sequence[Completion], now: int
    ) -> Sequence[Lifecycle | AirunnerError]:
        """End jobs, each with its own outcome; its last events become visible together with its end."""

    async def release_job(self, release: Release, now: int) -> Lifecycle:
        """Give a job back; its last events are stored in the same step."""

    async def cancel_job(self, job_id: str, now: int) -> Job:
        """Cancel a job; see `lifecycle.cancel`."""

    async def get_job(self, job_id: str) -> Job:
        """Return a job, or raise JobNotFound."""

    async def list_jobs(self, query: JobQuery) -> JobPage:
        """Return jobs, newest first."""

    async def list_queues(self) -> Sequence[QueueStats]:
        """Return the queues that were used, by name."""

    async def set_paused(self, queue: str, *, paused: bool) -> None:
        """Stop or allow claims from a queue."""

    async def read_events(self, query: EventQuery) -> EventPage:
        """Return stored events after a position, the one that contains the next sequence first.

        The floor look-up works on stored first sequences, so no later change of a batch size hides events.
        The page is bounded in number and in bytes, and has at least one event if there is any.
        """

    async def maintain(self, retention: Retention, now: int) -> Upkeep:
        """End what nobody may claim any more, and purge what is too old. Bounded; call it again and again."""


@runtime_checkable
class LinkingStore(Protocol):
    """A store that keeps large payloads where they can be read without a server."""

    async def link_payloads(self, job_id: str, seconds: int) -> PayloadLinks:
        """Return addresses that are good for so long. Who may have them is for the caller to know."""


@runtime_checkable
class SharedStore(JobStore, Protocol):
    """A store that other servers write to as well, so that their news have to be asked for."""

    async def read_marks(self, job_ids: Sequence[str]) -> Mapping[str, Hashable]:
        """Return, of the jobs that exist, something that changes with what their holders or watchers see."""

    async def note_watched(self, job_ids: Sequence[str], until: int) -> None:
        """Let every server know that somebody looks at these jobs; see `Lifecycle.watched_until`."""

    async def read_changes(self) -> Collection[str]:
        """Return jobs that got events lately, sooner than their marks are asked for; some may be missing.

        Only of a store that `tells_changes`. One reader at a time.
        """
