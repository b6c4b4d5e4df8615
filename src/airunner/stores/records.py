"""What stores and services exchange, and nobody else sees."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from airunner.domain.job import JobState
from airunner.domain.lifecycle import Lifecycle
from airunner.domain.limits import MAX_DEQUEUE_BYTES
from airunner.domain.record import record

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from airunner.domain.event import EncodedEvent, Position
    from airunner.domain.execution import ExecutionConfig
    from airunner.domain.job import JobParams, JobResult


# Names, instants and the task token of a job, and the receipt that SQS gave for it.
_CLAIM_OVERHEAD_BYTES = 4096


@record
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

    @property
    def ready(self) -> bool:
        """Whether it is due at once."""
        return self.due_at <= self.created_at

    def first_life(self) -> Lifecycle:
        """Return the life a job begins with."""
        return Lifecycle(max_attempts=self.max_attempts, due_at=self.due_at, updated_at=self.created_at)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Demand:
    """One waiting dequeue; `queues` in the order of preference. Compared by identity."""

    queues: tuple[str, ...]
    max_jobs: int
    visibility_seconds: int
    # How long a claim holds without a beat, where that is shorter; 0 for the whole visibility.
    first_lease_seconds: int = 0
    worker_id: str = ""
    instance_id: str = ""
    # Whether to wait for jobs when there are none; `withdraw` ends the wait.
    waits: bool = True
    # What the claimed jobs may have together by `claim_size`, unless it is one that has more.
    max_bytes: int = MAX_DEQUEUE_BYTES
    # The handler keys of the jobs that the caller can do, the empty one for commands; None for all jobs.
    abilities: frozenset[str] | None = None

    def can_do(self, handler_key: str) -> bool:
        """Return whether the caller can do the jobs of a handler."""
        return self.abilities is None or handler_key in self.abilities


def claim_size(params_bytes: int, last_error: str) -> int:
    """Return how many bytes a claimed job has in an answer at most, beside its task token and all."""
    return params_bytes + 4 * len(last_error) + _CLAIM_OVERHEAD_BYTES


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
class EventQuery:
    """Which events to read, in order: those after a position."""

    job_id: str
    after: Position
    from_timestamp: int = 0
    only_attempt: int = 0
    # Whether `after` is where a stored event ends, so that the next one begins right behind it.
    after_is_an_end: bool = False
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

    def is_last_of(self, attempt: int) -> bool:
        """Return whether nothing can follow: the job has ended, or the only attempt that is wanted has."""
        if self.state.terminal or 0 < attempt < self.attempt:
            return True
        return attempt == self.attempt > 0 and self.state is JobState.SCHEDULED


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


def cut_to_first(page: EventPage) -> EventPage:
    """Return a page of the first event alone, as one after which more may follow."""
    return replace(page, events=page.events[:1], full=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobMark:
    """What of a job changes with what its watchers, its holder and those who wait for its end see."""

    state: JobState
    attempt: int
    last_sequence: int
    """Of the attempt: those before it have got all their events."""
    cancel_requested: bool
    watched_until: int

    @classmethod
    def of(cls, life: Lifecycle) -> JobMark:
        """Return the mark of a life."""
        return cls(
            state=life.state,
            attempt=life.attempt,
            last_sequence=life.last_sequence,
            cancel_requested=life.cancel_requested,
            watched_until=life.watched_until,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long finished jobs and stored events are kept, in milliseconds."""

    jobs_ms: int | None = 7 * 24 * 3600 * 1000
    """None where somebody else purges jobs: see JobStore.purge_jobs."""
    events_ms: int = 30 * 24 * 3600 * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Upkeep:
    """What one pass of maintenance did."""

    ended_jobs: Sequence[str] = ()
    purged_jobs: int = 0
    purged_events: int = 0
    has_more: bool = False
    """Whether the pass ended at a bound of its own, so that another one should follow at once."""


@dataclass(frozen=True, slots=True)
class RunningJob:
    """Who has a job that runs, as its claim said it."""

    job_id: str
    attempt: int
    instance_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningPage:
    """Some of the jobs that run, in any order; the cursor leads to more, and is empty after the last page.

    A walk begins without a cursor. Whatever runs from before its begin until after its end is there, lapsed
    or not, at least once; what begins or ends meanwhile may be. InvalidArgument for a cursor of another form.
    """

    jobs: Sequence[RunningJob]
    next_cursor: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgedJobs:
    """What one call of a purge did, or would have done."""

    jobs: int
    has_more: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """A key that opens the API. Only the hash of its secret is kept; its principal is its name."""

    key_id: str
    name: str
    secret_hash: bytes
    scopes: frozenset[str]
    # The queues the key is bound to in everything it does; empty means all.
    queues: frozenset[str] = field(default_factory=frozenset)
    created_at: int = 0
    revoked_at: int = 0
