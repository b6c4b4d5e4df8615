"""A row of the outbox on its way, and what can become of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_ATTEMPTS: Final = 10
"""How often a sink may refuse a row before it is parked."""
UNKNOWN_QUEUE: Final = "unknown_queue"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedRow:
    """A row that this relay may send, until its claim expires."""

    row_id: str
    queue: str
    name: str
    body: str
    """The text that is sent: `{"id", "name", "payload"}`."""
    attempts: int
    """How often a sink has refused it."""


@dataclass(frozen=True, slots=True)
class Sent:
    """The sink has it."""

    reference: str
    """What the sink calls it: the id of a message or of a job."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """The sink refused this one row."""

    reason: str
    for_good: bool = False
    """Whether no other try can help."""


@dataclass(frozen=True, slots=True)
class NotTried:
    """A call failed as a whole, or was not made: that says nothing about the row."""

    reason: str
    queue_missing: bool = False
    """Whether there is no such queue."""


SendOutcome: TypeAlias = Sent | Rejected | NotTried


class Sink(Protocol):
    """Where rows are sent to."""

    max_rows: int
    """How many rows one call takes."""

    def knows(self, queue: str) -> bool:
        """Return whether rows of a queue may ever be sent: those of others are parked."""

    async def send(self, queue: str, rows: Sequence[ClaimedRow]) -> Sequence[SendOutcome]:
        """Send up to `max_rows` rows of one queue in one call; return what became of each.

        Raises nothing but what nobody thought of. A call whose answer is lost may have sent them.
        """
