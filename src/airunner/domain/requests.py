"""What a caller asks of airunner. Zero means the default; what is out of range is an error."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from airunner.domain import limits
from airunner.domain.answers import DeadLetter, DeadLetterReason
from airunner.domain.errors import InvalidArgument
from airunner.domain.record import record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airunner.domain.event import Event, EventType
    from airunner.domain.execution import ExecutionConfig
    from airunner.domain.job import JobParams, JobResult


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchingOverride:
    """Other batching than the server's; 0 and None leave a value to it. The contract sets the limits."""

    flush_interval_seconds: int = 0
    max_batch_size: int = 0
    """1 turns batching off: every line is stored as an event of its own."""
    max_batch_bytes: int = 0
    playback_interval_millis: int = 0
    adaptive: bool | None = None
    """False keeps to the interval, whoever watches and however much is printed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionOverride:
    """Parts of an ExecutionConfig, merged at enqueue into that of the server and stamped on the job."""

    batching: BatchingOverride = BatchingOverride()
    heartbeat_interval_seconds: int = 0


@record
class EnqueueRequest:
    """A job to add. The bytes are canonical encodings, where the caller has them; they say nothing more."""

    request_id: str
    queue: str
    params: JobParams
    delay_seconds: int = 0
    max_attempts: int = 0
    execution: ExecutionConfig | ExecutionOverride | None = None
    """What the job has instead of the server's; what an override does not set stays the server's."""
    params_bytes: bytes = field(default=b"", compare=False, repr=False)
    execution_bytes: bytes = field(default=b"", compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """What a worker can do. A job that needs something else waits for another worker."""

    handlers: Sequence[str] = ()
    """The names of its handlers, in any case."""
    commands: bool = False
    """Whether it runs commands."""

    def validate(self) -> None:
        """Refuse abilities that are none, or too many, or no names of handlers."""
        if not self.handlers and not self.commands:
            raise InvalidArgument("abilities must have handlers or commands")
        limits.check_range(len(self.handlers), "abilities.handlers", 0, limits.MAX_DECLARED_HANDLERS)
        for name in self.handlers:
            limits.check_handler_name(name, "abilities.handlers")
        limits.check_size("".join(self.handlers), "abilities.handlers", limits.MAX_DECLARED_BYTES)

    @property
    def keys(self) -> frozenset[str]:
        """The `JobParams.handler_key` of all jobs that the worker can do."""
        return frozenset([*map(limits.handler_key, self.handlers), *([""] if self.commands else [])])


@dataclass(frozen=True, slots=True, kw_only=True)
class DequeueRequest:
    """A request for jobs. Zero means the default, but of `wait_seconds`: None is its default, 0 no wait."""

    queue: str
    more_queues: Sequence[str] = ()
    max_jobs: int = 0
    visibility_timeout_seconds: int = 0
    wait_seconds: int | None = None
    worker_id: str = ""
    instance_id: str = ""
    first_lease_seconds: int = 0
    """How long a job stays with a caller that is not heard of again; zero for the whole visibility, which it
    never exceeds. The first heartbeat gives the whole visibility."""
    abilities: Abilities | None = None
    """What the caller can do: it gets no other jobs. None gets all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateRequest:
    """A heartbeat; with wait_seconds it also waits for news beyond what the worker knows."""

    queue: str
    task_token: str
    visibility_timeout_seconds: int = 0
    wait_seconds: int = 0
    watched: bool = False


@record
class CompleteRequest:
    """The end of an attempt. `job_id`, when given, must be the token's.

    `result_bytes` is the encoding of `result`, where the caller has it already.
    """

    task_token: str
    result: JobResult
    events: Sequence[Event] = ()
    job_id: str = ""
    result_bytes: bytes = field(default=b"", compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseRequest:
    """An attempt given back."""

    task_token: str
    delay_seconds: int = 0
    unstarted: bool = False
    error: str = ""
    events: Sequence[Event] = ()


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

    @property
    def is_relative(self) -> bool:
        """Whether it depends on the state of the job where it begins."""
        return bool(self.from_sequence and not self.attempt)

    def validate(self) -> StreamRequest:
        """Refuse what is malformed or out of range."""
        limits.check_range(self.from_sequence, "from_sequence", 0, limits.MAX_SEQUENCE)
        limits.check_range(self.from_timestamp, "from_timestamp", 0, limits.MAX_INSTANT)
        limits.check_range(self.attempt, "attempt", 0, 2**31 - 1)
        if self.cursor:
            from airunner.domain.event import Position  # late: few requests are about events

            Position.from_cursor(self.cursor)
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class OverviewQuery:
    """Which part of all queues or workers to list, by name: from the first on, or after a cursor."""

    page_size: int = 0
    cursor: str = ""

    def validate(self) -> int:
        """Return the size of a page, or refuse what is out of range."""
        size, default = self.page_size, limits.DEFAULT_OVERVIEW_SIZE
        limits.check_size(self.cursor, "cursor", limits.MAX_NAME_BYTES)
        return limits.in_range_or_default(size, "page_size", default, 1, limits.MAX_PAGE_SIZE)


_SENT_BACK: Final = frozenset(
    {DeadLetterReason.JOB_OPEN, DeadLetterReason.NO_VERDICT, DeadLetterReason.MESSAGE}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Redrive:
    """Which messages to send back: those of open jobs and work, or all; never one that loops.

    Work with a verdict is not sent back either: nobody would do it again.
    """

    queue: str
    max_messages: int
    all: bool = False
    dry_run: bool = False
    code: str = ""
    """Only letters with this code, unless empty."""

    def wants(self, letter: DeadLetter) -> bool:
        """Return whether a message is to be sent back."""
        if letter.loops or letter.reason is DeadLetterReason.VERDICT or self.code not in ("", letter.code):
            return False
        return self.all or letter.reason in _SENT_BACK
