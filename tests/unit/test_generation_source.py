"""The queue of generation as a source: when it is polled again, and when a letter counts as sent."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import cast

import pytest
from structlog.testing import capture_logs

from airunner.config import load_settings
from airunner.domain.errors import PermanentFailure, PermissionDenied, Unavailable
from airunner.generation.sessions import SessionTable
from airunner.generation.source import GenerationSource
from airunner.generation.start import options_of
from airunner.generation.verdict import GenerationFailed, GenerationFailure, GenerationSession
from airunner.queues.memory import MemoryQueue
from airunner.queues.messages import Message, NewMessage
from airunner.testing.clock import ManualClock
from tests.support.consumers import turns
from tests.support.generation import registry

SESSION_ID = "00000000-0000-4000-8000-000000000001"
BODY = json.dumps({"id": SESSION_ID, "name": "paint", "payload": {}})


class Sessions:
    """Sessions of a database that may be away; it knows whose letters were sent."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.letters: list[str] = []

    async def answers(self) -> None:
        if self.error:
            raise self.error

    async def note_letter(self, session_id: str) -> None:
        self.letters.append(session_id)


class ClosedBox(MemoryQueue):
    """A queue whose dead-letter queue takes nothing for a while."""

    is_closed = True

    async def dead_letter(self, message: Message, failure: PermanentFailure) -> None:
        if self.is_closed:
            raise PermissionDenied("no right to send")
        await super().dead_letter(message, failure)


def make_source(
    clock: ManualClock, sessions: Sessions, idle_seconds: float = 0.0, queue: MemoryQueue | None = None
) -> GenerationSource:
    return GenerationSource(
        queue or MemoryQueue(clock),
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
    await source._queue.send([NewMessage(body=BODY)])
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


async def test_a_letter_that_the_queue_refuses_is_sent_with_the_next_delivery() -> None:
    clock, sessions = ManualClock(), Sessions()
    queue = ClosedBox(clock, max_receive_count=5)
    source = make_source(clock, sessions, queue=queue)
    session = GenerationSession(
        id=SESSION_ID, principal="ann", user_id=None, name="paint", request={}, attempts=1, created_at=0
    )
    failed = GenerationFailed(session, GenerationFailure(code="bad", reason="it is bad"), 0)
    await queue.send([NewMessage(body=BODY)])
    (delivery,) = await source.receive(1)
    with capture_logs() as logs:
        await source.dead_letter(delivery, failed)
    assert [entry["event"] for entry in logs] == ["settlement.given_up"]
    # It is not written down as sent: whoever gets the message next sends it.
    assert sessions.letters == []
    queue.is_closed = False
    clock.advance(121)
    (delivery,) = await source.receive(1)
    await source.dead_letter(delivery, failed)
    assert sessions.letters == [SESSION_ID]
    assert queue.dead_letters
    (letter,) = await queue.dead_letters.receive(2)
    assert json.loads(letter.body)["failure"]["code"] == "bad"
    assert not queue._kept


def test_the_defaults_are_those_that_are_promised(tmp_path: Path) -> None:
    options = options_of(load_settings(environ={}, cwd=tmp_path).settings)
    assert [options.redelivery.delay(tries, 0.0) for tries in (1, 2, 3, 6, 60)] == [30, 60, 120, 900, 900]
    assert options.redelivery.delay(1, 0.99) < 30
    assert (options.visibility_seconds, options.idle_seconds) == (120, 0)
    assert (options.work.deadline_seconds, options.work.lost_seconds) == (900, 900 + 120 + 60)
