"""The one place that reads the wall clock.

Instants are Unix milliseconds everywhere inside airunner: they compare, subtract and store as they are.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


class Timer(Protocol):
    """A callback that waits for its time."""

    def cancel(self) -> None:
        """Forget the callback. Harmless when it has run or was cancelled before."""


class Clock(Protocol):
    """Time, as everything in airunner sees it; tests bring their own."""

    def now(self) -> int:
        """Return the instant, in Unix milliseconds."""

    def monotonic(self) -> int:
        """Return milliseconds that only ever grow, however the clock is set; only their differences count."""

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
        """Return milliseconds that only ever grow."""
        return time.monotonic_ns() // 1_000_000

    def call_at(self, when: int, callback: Callable[[], None]) -> Timer:
        """Run `callback` on the event loop at `when`, or soon if that is past."""
        delay = max(0, when - self.now()) / 1000
        return asyncio.get_running_loop().call_later(delay, callback)

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds`."""
        await asyncio.sleep(seconds)


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
