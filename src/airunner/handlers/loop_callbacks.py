"""Running callbacks on an event loop from any thread, many for one wake-up."""

from __future__ import annotations

import threading
from collections import deque
from contextvars import copy_context
from typing import TYPE_CHECKING

from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable


_log = get_logger("airunner.handlers")


class LoopCallbacks:
    """Runs callbacks on a loop, in the order in which they were posted.

    Waking a loop costs a system call, so all that comes before it wakes goes with one. What a callback raises
    is logged, and those behind it run.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # Reentrant: a finalizer may run while it is held, and post.
        self._lock = threading.RLock()
        self._posted: deque[Callable[[], object]] = deque()
        self._woken = False
        # Not those of the thread that posts: logs of the loop would go to the output of a handler.
        self._variables = copy_context()

    def post(self, callback: Callable[[], object]) -> None:
        """Run the callback soon; a loop that is closed by now runs nothing more."""
        with self._lock:
            self._posted.append(callback)
            wake, self._woken = not self._woken, True
        if wake and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._run, context=self._variables)

    def _run(self) -> None:
        with self._lock:
            posted, self._posted = self._posted, deque()
            self._woken = False
        for callback in posted:
            try:
                callback()
            except Exception:  # noqa: BLE001  whatever it is, it is no affair of the others
                _log.exception("callback.failed")
