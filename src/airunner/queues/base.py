"""What a consumer works on and with: a source of deliveries, and a runner that processes them.

Everything that works is a Consumer over a Source: the job worker's source is the JobService, every other
one's is a message queue. How the processing of a delivery ends decides what becomes of the delivery:

- it returns: the delivery is acked, with what was returned;
- it raises a permanent error (see `domain.errors.permanent_failure`): the delivery is dead-lettered, with the
  reason attached;
- its visibility was lost: the delivery is forgotten, and nothing that was done for it may be seen;
- anything else: the delivery is released after the delay of the retry policy.

A body that cannot be decoded, or whose type nobody handles, is dead-lettered by the source, never deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Generic, Protocol, TypeAlias, TypeVar

from airunner.domain.retry import RetryPolicy

if TYPE_CHECKING:
    from airunner.domain.errors import PermanentFailure

T = TypeVar("T")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
R_contra = TypeVar("R_contra", contravariant=True)


class TryAgain(Exception):
    """Raised by the processing of a delivery to have it delivered again; its text is reported as it is."""

    def __init__(self, text: str = "", *, delay_seconds: float | None = None) -> None:
        super().__init__(text)
        self.delay_seconds = delay_seconds
        """How long it waits, where that is not the retry policy's to say."""


class Hold(Enum):
    """The answer of a source about a delivery that is being processed."""

    HELD = "held"
    CANCELLED = "cancelled"
    """Still held, but it is to end; whoever processes it decides how."""
    LOST = "lost"
    """Somebody else may have it: stop at once and forget it."""


class Cancellation:
    """A one-shot cancellation request with callbacks; it costs nothing while it is not set."""

    __slots__ = ("_callbacks", "_requested")

    def __init__(self) -> None:
        self._requested = False
        self._callbacks: tuple[Callable[[], None], ...] = ()

    def is_set(self) -> bool:
        """Return whether cancellation was requested."""
        return self._requested

    def set(self) -> None:
        """Request cancellation and run the callbacks; only the first call has an effect."""
        self._requested = True
        callbacks, self._callbacks = self._callbacks, ()
        for callback in callbacks:
            callback()

    def when_set(self, callback: Callable[[], None]) -> None:
        """Run a callback once cancellation is requested; at once if it was already."""
        if self._requested:
            callback()
        else:
            self._callbacks = (*self._callbacks, callback)


@dataclass(slots=True, kw_only=True, eq=False)
class Delivery(Generic[T]):
    """One body in the hands of a consumer, until it is settled or lost. Compared by identity."""

    body: T
    key: str
    """Names it in logs."""
    attempt: int = 1
    """How often it was delivered, this time included; the delay before a redelivery grows with it."""
    extend_after_seconds: float = 1.0
    """The age at which extending begins: a delivery that is over by then costs no call."""
    cancelled: Cancellation = field(default_factory=Cancellation)
    """Set by the consumer when the source answers CANCELLED; the processing goes on to an end of its own."""
    lost: bool = False
    """Set by the consumer, before it cancels the processing, when the delivery will not be settled: somebody
    else may have it, or the consumer gives up."""


class Source(Protocol[T, R_contra]):
    """Where deliveries come from, and where their ends are reported.

    Errors of any call but `receive` and `extend` are the source's own matter: it repeats what may succeed
    later, and gives up what cannot; an undelivered settlement only means that the visibility lapses.
    """

    async def receive(self, max_deliveries: int) -> Sequence[Delivery[T]]:
        """Wait a limited time for deliveries, and return up to so many; none is no error.

        Cancelling the call loses nothing: what it had claimed becomes visible again.
        """

    async def extend(self, delivery: Delivery[T]) -> Hold:
        """Extend the visibility at once, and return when that has to be done again, or there is news.

        The call is the timer: a held delivery always has one of these outstanding. A source that cannot be
        reached is no reason to give up: only one that answers so makes a delivery LOST.
        """

    async def ack(self, settlements: Sequence[tuple[Delivery[T], R_contra]]) -> None:
        """Report processed deliveries, many in one call. One that was lost meanwhile is forgotten."""

    async def release(self, delivery: Delivery[T], delay_seconds: float, error: str) -> None:
        """Give a delivery back, visible after the delay.

        `error` is the error of its processing; empty when the consumer gives it back by itself.
        """

    async def dead_letter(self, delivery: Delivery[T], failure: PermanentFailure) -> None:
        """Put a delivery aside for good, with the reason attached."""


Finish: TypeAlias = Callable[[Sequence[tuple[Delivery[T], R]]], None]
"""Takes deliveries whose processing has returned, each with its result."""

Fail: TypeAlias = Callable[[Delivery[T], BaseException], None]
"""Takes a delivery whose processing has raised, with the error; CancelledError if it was cancelled."""


class Runner(Protocol[T, R_co]):
    """Processes the deliveries that a consumer gives it, in chunks. All calls are on the consumer's loop."""

    def begin(self, deliveries: Sequence[Delivery[T]], finish: Finish[T, R_co], fail: Fail[T]) -> None:
        """Begin to process deliveries. Does not block, and raises nothing.

        Each of them goes to `finish` or to `fail`, exactly once. A consumer passes the same two functions
        each time.
        """

    def cancel(self, delivery: Delivery[T]) -> None:
        """Cancel the processing of a delivery that is not over; its end is reported as any other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """How much a consumer takes on, and how it stops."""

    concurrency: int | Callable[[], int] = 1
    """How many deliveries are processed at once; a function is called each time, so it may change."""
    receivers: int = 1
    """How many receives may be outstanding at once, while there are free slots for them."""
    settlers: int = 1
    """How many reports of finished deliveries may be outstanding at once."""
    max_receive: int = 100
    """The maximum of deliveries that one receive asks for."""
    max_deliveries: int | None = None
    """The consumer ends by itself after this many."""
    drain_seconds: float = 30.0
    """How long processing may go on after `stop` before it is cancelled."""
    release_seconds: float = 20.0
    """How long cancelled processing and the last settlements may take before they are given up."""
    redelivery: RetryPolicy = RetryPolicy(first_seconds=1.0, max_seconds=300.0)
    """How long a delivery stays invisible after its processing failed, by the number of its attempts."""
    reconnect: RetryPolicy = RetryPolicy()
    """How long to wait after a `receive` or an `extend` that failed."""
    fatal: tuple[type[Exception], ...] = ()
    """Errors of a receive after which there is no point in going on."""
