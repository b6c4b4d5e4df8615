"""How long a server may be silent."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from airunner.client.http.base import ConnectionLost

if TYPE_CHECKING:
    from types import TracebackType


class SilenceLimit:
    """Bounds each wait of a stream like `asyncio.timeout`, with one timer for all of them.

    `with` it, one wait at a time, in whichever task; a wait that takes too long raises ConnectionLost. The
    timer is set again only when it goes off, since hardly any wait takes that long.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._since = 0.0
        self._task: asyncio.Task[object] | None = None
        """Who waits."""
        self._cancels = 0
        self._is_over = False

    def close(self) -> None:
        """Let go of the timer: there will be no further wait."""
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def __enter__(self) -> None:
        self._task = asyncio.current_task(self._loop)
        self._cancels = self._task.cancelling() if self._task else 0
        self._since = self._loop.time()
        if self._timer is None:
            self._timer = self._loop.call_at(self._since + self._seconds, self._go_off)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        if not self._is_over or task is None:
            return
        self._is_over = False
        if task.uncancel() <= self._cancels and kind is asyncio.CancelledError:
            raise ConnectionLost("the server has fallen silent") from error

    def _go_off(self) -> None:
        self._timer = None
        if self._task is None:
            return
        due_at = self._since + self._seconds
        if self._loop.time() < due_at:
            self._timer = self._loop.call_at(due_at, self._go_off)
        else:
            self._is_over = True
            self._task.cancel()
