"""What a consumer works on: a source of deliveries, and the rules between the two.

Everything that works is a Consumer over a Source: the job worker's source is the JobService, every other
one's is a message queue. A handler says by its end what becomes of its delivery:

- it returns: the delivery is acked, with what it returned;
- it raises PermanentFailure: the delivery is dead-lettered, with the reason attached;
- its visibility was lost: the delivery is forgotten, nothing it did may be seen;
- anything else: the delivery is released after the delay of the retry policy.

A body that cannot be decoded, or whose type nobody handles, is dead-lettered by the source, never deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Generic, Protocol, TypeAlias, TypeVar

if TYPE_CHECKING:
    from airunner.domain.errors import PermanentFailure

T = TypeVar("T")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
R_contra = TypeVar("R_contra", contravariant=True)


class TryAgain(Exception):
    """A handler's verdict that another delivery may end better; its text is reported as it is."""


class Hold(Enum):
    """What a source says about a delivery that somebody works on."""

    HELD = "held"
    CANCELLED = "cancelled"
    """Still held, but its end is wished for; the handler decides how."""
    LOST = "lost"
    """Somebody else may have it: stop at once and forget it."""


class Cancellation:
    """A wish that a delivery comes to its end, uttered once; it costs nothing until then."""

    __slots__ = ("_callbacks", "_requested")

    def __init__(self) -> None:
        self._requested = False
        self._callbacks: list[Callable[[], None]] = []

    def is_set(self) -> bool:
        """Tell whether the wish was uttered."""
        return self._requested

    def set(self) -> None:
        """Utter the wish, and call those who want to know; only the first time does anything."""
        self._requested = True
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def when_set(self, callback: Callable[[], None]) -> None:
        """Call back once the wish is uttered; at once if it was."""
        if self._requested:
            callback()
        else:
            self._callbacks.append(callback)


@dataclass(slots=True, kw_only=True, eq=False)
class Delivery(Generic[T]):
    """One body in the hands of a consumer, until it is settled or lost. Compared by identity."""

    body: T
    key: str
    """Names it in logs."""
    attempt: int = 1
    """How often it was delivered, this time included; the delay before a redelivery grows with it."""
    extend_after_seconds: float = 1.0
    """The age at which extending begins: what is over by then costs no call."""
    cancelled: Cancellation = field(default_factory=Cancellation)
    """Set once its end is wished for; the handler goes on to an end of its own."""
    lost: bool = False
    """Set before the handler is cancelled, when the delivery is not ours any more or will not be settled."""


class Source(Protocol[T, R_contra]):
    """Where deliveries come from, and where their ends are reported.

    Errors of any call but `receive` and `extend` are the source's own matter: it repeats what may succeed
    later, and gives up what cannot; an undelivered settlement only means that the visibility lapses.
    """

    async def receive(self, max_deliveries: int) -> Sequence[Delivery[T]]:
        """Wait for deliveries, a while at most, and return up to so many; none is no error.

        Cancelling the call loses nothing: what it had claimed becomes visible again.
        """

    async def extend(self, delivery: Delivery[T]) -> Hold:
        """Extend the visibility at once, and return when that has to be done again, or there is news.

        The call is the timer: whoever holds a delivery always has one of these outstanding. A source that
        cannot be reached is no reason to give up: only one that answers so makes a delivery LOST.
        """

    async def ack(self, settlements: Sequence[tuple[Delivery[T], R_contra]]) -> None:
        """Report deliveries that were handled, many in one call. One that was lost meanwhile is forgotten."""

    async def release(self, delivery: Delivery[T], delay_seconds: float, error: str) -> None:
        """Give a delivery back, visible after the delay.

        `error` is what went wrong in the handler; empty when the consumer gives it back by itself.
        """

    async def dead_letter(self, delivery: Delivery[T], failure: PermanentFailure) -> None:
        """Put a delivery aside for good, with the reason attached."""


Finish: TypeAlias = Callable[[Sequence[tuple[Delivery[T], R]]], None]
"""Takes deliveries that were handled, with what came of each."""


class FastPath(Protocol[T, R_co]):
    """A head start for deliveries that are mostly over in a moment: many at once, without a task for each."""

    def begin(
        self,
        deliveries: Sequence[Delivery[T]],
        finish: Finish[T, R_co],
        hand_over: Callable[[Delivery[T]], None],
    ) -> Sequence[Delivery[T]]:
        """Begin deliveries, and return those that are to be handled as usual from their start.

        Each of the others goes, in a moment, to `finish` or to `hand_over`: then the handler is called with
        it after all, and goes on with what was begun. The consumer may call the handler sooner; what is
        finished after that is the handler's own matter. Does not block, and raises nothing.
        """
