"""Fetching ahead: how far, in which order, and that nothing of it is left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import pytest

from airunner.client.connection import CallRules, ServiceConnection
from airunner.client.monitor import ConnectionState, Monitor, MonitorOptions
from airunner.client.prefetch import WAITED_FOR, PrefetchBounds, fetch_ahead
from airunner.codec.events import encode_event
from airunner.codec.gen.job.v1 import job_pb2 as pb
from airunner.codec.methods import STREAM_JOB_EVENT_BATCHES
from airunner.domain.errors import NotFound, Unavailable
from airunner.domain.event import Event
from airunner.domain.job import Job
from airunner.domain.requests import StreamRequest
from airunner.domain.retry import RetryPolicy
from airunner.testing.clock import ManualClock
from airunner.testing.conditions import until
from airunner.testing.factories import make_batch

JOB_ID = "0" * 32


@dataclass
class Source:
    """Hands out numbers and counts them; then ends, fails, or waits for ever."""

    numbers: int
    error: BaseException | None = None
    endless: bool = False
    handed_out: int = 0
    closed: bool = False

    async def open(self, size: int) -> AsyncGenerator[tuple[int, int], None]:
        try:
            for number in range(self.numbers):
                self.handed_out += 1
                yield number, size
            if self.error:
                raise self.error
            if self.endless:
                await asyncio.get_running_loop().create_future()
        finally:
            self.closed = True


def ahead(source: Source, *, items: int = 1000, size: int = 1) -> AsyncGenerator[int, None]:
    return fetch_ahead(source.open(size), PrefetchBounds(items=items, bytes=1000))


async def settle() -> None:
    """Give every task that can go on more turns than it needs."""
    for _ in range(50):
        await asyncio.sleep(0)


def other_tasks() -> set[asyncio.Task[Any]]:
    return asyncio.all_tasks() - {asyncio.current_task()}


@pytest.mark.parametrize(
    ("items", "size", "kept"), [(5, 1, 5), (1000, 100, 10), (1000, 999, 2), (3, 5000, 1)]
)
async def test_a_caller_who_takes_nothing_stops_the_fetching(items: int, size: int, kept: int) -> None:
    source = Source(100)
    async with aclosing(ahead(source, items=items, size=size)) as fetched:
        assert await anext(fetched) == 0
        await settle()
        assert source.handed_out == 1 + kept
        assert await anext(fetched) == 1
        await settle()
        assert source.handed_out == 2 + kept


async def test_a_slow_caller_sees_everything_in_order() -> None:
    seen = []
    async with aclosing(ahead(Source(100), items=7)) as fetched:
        async for number in fetched:
            await settle()
            seen.append(number)
    assert seen == list(range(100))


async def test_nothing_is_fetched_before_somebody_asks() -> None:
    source = Source(3)
    fetched = ahead(source)
    await settle()
    assert source.handed_out == 0
    await fetched.aclose()
    assert not other_tasks()


async def numbers_of(queue: asyncio.Queue[int]) -> AsyncGenerator[tuple[int, int], None]:
    while True:
        yield await queue.get(), 1


async def test_a_caller_who_waits_needs_no_task() -> None:
    queue, seen = asyncio.Queue[int](), list[int]()

    async def consume() -> None:
        async with aclosing(fetch_ahead(numbers_of(queue), PrefetchBounds())) as fetched:
            async for number in fetched:
                seen.append(number)

    consuming = asyncio.create_task(consume())
    for number in range(5):
        await settle()
        assert other_tasks() == {consuming}
        queue.put_nowait(number)
    await until(lambda: seen == [0, 1, 2, 3, 4])
    consuming.cancel()
    await asyncio.wait([consuming])


async def test_a_caller_who_no_longer_waits_is_noticed_after_some_items() -> None:
    begun, source, ahead_by = asyncio.Event(), Source(100), list[int]()

    async def numbers() -> AsyncGenerator[tuple[int, int], None]:
        yield -1, 1
        await begun.wait()
        async with aclosing(source.open(1)) as rest:
            async for item in rest:
                yield item

    async def consume() -> None:
        async with aclosing(fetch_ahead(numbers(), PrefetchBounds(items=5))) as fetched:
            async for number in fetched:
                if number >= 0:
                    await settle()
                    ahead_by.append(source.handed_out - number - 1)

    consuming = asyncio.create_task(consume())
    # It is found waiting for the second item.
    await settle()
    begun.set()
    await consuming
    assert ahead_by[: WAITED_FOR + 1] == [*[0] * WAITED_FOR, 5]


async def test_the_task_ends_when_it_is_not_ahead() -> None:
    queue = asyncio.Queue[int]()
    async with aclosing(fetch_ahead(numbers_of(queue), PrefetchBounds())) as fetched:
        queue.put_nowait(0)
        assert await anext(fetched) == 0
        await settle()
        (fetching,) = other_tasks()
        waiting = asyncio.create_task(anext(fetched))
        await settle()
        queue.put_nowait(1)
        assert await waiting == 1
        assert fetching.done()


async def test_an_error_comes_after_what_was_fetched_before_it() -> None:
    source = Source(10, error=NotFound("gone"))
    fetched = ahead(source)
    assert await anext(fetched) == 0
    await settle()
    assert source.closed, "the error is known by now"
    assert [await anext(fetched) for _ in range(9)] == list(range(1, 10))
    with pytest.raises(NotFound, match="gone"):
        await anext(fetched)
    assert not other_tasks()


@pytest.mark.parametrize("numbers", [1, 100], ids=["waiting for the source", "waiting for room"])
async def test_leaving_early_leaves_no_task(numbers: int) -> None:
    source = Source(numbers, endless=True)
    fetched = ahead(source, items=5)
    assert await anext(fetched) == 0
    await settle()
    assert other_tasks()
    await fetched.aclose()
    assert not other_tasks()
    assert source.closed


async def test_a_cancelled_caller_leaves_no_task() -> None:
    source = Source(0, endless=True)

    async def consume() -> None:
        async for _ in ahead(source):
            pass

    consuming = asyncio.create_task(consume())
    await settle()
    consuming.cancel()
    with pytest.raises(asyncio.CancelledError):
        await consuming
    assert not other_tasks()
    assert source.closed


async def test_a_generator_that_is_dropped_ends_its_task() -> None:
    source = Source(100, endless=True)
    fetched = ahead(source, items=5)
    await anext(fetched)
    del fetched
    await until(lambda: source.closed and not other_tasks())


async def test_whoever_waits_hears_that_the_task_was_cancelled() -> None:
    fetched = ahead(Source(1, endless=True))
    await anext(fetched)
    await settle()
    (fetching,) = other_tasks()
    waiting = asyncio.create_task(anext(fetched))
    await settle()
    fetching.cancel()
    with pytest.raises(Unavailable, match="cancelled"):
        await waiting


@dataclass
class ScriptedServer:
    """Stands for a server: each stream sends batches of ten lines from the cursor on.

    It breaks after `breaks_after` batches of a stream, and falls silent at the end unless it `ends`.
    """

    batches: int
    ends: bool = True
    breaks_after: int | None = None
    cursors: list[str] = field(default_factory=list)
    sent: int = 0

    async def call(self, method: Any, request: Any, *, timeout_ms: int) -> Any:
        raise NotImplementedError

    async def stream(self, method: Any, request: Any) -> AsyncGenerator[list[Any], None]:
        self.cursors.append(request.cursor)
        done = int(request.cursor.partition("-")[2] or "0", 16) // 10
        for number in range(done, self.batches):
            if self.breaks_after is not None and number >= done + self.breaks_after:
                raise Unavailable("broken")
            self.sent += 1
            yield [_message(make_batch(number * 10 + 1, number * 10 + 10))]
        if not self.ends:
            await asyncio.get_running_loop().create_future()


def _message(event: Event) -> pb.StreamJobEventBatchesResponse:
    return pb.StreamJobEventBatchesResponse(
        attempt=1,
        first_sequence=event.sequence,
        last_sequence=event.last_sequence,
        event=encode_event(event).payload,
    )


WIRE_BYTES = len(_message(make_batch(1, 10)).event)


def watch(server: ScriptedServer, options: MonitorOptions) -> AsyncGenerator[list[Event], None]:
    async def find_job(_: str) -> Job:
        raise AssertionError

    rules = CallRules(clock=ManualClock(), retry=RetryPolicy(first_seconds=0, jitter=0))
    connection = ServiceConnection([server], rules)
    return Monitor(
        connection, STREAM_JOB_EVENT_BATCHES, find_job, StreamRequest(job_id=JOB_ID), options
    ).batches()


@pytest.mark.parametrize(
    ("bounds", "kept"),
    [(PrefetchBounds(), 64), (PrefetchBounds(items=3), 3), (PrefetchBounds(bytes=WIRE_BYTES * 3 // 2), 2)],
    ids=["by default", "batches", "bytes"],
)
async def test_the_monitor_fetches_within_its_bounds(bounds: PrefetchBounds, kept: int) -> None:
    server = ScriptedServer(200)
    async with aclosing(watch(server, MonitorOptions(ahead=bounds))) as batches:
        await anext(batches)
        await settle()
        await settle()
        assert server.sent == 1 + kept


async def test_the_monitor_resumes_after_what_it_has_fetched() -> None:
    """Not after what was consumed: else batches would come twice."""
    server, seen = ScriptedServer(20, breaks_after=3), []
    async with aclosing(watch(server, MonitorOptions(ahead=PrefetchBounds(items=5)))) as batches:
        async for events in batches:
            await settle()
            seen += [event.sequence for event in events]
    assert seen == list(range(1, 201))
    assert server.sent == 20
    assert server.cursors == ["", *(f"1-{number * 10:x}" for number in range(3, 20, 3))]


async def test_a_slow_caller_is_not_a_silent_server() -> None:
    states: list[ConnectionState] = []
    server = ScriptedServer(10, ends=False)
    options = MonitorOptions(
        ahead=PrefetchBounds(items=2), silence_seconds=0.02, on_state=lambda state, _: states.append(state)
    )
    async with aclosing(watch(server, options)) as batches:
        await anext(batches)
        patience = asyncio.get_running_loop().time() + 0.06
        await until(lambda: asyncio.get_running_loop().time() > patience)
        assert states == [ConnectionState.CONNECTED]
        for _ in range(9):
            await anext(batches)
        # Now it is the server who keeps us waiting.
        await until(lambda: ConnectionState.RECONNECTING in states)
