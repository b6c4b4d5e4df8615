"""When the events of a playback are shown, and where a stream is resumed. The time comes as an argument."""

from __future__ import annotations

from bisect import bisect_left
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from airunner.domain.event import Event

_SLOWEST: Final = 16.0
_FASTEST: Final = 1 / 64


@dataclass(frozen=True, slots=True)
class Seek:
    """Where a playback begins: at a share of the recorded time, or at an offset in milliseconds."""

    offset: int = 0
    share: float = 0.0

    def within(self, recorded_ms: int) -> int:
        """Return the offset in a recording of this length."""
        return round(recorded_ms * self.share) if self.share else self.offset


@dataclass(frozen=True, slots=True, kw_only=True)
class Playback:
    """How to play a job back: what recorded delays are multiplied with, and from where."""

    factor: float = 1.0
    seek: Seek = Seek()


@dataclass(frozen=True, slots=True)
class PlaybackPosition:
    """Where a reader is in the recorded time, in which no time passes between attempts.

    `offset` is in milliseconds and never falls. `attempt` is 0 before the first event.
    """

    attempt: int = 0
    base: int = 0
    first_timestamp: int = 0
    offset: int = 0

    def after(self, event: Event) -> PlaybackPosition:
        """Return the position of the next event."""
        if event.attempt != self.attempt:
            return PlaybackPosition(event.attempt, self.offset, event.timestamp, self.offset)
        offset = max(self.offset, self.base + event.timestamp - self.first_timestamp)
        return PlaybackPosition(self.attempt, self.base, self.first_timestamp, offset)


@dataclass(frozen=True, slots=True)
class Bookmark:
    """Where a stream can be resumed: after its cursor, whose position is known. The default is its start."""

    cursor: str = ""
    position: PlaybackPosition = PlaybackPosition()


class Bookmarks:
    """The places to which a reader can return, in the order of the recorded time."""

    def __init__(self) -> None:
        self._kept = [Bookmark()]

    def add(self, bookmark: Bookmark) -> None:
        """Keep a bookmark, unless one of the same moment or a later one is kept already."""
        if bookmark.position.offset > self._kept[-1].position.offset:
            self._kept.append(bookmark)

    def before(self, offset: int) -> Bookmark:
        """Return the last bookmark before a moment, so that every event of that moment is read again."""
        found = bisect_left(self._kept, offset, key=lambda kept: kept.position.offset)
        return self._kept[max(0, found - 1)]


class Tempo:
    """Which recorded moment belongs to which instant, as somebody pauses, seeks and changes the speed.

    Moments that are late are due at once, and do not delay those after them. Events before `skip_before` are
    not to be shown.
    """

    def __init__(self, factor: float, *, begin_at: int = 0) -> None:
        self._factor = factor
        self._offset = begin_at
        self._since: int | None = None
        self.paused = False
        self.skip_before = begin_at

    @property
    def mode(self) -> str:
        """The speed, and whether the playback is paused, as people say it."""
        speed = f"{1 / self._factor:g}x"
        return f"paused, {speed}" if self.paused else speed

    def due_at(self, offset: int, now: int) -> int | None:
        """Return the instant at which a moment is due; None during a pause."""
        if self._since is None:
            self._since = now
        return None if self.paused else self._since + round((offset - self._offset) * self._factor)

    def position(self, now: int) -> int:
        """Return the moment that is due now."""
        if self.paused or self._since is None:
            return self._offset
        return self._offset + round((now - self._since) / self._factor)

    def go_on_from(self, offset: int, now: int) -> None:
        """Let this moment be due now."""
        self._offset, self._since = offset, now

    def seek(self, offset: int, now: int) -> None:
        """Go to a moment; what is before it is not to be shown."""
        self.skip_before = max(0, offset)
        self.go_on_from(self.skip_before, now)

    def pause_or_resume(self, now: int) -> None:
        """Pause, or end the pause."""
        self.go_on_from(self.position(now), now)
        self.paused = not self.paused

    def change_speed(self, times: float, now: int) -> None:
        """Go on so many times as fast, within 1/16 and 64 times the recorded speed."""
        self.go_on_from(self.position(now), now)
        self._factor = min(_SLOWEST, max(_FASTEST, self._factor / times))


async def measure_recording(batches: AsyncGenerator[list[Event], None]) -> int:
    """Return how many milliseconds the events of a stream span; it is closed at the end."""
    position = PlaybackPosition()
    async with aclosing(batches):
        async for events in batches:
            for event in events:
                position = position.after(event)
    return position.offset
