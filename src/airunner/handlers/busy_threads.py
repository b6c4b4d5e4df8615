"""Which thread runs which call, and how much of the processor each has had."""

from __future__ import annotations

import threading
import time
from typing import Generic, TypeVar

C = TypeVar("C")


class BusyThreads(Generic[C]):
    """Knows the last call of each thread, and measures the CPU time of each between two looks."""

    def __init__(self) -> None:
        self._calls: dict[int, C] = {}
        self._clocks: dict[int, int] = {}
        self._used: dict[int, float] = {}

    def enter(self, call: C) -> None:
        """Take note that the current thread runs a call from now on."""
        thread = threading.get_ident()
        self._calls[thread] = call
        if thread not in self._clocks:
            # By the thread itself: of one that has ended this could not be asked.
            self._clocks[thread] = time.pthread_getcpuclockid(thread)

    def look(self) -> list[tuple[C, float]]:
        """Return the last call of each thread, and its seconds of CPU time since the last look."""
        found = []
        for thread, clock in list(self._clocks.items()):
            try:
                used = time.clock_gettime(clock)
            except OSError:  # the thread has ended
                continue
            found.append((self._calls[thread], used - self._used.get(thread, 0.0)))
            self._used[thread] = used
        return found
