"""Following a job: events as they come, at the wanted pace, into a view."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

from airunner.cli.playback import Pace
from airunner.domain.clock import SystemClock

if TYPE_CHECKING:
    from airunner.cli.event_view import EventView
    from airunner.client import AsyncClient
    from airunner.domain.completeness import LogProof
    from airunner.services.api import StreamRequest

_TICK_SECONDS = 0.2


async def follow(
    client: AsyncClient, request: StreamRequest, view: EventView, proof: LogProof, factor: float = 0.0
) -> None:
    """Show the events of a job until its stream ends; `proof` sees all that are shown."""
    clock = SystemClock()
    pace = Pace(clock, factor)
    ticking = asyncio.create_task(_tick(view, clock))
    try:
        async with aclosing(client.monitor(request, on_state=view.connection_changed)) as events:
            async for event in events:
                await pace.wait_for(event)
                view.show(event)
                proof.see(event)
    finally:
        ticking.cancel()
        view.finish()


async def _tick(view: EventView, clock: SystemClock) -> None:
    while True:
        await clock.sleep(_TICK_SECONDS)
        view.tick(clock.now())
