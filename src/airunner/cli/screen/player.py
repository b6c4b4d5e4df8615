"""Playing a job back: its events at their recorded pace, under the keys of whoever watches."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

from airunner.cli.screen.keyboard import Key
from airunner.domain.clock import wait_until
from airunner.reading.instants import format_duration
from airunner.reading.playback import Bookmark, Bookmarks

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine
    from typing import Any, TypeAlias

    from airunner.cli.screen.event_view import EventView
    from airunner.cli.screen.keyboard import Keyboard
    from airunner.domain.clock import Clock
    from airunner.domain.event import Event
    from airunner.reading.playback import Tempo
    from airunner.reading.proof import LogProof

    # Opens the stream after a cursor; an empty one is the beginning of what was asked for.
    OpenStream: TypeAlias = Callable[[str], AsyncGenerator[list[Event], None]]

SEEK_MS: Final = 10_000
_TIMES: Final = {Key.FASTER: 2.0, Key.SLOWER: 0.5}


class Quit(Exception):
    """Whoever watches has seen enough."""


class _SeekBack(Exception):
    """What is wanted lies before what was read."""


class Player:
    """Shows events when they are due. Going back opens the stream anew, so nothing is kept of what was shown.

    `proof` sees every event that was read, once and in order, also those that are skipped.
    """

    def __init__(
        self, open_stream: OpenStream, view: EventView, proof: LogProof, *, clock: Clock, tempo: Tempo
    ) -> None:
        self._open_stream = open_stream
        self._view = view
        self._proof = proof
        self._clock = clock
        self._tempo = tempo
        self._bookmarks = Bookmarks()
        # Where the last event that was read ends.
        self._last = Bookmark()
        # The moment of the event that is waited for.
        self._pending: int | None = None
        self._proven = (0, 0)

    async def play(self, keyboard: Keyboard) -> None:
        """Return when the stream has ended and all of it was shown; Quit when somebody wants that earlier."""
        self._view.played_to(self._tempo.skip_before)
        while True:
            try:
                async with aclosing(self._open_stream(self._last.cursor)) as batches:
                    while events := await self._result_of(_next(batches), keyboard):
                        await self._play_batch(keyboard, events)
                return
            except _SeekBack:
                self._pending = None
                self._last = self._bookmarks.before(self._tempo.skip_before)

    async def _play_batch(self, keyboard: Keyboard, events: list[Event]) -> None:
        self._bookmarks.add(self._last)
        for event in events:
            position = self._last.position.after(event)
            self._prove(event)
            if position.offset >= self._tempo.skip_before:
                self._pending = position.offset
                await self._wait(keyboard, event, position.offset)
                self._pending = None
            # A key may have moved the beginning meanwhile.
            if position.offset >= self._tempo.skip_before:
                self._view.played_to(position.offset)
                self._view.show(event)
            self._last = Bookmark(event.cursor, position)

    async def _wait(self, keyboard: Keyboard, event: Event, offset: int) -> None:
        if self._last.position.attempt not in {0, event.attempt}:
            self._tempo.go_on_from(offset, self._clock.now())
        while offset >= self._tempo.skip_before:
            due_at = self._tempo.due_at(offset, self._clock.now())
            if due_at is not None and due_at <= self._clock.now():
                return
            pressed = asyncio.ensure_future(keyboard.wait())
            try:
                if due_at is None:
                    await pressed
                else:
                    await wait_until(self._clock, due_at, pressed)
            finally:
                await _drop(pressed)
            self._apply_keys(keyboard)

    async def _result_of(
        self, work: Coroutine[Any, Any, list[Event] | None], keyboard: Keyboard
    ) -> list[Event] | None:
        """Return what the work does, and apply keys meanwhile."""
        working = asyncio.ensure_future(work)
        try:
            while True:
                pressed = asyncio.ensure_future(keyboard.wait())
                try:
                    await asyncio.wait((working, pressed), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    await _drop(pressed)
                self._apply_keys(keyboard)
                if working.done():
                    return working.result()
        finally:
            await _drop(working)

    def _apply_keys(self, keyboard: Keyboard) -> None:
        while key := keyboard.take():
            now = self._clock.now()
            match key:
                case Key.QUIT:
                    raise Quit
                case Key.PAUSE:
                    self._tempo.pause_or_resume(now)
                case Key.FASTER | Key.SLOWER:
                    self._tempo.change_speed(_TIMES[key], now)
                case Key.FORWARD | Key.BACK:
                    self._seek(SEEK_MS if key is Key.FORWARD else -SEEK_MS, now)
            self._view.mode_changed(self._tempo.mode)

    def _seek(self, by: int, now: int) -> None:
        # Where nothing more is recorded yet, time does not run ahead of the last event.
        read = max(self._last.position.offset, self._tempo.skip_before)
        end = read if self._pending is None else self._pending
        self._tempo.seek(min(self._tempo.position(now), end) + by, now)
        self._view.jumped(format_duration(self._tempo.skip_before))
        self._view.played_to(self._tempo.skip_before)
        if by < 0 and self._last.position.offset >= self._tempo.skip_before:
            raise _SeekBack

    def _prove(self, event: Event) -> None:
        seen = (event.attempt, event.last_sequence)
        if seen > self._proven:
            self._proof.see(event)
            self._proven = seen


async def _next(batches: AsyncGenerator[list[Event], None]) -> list[Event] | None:
    return await anext(batches, None)


async def _drop(task: asyncio.Future[Any]) -> None:
    """End a task whose result nobody wants any more."""
    if not task.done():
        task.cancel()
        await asyncio.wait((task,))
    if not task.cancelled():
        task.exception()
