"""Playing back: which moment is due when, and what the keys do, on a clock that stands still."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from airunner.cli.playback_options import choose_factor, parse_seek
from airunner.cli.screen.following import ticking
from airunner.cli.screen.keyboard import Key, KeyDecoder
from airunner.cli.screen.player import Player, Quit
from airunner.client import ConnectionState, LogProof, VerdictKind
from airunner.domain.errors import InvalidArgument, Unavailable
from airunner.domain.event import Event, Output, Position
from airunner.reading.playback import (
    Bookmark,
    Bookmarks,
    PlaybackPosition,
    Seek,
    Tempo,
    measure_recording,
)
from airunner.testing.clock import ManualClock
from airunner.testing.conditions import until


def event(sequence: int, seconds: float, attempt: int = 1) -> Event:
    return Event(
        sequence=sequence,
        timestamp=1_000_000 + round(seconds * 1000),
        data=Output(b"line %d\n" % sequence),
        attempt=attempt,
        cursor=Position(attempt, sequence).cursor,
    )


# One event every five seconds, in batches of three.
EVENTS = [event(number, 5.0 * (number - 1)) for number in range(1, 25)]


@dataclass
class Screen:
    """Remembers what was shown, and when."""

    clock: ManualClock
    began: int = 0
    shown: list[tuple[float, int]] = field(default_factory=list)
    jumps: list[str] = field(default_factory=list)
    mode: str = ""
    offsets: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.began = self.clock.now()

    @property
    def sequences(self) -> list[int]:
        return [sequence for _, sequence in self.shown]

    def show(self, event: Event) -> None:
        self.shown.append(((self.clock.now() - self.began) / 1000, event.sequence))

    def tick(self, now: int) -> None: ...
    def connection_changed(self, state: ConnectionState, reason: str) -> None: ...
    def finish(self) -> None: ...

    def mode_changed(self, mode: str) -> None:
        self.mode = mode

    def jumped(self, to: str) -> None:
        self.jumps.append(to)

    def played_to(self, offset: int) -> None:
        self.offsets.append(offset)


class TickedView(Screen):
    """Counts its ticks; all of them raise the error, if there is one."""

    def __init__(self, error: OSError | None = None) -> None:
        super().__init__(ManualClock())
        self.ticks: list[int] = []
        self.finished = False
        self._error = error

    def tick(self, now: int) -> None:
        self.ticks.append(now)
        if self._error:
            raise self._error

    def finish(self) -> None:
        self.finished = True


class PressedKeys:
    """A keyboard that a test presses."""

    def __init__(self) -> None:
        self._keys: deque[Key] = deque()
        self._pressed = asyncio.Event()

    def press(self, *keys: Key) -> None:
        self._keys += keys
        self._pressed.set()

    def take(self) -> Key | None:
        if self._keys:
            return self._keys.popleft()
        self._pressed.clear()
        return None

    async def wait(self) -> None:
        await self._pressed.wait()


@dataclass
class Stage:
    """A player at work; time passes only when the test says so."""

    clock: ManualClock
    screen: Screen
    keys: PressedKeys
    proof: LogProof
    opened: list[str]
    playing: asyncio.Task[None]

    async def pass_time(self, seconds: float) -> None:
        for _ in range(round(seconds * 20)):
            await settle()
            self.clock.advance(0.05)
        await settle()

    async def press(self, *keys: Key) -> None:
        self.keys.press(*keys)
        await settle()


async def settle() -> None:
    for _ in range(30):
        await asyncio.sleep(0)


@asynccontextmanager
async def stage(
    events: Sequence[Event] = EVENTS, *, factor: float = 1.0, begin_at: int = 0, live: bool = False
) -> AsyncIterator[Stage]:
    clock = ManualClock()
    opened: list[str] = []

    async def open_stream(cursor: str) -> AsyncGenerator[list[Event], None]:
        opened.append(cursor)
        after = Position.from_cursor(cursor) if cursor else Position(0, 0)
        rest = [each for each in events if Position(each.attempt, each.sequence) > after]
        for first in range(0, len(rest), 3):
            yield rest[first : first + 3]
        if live:
            await asyncio.get_running_loop().create_future()

    screen, keys, proof = Screen(clock), PressedKeys(), LogProof()
    tempo = Tempo(factor, begin_at=begin_at)
    player = Player(open_stream, screen, proof, clock=clock, tempo=tempo)
    playing = asyncio.create_task(player.play(keys))
    await settle()
    try:
        yield Stage(clock, screen, keys, proof, opened, playing)
    finally:
        playing.cancel()
        await asyncio.wait((playing,))


@pytest.mark.parametrize("factor", [1.0, 2.0, 0.5, 0.25])
async def test_the_recorded_distances_are_kept(factor: float) -> None:
    async with stage(EVENTS[:4], factor=factor) as play:
        await play.pass_time(16 * factor)
        assert play.screen.shown == [(5 * factor * number, number + 1) for number in range(4)]
        assert play.playing.done()


async def test_no_time_passes_between_attempts() -> None:
    events = [event(1, 0), event(2, 1), event(1, 900, attempt=2), event(2, 902, attempt=2)]
    async with stage(events) as play:
        await play.pass_time(4)
        assert play.screen.shown == [(0, 1), (1, 2), (1, 1), (3, 2)]


async def test_an_attempt_does_not_inherit_the_lateness_of_the_one_before() -> None:
    events = [event(1, 0), event(2, 1), event(1, 900, attempt=2), event(2, 902, attempt=2)]
    async with stage(events) as play:
        play.clock.advance(30)
        await play.pass_time(3)
        assert play.screen.shown == [(0, 1), (30, 2), (30, 1), (32, 2)]


async def test_what_is_late_waits_no_more_and_delays_nothing() -> None:
    async with stage([event(1, 0), event(2, 5), event(3, 20)]) as play:
        play.clock.advance(12)
        await settle()
        assert play.screen.shown == [(0, 1), (12, 2)]
        await play.pass_time(8.5)
        assert play.screen.shown[-1] == (20, 3)


async def test_a_playback_may_begin_later() -> None:
    async with stage(begin_at=52_000) as play:
        assert play.screen.shown == []
        await play.pass_time(9)
        assert play.screen.shown == [(3, 12), (8, 13)]
        assert play.screen.offsets == [52_000, 55_000, 60_000]


async def test_a_playback_that_begins_behind_the_end_shows_nothing() -> None:
    async with stage(begin_at=10**9) as play:
        await until(play.playing.done)
        assert play.screen.shown == []


async def test_a_pause_moves_everything_after_it() -> None:
    async with stage() as play:
        await play.pass_time(7)
        await play.press(Key.PAUSE)
        assert play.screen.mode == "paused, 1x"
        await play.pass_time(100)
        assert play.screen.sequences == [1, 2]
        await play.press(Key.PAUSE)
        assert play.screen.mode == "1x"
        await play.pass_time(3.5)
        assert play.screen.shown[-1] == (110, 3)


async def test_the_speed_changes_from_here_on() -> None:
    async with stage() as play:
        await play.pass_time(5)
        await play.press(Key.FASTER, Key.FASTER)
        assert play.screen.mode == "4x"
        await play.pass_time(3)
        assert play.screen.shown == [(0, 1), (5, 2), (6.25, 3), (7.5, 4)]
        await play.press(*[Key.SLOWER] * 3)
        assert play.screen.mode == "0.5x"


async def test_the_speed_has_bounds() -> None:
    async with stage() as play:
        await play.press(*[Key.FASTER] * 20)
        assert play.screen.mode == "64x"
        await play.press(*[Key.SLOWER] * 20)
        assert play.screen.mode == "0.0625x"


async def test_forward_skips_ten_seconds() -> None:
    async with stage() as play:
        await play.pass_time(7)
        await play.press(Key.FORWARD)
        assert play.screen.jumps == ["17 s"]
        await play.pass_time(9)
        assert play.screen.shown == [(0, 1), (5, 2), (10, 5), (15, 6)]
        assert play.opened == [""]


async def test_back_shows_ten_seconds_again() -> None:
    async with stage() as play:
        await play.pass_time(52)
        assert play.screen.sequences == list(range(1, 12))
        await play.press(Key.BACK)
        assert play.screen.jumps == ["42 s"]
        await play.pass_time(4)
        assert play.screen.sequences == [*range(1, 12), 10]
        # Not from the beginning, but from the last batch before the moment.
        assert play.opened == ["", Position(1, 9).cursor]
        await play.pass_time(70)
        assert play.screen.sequences == [*range(1, 12), *range(10, 25)]
        assert play.playing.done()


async def test_back_to_the_very_moment_of_an_event_shows_it() -> None:
    async with stage() as play:
        await play.pass_time(50)
        await play.press(Key.BACK)
        assert play.screen.jumps == ["40 s"]
        await play.pass_time(1)
        assert play.screen.sequences == [*range(1, 12), 9]


async def test_back_at_the_beginning_is_the_beginning() -> None:
    async with stage() as play:
        await play.pass_time(7)
        await play.press(Key.BACK)
        assert play.screen.jumps == ["0.0 s"]
        assert play.screen.sequences == [1, 2, 1]


async def test_back_and_forward_while_paused() -> None:
    async with stage() as play:
        await play.pass_time(22)
        await play.press(Key.PAUSE)
        await play.press(Key.BACK, Key.FORWARD)
        await play.press(Key.FORWARD)
        await play.pass_time(60)
        assert play.screen.sequences == [1, 2, 3, 4, 5]
        await play.press(Key.PAUSE)
        await play.pass_time(4)
        assert play.screen.sequences == [1, 2, 3, 4, 5, 8]


async def test_keys_work_while_a_live_job_is_silent() -> None:
    async with stage(EVENTS[:3], live=True) as play:
        await play.pass_time(200)
        assert play.screen.sequences == [1, 2, 3]
        await play.press(Key.BACK)
        # Ten seconds before the last event, however long that was ago.
        assert play.screen.jumps == ["0.0 s"]
        await play.pass_time(11)
        assert play.screen.sequences == [1, 2, 3, 1, 2, 3]
        await play.press(Key.QUIT)
        with pytest.raises(Quit):
            await play.playing


@pytest.mark.parametrize("before", [[], [Key.PAUSE]], ids=["playing", "paused"])
async def test_quit_ends_at_once(before: list[Key]) -> None:
    async with stage() as play:
        await play.press(*before)
        await play.press(Key.QUIT)
        with pytest.raises(Quit):
            await play.playing
        assert len(asyncio.all_tasks()) == 1


async def test_the_proof_sees_each_event_once_wherever_one_goes() -> None:
    async with stage(EVENTS[:12], begin_at=20_000) as play:
        await play.pass_time(11)
        await play.press(Key.BACK, Key.BACK)
        await play.pass_time(100)
        assert play.playing.done()
        assert play.proof.verdict().kind is VerdictKind.UNFINISHED
        assert play.proof.verdict().events == 12


async def test_an_error_of_the_stream_is_raised() -> None:
    async def broken(_: str) -> AsyncGenerator[list[Event], None]:
        yield EVENTS[:1]
        raise Unavailable("away")

    clock = ManualClock()
    player = Player(broken, Screen(clock), LogProof(), clock=clock, tempo=Tempo(1.0))
    with pytest.raises(Unavailable, match="away"):
        await player.play(PressedKeys())


async def test_the_recorded_time_is_that_of_all_attempts() -> None:
    async def batches() -> AsyncGenerator[list[Event], None]:
        yield [event(1, 0), event(2, 3)]
        yield [event(1, 900, attempt=2), event(2, 905, attempt=2)]

    assert await measure_recording(batches()) == 8000


def test_recorded_time_never_runs_backwards() -> None:
    position = PlaybackPosition()
    for seconds in (0, 5, 4):
        position = position.after(event(1, seconds))
    assert position.offset == 5000


def test_a_return_goes_to_the_last_bookmark_before_the_moment() -> None:
    bookmarks = Bookmarks()
    for number, offset in enumerate((0, 10, 10, 30), start=1):
        bookmarks.add(Bookmark(f"after {number}", PlaybackPosition(offset=offset)))
    found = {offset: bookmarks.before(offset).cursor for offset in (0, 10, 11, 30, 31, 99)}
    assert found == {0: "", 10: "", 11: "after 2", 30: "after 2", 31: "after 4", 99: "after 4"}


async def test_a_view_ticks_until_it_is_finished() -> None:
    clock, view = ManualClock(), TickedView()
    with ticking(view, clock):
        clock.advance(0.5)
    clock.advance(0.5)
    assert (len(view.ticks), view.finished) == (2, True)


async def test_a_view_that_cannot_be_drawn_is_not_ticked_again_but_finished() -> None:
    clock, view = ManualClock(), TickedView(error=BrokenPipeError())
    with ticking(view, clock):
        clock.advance(5)
    assert (len(view.ticks), view.finished) == (1, True)


@pytest.mark.parametrize(
    ("text", "seek"),
    [
        ("90", Seek(90_000)),
        ("1.5", Seek(1_500)),
        ("45s", Seek(45_000)),
        ("1m30s", Seek(90_000)),
        ("2m", Seek(120_000)),
        ("1h", Seek(3_600_000)),
        ("1h2m3.5s", Seek(3_723_500)),
        ("50%", Seek(share=0.5)),
        ("", Seek()),
    ],
)
def test_a_place_can_be_written_in_many_ways(text: str, seek: Seek) -> None:
    assert parse_seek(text) == seek


@pytest.mark.parametrize("text", ["half", "-5", "101%", "1s30m", "5 s", "%", "1:30"])
def test_a_place_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match="--seek must be"):
        parse_seek(text)


def test_a_share_is_of_what_was_recorded() -> None:
    assert Seek(share=0.25).within(8000) == 2000
    assert Seek(500).within(8000) == 500


@pytest.mark.parametrize(
    ("received", "keys"),
    [
        ([b" +-q"], [Key.PAUSE, Key.FASTER, Key.SLOWER, Key.QUIT]),
        ([b"\x1b[D\x1b[C"], [Key.BACK, Key.FORWARD]),
        ([b"\x1bOD\x1bOC"], [Key.BACK, Key.FORWARD]),
        ([b"\x1b", b"[", b"D"], [Key.BACK]),
        ([b"\x1b[1;5D", b"\x1b[A", b"\x1b[3~", b"\x1bq", b"x"], []),
        ([b"\x1b[", b"1;5Cq"], [Key.QUIT]),
        ([b"=Q"], [Key.FASTER, Key.QUIT]),
    ],
)
def test_what_a_terminal_sends_becomes_keys(received: list[bytes], keys: list[Key]) -> None:
    decoder = KeyDecoder()
    assert [key for piece in received for key in decoder.feed(piece)] == keys


@pytest.mark.parametrize(
    ("options", "factor"),
    [
        ({}, 0.0),
        ({"fast": True}, 0.0),
        ({"playback": True}, 1.0),
        ({"slow": True}, 2.0),
        ({"speed": "2x"}, 0.5),
        ({"speed": "4", "playback": True}, 0.25),
        ({"speed": "0.5x"}, 2.0),
        ({"seek": "10"}, 1.0),
        ({"seek": "10", "slow": True}, 2.0),
    ],
)
def test_options_choose_the_pace(options: dict[str, Any], factor: float) -> None:
    assert chosen(options) == factor


@pytest.mark.parametrize(
    "options",
    [
        {"fast": True, "slow": True},
        {"fast": True, "seek": "10"},
        {"slow": True, "speed": "2x"},
        {"speed": "0"},
        {"speed": "-1x"},
        {"speed": "quick"},
        {"speed": "1e9"},
    ],
)
def test_a_pace_that_makes_no_sense_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        chosen(options)


def chosen(options: dict[str, Any]) -> float:
    return choose_factor(**{"playback": False, "slow": False, "speed": "", "fast": False, **options})
