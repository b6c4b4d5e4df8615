"""Showing that an attempt has begun when it is not over in a moment."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from airunner.domain.clock import Clock
    from airunner.worker.report import AttemptReport

_MOMENT_MS: Final = 100


class SlowStarts:
    """Opens reports that nothing else has opened within 100 ms; one timer serves all of them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._watched: deque[tuple[int, AttemptReport]] = deque()

    def watch(self, report: AttemptReport) -> None:
        """Open the report later; one that is over by then is left alone."""
        self._watched.append((self._clock.now() + _MOMENT_MS, report))
        if len(self._watched) == 1:
            self._arm()

    def _arm(self) -> None:
        self._clock.call_at(self._watched[0][0], self._open_due)

    def _open_due(self) -> None:
        now = self._clock.now()
        while self._watched and self._watched[0][0] <= now:
            self._watched.popleft()[1].open()
        if self._watched:
            self._arm()
