"""An event loop on which waiting costs nothing: where nobody has anything to do, its time jumps."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_START_MS = 1_700_000_000_000


def run_in_virtual_time(main: Callable[[VirtualClock], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine to its end; whatever sleeps or times out on the loop does so in virtual time.

    Nothing in it may wait for a socket, a file or another thread.
    """
    loop = _VirtualLoop()
    try:
        return loop.run_until_complete(main(VirtualClock(loop)))
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


class VirtualClock:
    """Implements Clock by the time of a loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def now(self) -> int:
        return _START_MS + self.monotonic()

    def monotonic(self) -> int:
        return round(self._loop.time() * 1000)

    def call_at(self, when: int, callback: Callable[[], None]) -> asyncio.TimerHandle:
        return self._loop.call_later(max(0, when - self.now()) / 1000, callback)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class _VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumper = _Jumper()
        super().__init__(self._jumper)

    def time(self) -> float:
        return self._jumper.seconds


class _Jumper(selectors.SelectSelector):
    """A selector that does not wait: it lets the time pass that the loop would have waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("nobody on the loop waits for a time: it would wait for ever")
        self.seconds += max(0.0, timeout)
        return super().select(0)
