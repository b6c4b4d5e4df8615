"""The one place that reads the wall clock.

Instants are Unix milliseconds everywhere inside airunner: they compare, subtract and store as they are.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


# More than clocks are adjusted in passing.
_STEP_MS: Final = 60_000
_LOOK_EVERY_MS: Final = 3_600_000


class Timer(Protocol):
    """A callback that waits for its time."""

    def cancel(self) -> None:
        """Forget the callback. Harmless when it has run or was cancelled before."""


class Clock(Protocol):
    """Time, as everything in airunner sees it; tests bring their own."""

    def now(self) -> int:
        """Return the instant, in Unix milliseconds. Somebody may set it forward or back at any time."""

    def monotonic(self) -> int:
        """Return milliseconds since whenever, which nobody can set: for ages, trust and deadlines."""

    def call_at(self, when: int, callback: Callable[[], None]) -> Timer:
        """Run `callback` on the event loop at `when`, or soon if that is past."""

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds` of this clock."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> int:
        """Return the instant, in Unix milliseconds."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> int:
        """Return milliseconds since whenever."""
        return time.monotonic_ns() // 1_000_000

    def call_at(self, when: int, callback: Callable[[], None]) -> Timer:
        """Run `callback` on the event loop at `when`, or soon if that is past."""
        delay = max(0, when - self.now()) / 1000
        return asyncio.get_running_loop().call_later(delay, callback)

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds`."""
        await asyncio.sleep(seconds)


class StepWatch:
    """Says when to look for what a wrong clock has left: at first, when it was set back, and every hour."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset = clock.now() - clock.monotonic()
        self._next_at = clock.monotonic()

    def look_due(self) -> bool:
        """Return whether to look now. A step that is undone before the next call is found within the hour."""
        passed = self._clock.monotonic()
        before, self._offset = self._offset, self._clock.now() - passed
        if passed < self._next_at and self._offset >= before - _STEP_MS:
            return False
        self._next_at = passed + _LOOK_EVERY_MS
        return True


async def wait_until(clock: Clock, when: int, future: asyncio.Future[Any]) -> bool:
    """Wait for `future`, at most until `when`; return whether it is done. The future is left as it is."""
    alarm: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    timer = clock.call_at(when, lambda: alarm.set_result(None))
    try:
        await asyncio.wait((future, alarm), return_when=asyncio.FIRST_COMPLETED)
    finally:
        timer.cancel()
        alarm.cancel()
    return future.done()
