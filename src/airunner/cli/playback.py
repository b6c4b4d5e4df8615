"""When a replayed event is shown: at once, or as it happened."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from airunner.domain.errors import InvalidArgument

if TYPE_CHECKING:
    from airunner.domain.clock import Clock
    from airunner.domain.event import Event

_SPEED = re.compile(r"(\d+(?:\.\d+)?)x?", re.ASCII)


def choose_factor(*, playback: bool, slow: bool, speed: str, fast: bool) -> float:
    """Return what recorded delays are multiplied with; 0 shows everything at once.

    `slow` and `speed` ask for playback by themselves.
    """
    if fast and (playback or slow or speed):
        raise InvalidArgument("--fast means no delays; it does not go with --playback, --slow or --speed")
    if slow and speed:
        raise InvalidArgument("give either --slow or --speed")
    if slow:
        return 2.0
    if speed:
        found = _SPEED.fullmatch(speed)
        if not found or not float(found[1]):
            raise InvalidArgument(f"--speed must be a number above 0 such as 2x, not {speed!r}")
        return 1 / float(found[1])
    return 1.0 if playback else 0.0


class Pace:
    """Keeps the distances between the events of an attempt, times a factor. Late events wait no more."""

    def __init__(self, clock: Clock, factor: float) -> None:
        self._clock = clock
        self._factor = factor
        self._attempt = 0
        self._first_timestamp = 0
        self._began_at = 0

    async def wait_for(self, event: Event) -> None:
        """Return when the event is to be shown."""
        if not self._factor:
            return
        now = self._clock.now()
        if event.attempt != self._attempt:
            self._attempt, self._first_timestamp, self._began_at = event.attempt, event.timestamp, now
        due = self._began_at + (event.timestamp - self._first_timestamp) * self._factor
        if due > now:
            await self._clock.sleep((due - now) / 1000)
