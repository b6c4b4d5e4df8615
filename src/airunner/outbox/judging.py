"""What follows from what a sink said: how long rows and queues rest, and when a row is parked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from airunner.domain.retry import RetryPolicy
from airunner.outbox.rows import MAX_ATTEMPTS, NotTried, Rejected, Sent
from airunner.outbox.table import Mark

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airunner.domain.clock import Clock
    from airunner.outbox.rows import ClaimedRow, SendOutcome

REJECTED_ROW: Final = RetryPolicy(first_seconds=2.0, max_seconds=600.0)
"""How long a row rests after each refusal; ten of them take about half an hour."""
FAILING_QUEUE: Final = RetryPolicy(first_seconds=0.5, max_seconds=30.0)
"""How long a relay leaves a queue alone whose calls fail."""
_NOT_TRIED_SECONDS: Final = 1.0


def marks_of(rows: Sequence[ClaimedRow], outcomes: Sequence[SendOutcome], *, by_itself: bool) -> list[Mark]:
    """Return what to write down of each row.

    A row that was not tried stays as it is; unless `by_itself`, where nothing of its queue was taken, it
    lets others go first.
    """
    pause_seconds = 0.0 if by_itself else _NOT_TRIED_SECONDS
    return [_mark(row, outcome, pause_seconds) for row, outcome in zip(rows, outcomes, strict=True)]


class Rests:
    """The queues that this relay leaves alone for a while, since calls to them failed."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures: dict[str, int] = {}
        self._until: dict[str, int] = {}

    def queues(self) -> set[str]:
        """Return those that rest now."""
        now = self._clock.monotonic()
        return {queue for queue, until in self._until.items() if until > now}

    def rest(self, queue: str) -> float:
        """Leave a queue alone, the longer the more often that happened in a row; return for how long."""
        self._failures[queue] = failures = self._failures.get(queue, 0) + 1
        seconds = FAILING_QUEUE.delay(failures)
        self._until[queue] = self._clock.monotonic() + int(seconds * 1000)
        return seconds

    def is_well(self, queue: str) -> None:
        """Forget what happened to a queue: it took something."""
        self._failures.pop(queue, None)
        self._until.pop(queue, None)


def _mark(row: ClaimedRow, outcome: SendOutcome, pause_seconds: float) -> Mark:
    match outcome:
        case Sent(reference):
            return Mark(row_id=row.row_id, state="dispatched", sink_ref=reference)
        case NotTried():
            return Mark(row_id=row.row_id, pause_seconds=pause_seconds)
        case Rejected(reason, for_good):
            attempts = row.attempts + 1
            if for_good or attempts >= MAX_ATTEMPTS:
                return Mark(row_id=row.row_id, state="parked", reason=reason, attempts=1)
            pause = REJECTED_ROW.delay(attempts)
            return Mark(row_id=row.row_id, reason=reason, attempts=1, pause_seconds=pause)
