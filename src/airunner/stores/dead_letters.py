"""Messages that nobody could do anything with, in stores whose queues put such messages aside."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_REDRIVES = 3
"""How often a message is sent back before it is taken for one that always comes here again."""


class DeadLetterReason(IntEnum):
    """What a message is about, as the store sees it now; the values are those of the contract."""

    UNREADABLE = 1
    JOB_NOT_FOUND = 2
    JOB_ENDED = 3
    JOB_OPEN = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """One such message. `body` is its begin; `body_cut` says that there is more."""

    message_id: str
    reason: DeadLetterReason
    job_id: str = ""
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
    """Messages that were looked at, and how many there are in all, about."""

    letters: Sequence[DeadLetter]
    approximate_total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Redrive:
    """Which messages to send back: those of open jobs, or all; never one that loops."""

    queue: str
    max_messages: int
    all: bool = False
    dry_run: bool = False

    def wants(self, letter: DeadLetter) -> bool:
        """Tell whether a message is to be sent back."""
        return not letter.loops and (self.all or letter.reason is DeadLetterReason.JOB_OPEN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Redriven:
    """What became of the messages that were looked at."""

    redriven: Sequence[DeadLetter]
    left: Sequence[DeadLetter]


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageCounts:
    """How many messages of a queue can be received, were received, are not due, are dead; all about."""

    queue: str
    visible: int
    in_flight: int
    delayed: int
    dead_letters: int


@runtime_checkable
class DeadLetters(Protocol):
    """A store whose messages can end in a dead-letter queue. Rows decide; no message is a job."""

    async def list_dead_letters(self, queue: str, max_messages: int) -> DeadLetterPage:
        """Look at messages; they can be received again at once."""

    async def redrive_dead_letters(self, redrive: Redrive) -> Redriven:
        """Send messages back, each before it is deleted: one may come twice, which is harmless, none is lost.

        A call is bounded in messages and in time. What was looked at and left stays out of sight for half a
        minute, so that calls in a row come to an end.
        """

    async def purge_dead_letters(
        self, queue: str, max_messages: int, *, dry_run: bool
    ) -> Sequence[DeadLetter]:
        """Delete messages and return them. A job that is open gets a new message in time."""

    async def count_messages(self) -> Sequence[MessageCounts]:
        """Return the counts of every queue."""
