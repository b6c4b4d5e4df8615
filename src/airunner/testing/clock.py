"""A clock that stands still until it is moved."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class ManualTimer:
    """A callback that waits for the clock to be moved."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback: Callable[[], None] | None = callback

    @property
    def pending(self) -> bool:
        """Whether the callback is still to run."""
        return self._callback is not None

    def cancel(self) -> None:
        """Forget the callback."""
        self._callback = None

    def fire(self) -> None:
        """Run the callback, once at most."""
        callback, self._callback = self._callback, None
        if callback:
            callback()


class ManualClock:
    """Implements Clock; time passes only in `advance`."""

    def __init__(self, start: int = 1_700_000_000_000) -> None:
        self._now = start
        self._stepped = 0
        self._order = itertools.count()
        self._timers: list[tuple[int, int, ManualTimer]] = []

    def now(self) -> int:
        """Return the instant, in Unix milliseconds."""
        return self._now

    def monotonic(self) -> int:
        """Return the milliseconds that have passed, whatever the clock was set to."""
        return self._now - self._stepped

    @property
    def waiting(self) -> int:
        """How many callbacks wait for the clock: every call that waits for something has one."""
        return sum(timer.pending for _, _, timer in self._timers)

    def call_at(self, when: int, callback: Callable[[], None]) -> ManualTimer:
        """Run `callback` when the clock reaches `when`; what is past runs with the next turn of the loop."""
        timer = ManualTimer(callback)
        if when <= self._now:
            asyncio.get_running_loop().call_soon(timer.fire)
        else:
            heapq.heappush(self._timers, (when, next(self._order), timer))
        return timer

    async def sleep(self, seconds: float) -> None:
        """Return once the clock has been moved by `seconds`."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def wake() -> None:
            # One that was cancelled may have had no turn yet to take its timer back.
            if not done.done():
                done.set_result(None)

        timer = self.call_at(self._now + int(seconds * 1000), wake)
        try:
            await done
        finally:
            timer.cancel()

    def step(self, seconds: float) -> None:
        """Set the clock forward or back, as an operator does: nobody waits the longer or shorter for it."""
        self._now += int(seconds * 1000)
        self._stepped += int(seconds * 1000)
        # All by the same, so they stay a heap.
        self._timers = [(when + int(seconds * 1000), order, timer) for when, order, timer in self._timers]

    def advance(self, seconds: float) -> None:
        """Move the clock, firing the timers on the way in their order."""
        target = self._now + int(seconds * 1000)
        while self._timers and self._timers[0][0] <= target:
            self._now, _, timer = heapq.heappop(self._timers)
            timer.fire()
        self._now = target
