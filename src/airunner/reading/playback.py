"""When a replayed event is shown: at once, or as it happened. Pure; the time comes as an argument."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from airunner.domain.errors import InvalidArgument

if TYPE_CHECKING:
    from airunner.domain.event import Event

_SPEED: Final = re.compile(r"(\d+(?:\.\d+)?)x?", re.ASCII)
_PERCENT: Final = re.compile(r"(\d+(?:\.\d+)?)%", re.ASCII)
_DURATION: Final = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s?)?", re.ASCII)
_SLOWEST: Final = 16.0
_FASTEST: Final = 1 / 64


def choose_factor(*, playback: bool, slow: bool, speed: str, fast: bool, seek: str = "") -> float:
    """Return what recorded delays are multiplied with; 0 shows everything at once.

    `slow`, `speed` and `seek` ask for playback by themselves.
    """
    if fast and (playback or slow or speed or seek):
        raise InvalidArgument(
            "--fast means no delays; it does not go with --playback, --slow, --speed or --seek"
        )
    if slow and speed:
        raise InvalidArgument("give either --slow or --speed")
    if slow:
        return 2.0
    if speed:
        found = _SPEED.fullmatch(speed)
        if not found or not float(found[1]):
            raise InvalidArgument(f"--speed must be a number above 0 such as 2x, not {speed!r}")
        return 1 / float(found[1])
    return 1.0 if playback or seek else 0.0


@dataclass(frozen=True, slots=True)
class Seek:
    """Where a playback begins: at a share of the recorded time, or at an offset in milliseconds."""

    offset: int = 0
    share: float = 0.0

    def within(self, recorded_ms: int) -> int:
        """Return the offset in a recording of this length."""
        return round(recorded_ms * self.share) if self.share else self.offset


def parse_seek(text: str) -> Seek:
    """Return the place that a text such as 1m30s, 90 or 50% means; nothing is the beginning."""
    if found := _PERCENT.fullmatch(text):
        if float(found[1]) <= 100:
            return Seek(share=float(found[1]) / 100)
    elif found := _DURATION.fullmatch(text):
        hours, minutes, seconds = (float(part or 0) for part in found.groups())
        return Seek(round((hours * 3600 + minutes * 60 + seconds) * 1000))
    raise InvalidArgument(f"--seek must be a time such as 1m30s or 90, or a share such as 50%, not {text!r}")


@dataclass(frozen=True, slots=True)
class Recording:
    """Where a reader is in the recorded time, in which no time passes between attempts."""

    attempt: int = 0
    base: int = 0
    first_timestamp: int = 0
    offset: int = 0

    def after(self, event: Event) -> Recording:
        """Return the place of the next event."""
        if event.attempt != self.attempt:
            return Recording(event.attempt, self.offset, event.timestamp, self.offset)
        offset = max(self.offset, self.base + event.timestamp - self.first_timestamp)
        return Recording(self.attempt, self.base, self.first_timestamp, offset)


class Tempo:
    """Which recorded moment belongs to which instant, as somebody pauses, seeks and changes the speed.

    Moments that are late are due at once, and do not delay those after them.
    """

    def __init__(self, factor: float, *, begin_at: int = 0) -> None:
        self._factor = factor
        self._offset = begin_at
        self._since: int | None = None
        self.paused = False
        self.skip_before = begin_at

    @property
    def mode(self) -> str:
        """How time passes, as people say it."""
        speed = f"{1 / self._factor:g}x"
        return f"paused, {speed}" if self.paused else speed

    def due_at(self, offset: int, now: int) -> int | None:
        """Return the instant at which a moment is due; None while time stands still."""
        if self._since is None:
            self._since = now
        return None if self.paused else self._since + round((offset - self._offset) * self._factor)

    def position(self, now: int) -> int:
        """Return the moment that is due now."""
        if self.paused or self._since is None:
            return self._offset
        return self._offset + round((now - self._since) / self._factor)

    def go_on_from(self, offset: int, now: int) -> None:
        """Let this moment be the present one."""
        self._offset, self._since = offset, now

    def seek(self, offset: int, now: int) -> None:
        """Go to a moment; what is before it is not to be shown."""
        self.skip_before = max(0, offset)
        self.go_on_from(self.skip_before, now)

    def pause_or_resume(self, now: int) -> None:
        """Stop the time, or let it go on."""
        self.go_on_from(self.position(now), now)
        self.paused = not self.paused

    def change_speed(self, times: float, now: int) -> None:
        """Go on so many times as fast, within reason."""
        self.go_on_from(self.position(now), now)
        self._factor = min(_SLOWEST, max(_FASTEST, self._factor / times))
