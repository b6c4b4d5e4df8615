"""When a generation worker polls again: after an empty poll, and after one that failed."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import cast

import pytest
from structlog.testing import capture_logs

from airunner.config import load_settings
from airunner.domain.errors import Unavailable
from airunner.generation.sessions import SessionTable
from airunner.generation.source import GenerationSource
from airunner.generation.start import options_of
from airunner.queues.memory import MemoryQueue
from airunner.queues.messages import NewMessage
from airunner.testing.clock import ManualClock
from tests.support.consumers import turns
from tests.support.generation import registry

SESSION_ID = "00000000-0000-4000-8000-000000000001"


class Sessions:
    """Sessions of a database that may be away."""

    error: Exception | None = None

    async def answers(self) -> None:
        if self.error:
            raise self.error


def make_source(clock: ManualClock, sessions: Sessions, idle_seconds: float) -> GenerationSource:
    queue = MemoryQueue(clock)
    return GenerationSource(
        queue,
        cast("SessionTable", sessions),
        registry(paint=lambda: None),
        clock=clock,
        visibility_seconds=120,
        wait_seconds=0,
        idle_seconds=idle_seconds,
    )


async def seconds_of_poll(source: GenerationSource, clock: ManualClock) -> float:
    """Return how long the clock has to go on until a poll is over that brings nothing."""
    polling, started_at = asyncio.ensure_future(source.receive(3)), clock.monotonic()
    await turns()
    while not polling.done():
        clock.advance(0.5)
        await turns()
    assert not polling.result()
    return (clock.monotonic() - started_at) / 1000


@pytest.mark.parametrize(("idle_seconds", "paused"), [(0.0, 0.0), (2.5, 2.5)])
async def test_the_idle_delay_follows_an_empty_poll(idle_seconds: float, paused: float) -> None:
    clock = ManualClock()
    source = make_source(clock, Sessions(), idle_seconds)
    assert await seconds_of_poll(source, clock) == paused
    body = json.dumps({"id": SESSION_ID, "name": "paint", "payload": {}})
    await source._queue.send([NewMessage(body=body)])
    # What is there is handed on at once.
    (delivery,) = await source.receive(3)
    assert delivery.body.value.id == SESSION_ID


@pytest.mark.parametrize(("idle_seconds", "paused"), [(0.0, 1.0), (0.5, 1.0), (2.5, 2.5)])
@pytest.mark.parametrize("error", [Unavailable("away"), RuntimeError("a surprise")])
async def test_after_a_failure_it_pauses_for_a_second_or_the_idle_delay(
    error: Exception, idle_seconds: float, paused: float
) -> None:
    clock, sessions = ManualClock(), Sessions()
    source = make_source(clock, sessions, idle_seconds)
    sessions.error = error
    with capture_logs() as logs:
        assert await seconds_of_poll(source, clock) == paused
    assert [entry["event"] for entry in logs] == ["worker.loop_error"]
    assert source.last_answer_at < clock.monotonic()


def test_the_defaults_are_those_that_are_promised(tmp_path: Path) -> None:
    options = options_of(load_settings(environ={}, cwd=tmp_path).settings)
    assert [options.redelivery.delay(tries, 0.0) for tries in (1, 2, 3, 6, 60)] == [30, 60, 120, 900, 900]
    assert options.redelivery.delay(1, 0.99) < 30
    assert (options.visibility_seconds, options.idle_seconds) == (120, 0)
    assert (options.work.deadline_seconds, options.work.lost_seconds) == (900, 900 + 120 + 60)
