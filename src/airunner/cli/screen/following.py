"""Following a job: events as they come, or played back at the wanted pace, into a view."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from airunner.domain.clock import SystemClock
from airunner.reading.playback import Seek, Tempo

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator

    from airunner.cli.screen.event_view import EventView
    from airunner.client import AsyncClient
    from airunner.domain.event import Event
    from airunner.domain.requests import StreamRequest
    from airunner.reading.proof import LogProof

_TICK_SECONDS = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Playback:
    """How to play a job back: what recorded delays are multiplied with, and from where."""

    factor: float = 1.0
    seek: Seek = Seek()


async def follow(client: AsyncClient, request: StreamRequest, view: EventView, proof: LogProof) -> None:
    """Show the events of a job until its stream ends; `proof` sees all that are shown."""
    with _ticking(view):
        async with aclosing(client.monitor(request, on_state=view.connection_changed)) as events:
            async for event in events:
                view.show(event)
                proof.see(event)


async def play(
    client: AsyncClient, request: StreamRequest, view: EventView, proof: LogProof, playback: Playback
) -> bool:
    """Show the events of a job as they happened; tell whether that went on until its stream ended.

    `proof` sees all that were read. At a terminal there are keys to pause, seek, change the speed and quit.
    """
    from airunner.cli.screen.keyboard import open_keyboard
    from airunner.cli.screen.player import Player, Quit, recorded_ms

    def open_stream(cursor: str) -> AsyncGenerator[list[Event], None]:
        wanted = replace(request, cursor=cursor or request.cursor)
        return client.monitor_batches(wanted, on_state=view.connection_changed)

    begin_at = playback.seek.offset
    if playback.seek.share:
        stored = client.monitor_batches(replace(request, follow=False))
        begin_at = playback.seek.within(await recorded_ms(stored))
    tempo = Tempo(playback.factor, begin_at=begin_at)
    player = Player(open_stream, view, proof, clock=SystemClock(), tempo=tempo)
    with _ticking(view), open_keyboard() as keyboard:
        view.mode_changed(tempo.mode)
        try:
            await player.play(keyboard)
        except Quit:
            return False
    return True


@contextmanager
def _ticking(view: EventView) -> Iterator[None]:
    """Let time pass for a view, and finish it at the end."""
    ticking = asyncio.create_task(_tick(view, SystemClock()))
    try:
        yield
    finally:
        ticking.cancel()
        view.finish()


async def _tick(view: EventView, clock: SystemClock) -> None:
    while True:
        await clock.sleep(_TICK_SECONDS)
        view.tick(clock.now())
