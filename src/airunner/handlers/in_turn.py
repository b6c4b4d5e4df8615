"""Doing one thing after the other, from any thread, and with the garbage collector in between."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class InTurn:
    """Runs steps one at a time, in the order in which they come.

    The garbage collector may run in the midst of a step, and what it frees may print: a step that comes there
    neither waits for the one that it is in, nor gets in its way. It runs behind it.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._waiting: deque[Callable[[], object]] = deque()
        self._is_running = False

    def run(self, step: Callable[[], object]) -> None:
        """Run a step and return after it; in the midst of another of this thread, return at once."""
        with self._lock:
            self._waiting.append(step)
            while self._waiting and not self._is_running:
                self._run_next()

    def _run_next(self) -> None:
        self._is_running = True
        try:
            # One that came just now, in between, may have run all.
            if self._waiting:
                self._waiting.popleft()()
        finally:
            self._is_running = False
