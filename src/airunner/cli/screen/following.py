"""Following a job: events as they come, or played back at the wanted pace, into a view."""

from __future__ import annotations

from contextlib import aclosing, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from airunner.domain.clock import SystemClock
from airunner.reading.playback import Tempo, measure_recording

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator

    from airunner.cli.screen.event_view import EventView
    from airunner.client import AsyncClient
    from airunner.domain.clock import Clock, Timer
    from airunner.domain.event import Event
    from airunner.domain.requests import StreamRequest
    from airunner.reading.playback import Playback
    from airunner.reading.proof import LogProof

_TICK_MS: Final = 200


async def follow(client: AsyncClient, request: StreamRequest, view: EventView, proof: LogProof) -> None:
    """Show the events of a job until its stream ends; `proof` sees all that are shown."""
    with ticking(view, SystemClock()):
        async with aclosing(client.monitor(request, on_state=view.connection_changed)) as events:
            async for event in events:
                view.show(event)
                proof.see(event)


async def play(
    client: AsyncClient, request: StreamRequest, view: EventView, proof: LogProof, playback: Playback
) -> bool:
    """Show the events of a job as they happened; return whether that went on until its stream ended.

    `proof` sees all that were read. At a terminal there are keys to pause, seek, change the speed and quit.
    """
    from airunner.cli.screen.keyboard import open_keyboard
    from airunner.cli.screen.player import Player, Quit

    def open_stream(cursor: str) -> AsyncGenerator[list[Event], None]:
        wanted = replace(request, cursor=cursor or request.cursor)
        return client.monitor_batches(wanted, on_state=view.connection_changed)

    begin_at = playback.seek.offset
    if playback.seek.share:
        stored = client.monitor_batches(replace(request, follow=False))
        begin_at = playback.seek.within(await measure_recording(stored))
    clock, tempo = SystemClock(), Tempo(playback.factor, begin_at=begin_at)
    player = Player(open_stream, view, proof, clock=clock, tempo=tempo)
    with ticking(view, clock), open_keyboard() as keyboard:
        view.mode_changed(tempo.mode)
        try:
            await player.play(keyboard)
        except Quit:
            return False
    return True


@contextmanager
def ticking(view: EventView, clock: Clock) -> Iterator[None]:
    """Let time pass for a view, a few times a second, and finish it at the end."""
    ticker = _Ticker(view, clock)
    try:
        yield
    finally:
        ticker.stop()
        view.finish()


class _Ticker:
    """Ticks until it is stopped, or until the view cannot be drawn any more."""

    def __init__(self, view: EventView, clock: Clock) -> None:
        self._view = view
        self._clock = clock
        self._next = self._schedule()

    def stop(self) -> None:
        self._next.cancel()

    def _schedule(self) -> Timer:
        return self._clock.call_at(self._clock.now() + _TICK_MS, self._tick)

    def _tick(self) -> None:
        try:
            self._view.tick(self._clock.now())
        except OSError:
            # The terminal is gone; whoever shows the next event is told so.
            return
        self._next = self._schedule()
