"""What airunner answers to its callers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from airunner.domain.record import record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airunner.domain.job import Job, JobState
    from airunner.domain.requests import Abilities

MAX_REDRIVES = 3
"""How often a message is sent back before it is taken for one that always comes here again."""


@record
class Enqueued:
    """The job that an enqueue created, or had created earlier for the same request id."""

    job_id: str
    created_at: int
    state: JobState


@record
class DequeuedJob:
    """A claimed job, and the task token that proves who holds it."""

    job: Job
    task_token: str
    termination_token: str = ""
    """Where the dequeue named an instance, its proof towards the fleet; see TerminationSigner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldJob:
    """The answer to a heartbeat."""

    cancel_requested: bool
    watched: bool
    visible_until: int


@record
class Published:
    """The answer to a publish."""

    next_sequence: int
    cancel_requested: bool
    watched: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStats:
    """A queue that has been used."""

    name: str
    paused: bool
    scheduled: int
    running: int
    # When the oldest scheduled job was enqueued; 0 when there is none.
    oldest_scheduled_at: int
    # The principal that paused the queue, and when; empty and 0 when it is not paused.
    paused_by: str = ""
    paused_at: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePage:
    """Queues by name. `next_cursor` is empty when there is nothing more."""

    queues: Sequence[QueueStats]
    next_cursor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSeen:
    """A worker that called this server lately."""

    worker_id: str
    instance_id: str
    queues: Sequence[str]
    last_seen_at: int
    job_ids: Sequence[str]
    abilities: Abilities | None = None
    """What it said that it can do, with some of its handlers; None if it said nothing and gets all jobs."""
    more_handlers: int = 0
    """How many handlers it has beside those."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPage:
    """Workers by name. `next_cursor` is empty when there is nothing more."""

    workers: Sequence[WorkerSeen]
    next_cursor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadLinks:
    """Addresses of payloads that anybody can download for a while; empty for a payload without one."""

    params_url: str = ""
    result_url: str = ""


class DeadLetterReason(IntEnum):
    """What a dead letter is about, by the state of its job or work now. The values are those of the contract.

    A client reads UNSPECIFIED where a newer server gives a reason that the client does not know.
    """

    UNSPECIFIED = 0
    UNREADABLE = 1
    JOB_NOT_FOUND = 2
    JOB_ENDED = 3
    JOB_OPEN = 4
    VERDICT = 5
    """Work of the generation queue whose verdict is final: it runs again as a new id only."""
    NO_VERDICT = 6
    """Work of the generation queue that is open."""
    MESSAGE = 7
    """A message of a fleet's queue, which is judged anew when it is sent back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """One dead letter. `body` holds its first characters; `body_cut` says that there are more."""

    message_id: str
    reason: DeadLetterReason = DeadLetterReason.UNSPECIFIED
    job_id: str = ""
    """Of a job, or of work of the generation queue."""
    code: str = ""
    """Why work of the generation queue failed, as a word; empty for messages of jobs."""
    sent_at: int = 0
    redrives: int = 0
    body: str = ""
    body_cut: bool = False

    @property
    def loops(self) -> bool:
        """Whether it was sent back so often that once more would not help."""
        return self.redrives >= MAX_REDRIVES


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterPage:
    """Dead letters of one look, and the approximate number of all of them."""

    letters: Sequence[DeadLetter]
    approximate_total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Redriven:
    """Dead letters that were sent back, and those that were left."""

    redriven: Sequence[DeadLetter]
    left: Sequence[DeadLetter]


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingChange:
    """One change of a run-time setting. None stands for "not set"."""

    value: str | None
    old_value: str | None
    changed_by: str
    """The principal."""
    changed_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A run-time setting: what holds now, and how it came about. Values are texts."""

    name: str
    value: str
    """The one in effect; empty where that could not be read."""
    configured: str
    """What holds while it is not set: the value of the server's configuration."""
    is_set: bool
    allowed: str
    """Which values it may have, in words."""
    changes: Sequence[SettingChange] = ()
    """The last hundred, the newest first."""
    unread_reason: str = ""
    """Why it could not be read whether it is set, and to what: its home did not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageCounts:
    """Approximate numbers of messages of one queue: visible, in flight, delayed, dead."""

    queue: str
    visible: int
    in_flight: int
    delayed: int
    dead_letters: int
