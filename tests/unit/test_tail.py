"""What was just committed, handed to those who wait behind it: no read, and the same log as the store's."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import replace
from itertools import pairwise

import pytest

from airunner.codec.events import decode_event, encode_events
from airunner.domain.event import Event, EventType, Output, Position, StreamProgress
from airunner.domain.job import JobState
from airunner.domain.requests import CompleteRequest, DequeueRequest, ReleaseRequest, StreamRequest
from airunner.services.composition import Services
from airunner.services.streams.shared_pages import Committed, StreamedPage, Tail
from airunner.stores.memory import MemoryStore
from airunner.stores.records import EventPage, EventQuery
from airunner.testing.clock import ManualClock
from airunner.testing.conditions import until
from airunner.testing.factories import (
    make_batch,
    make_error,
    make_line,
    make_request,
    make_services,
    make_success,
)


class CountingStore(MemoryStore):
    """Counts what is read of events; a ring without a commit is one of another server."""

    reads = 0

    async def read_events(self, query: EventQuery) -> EventPage:
        self.reads += 1
        return await super().read_events(query)


async def settle() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


async def hold(services: Services) -> tuple[str, str]:
    (held,) = await services.jobs.dequeue_jobs(DequeueRequest(queue="q", wait_seconds=0))
    return held.job.job_id, held.task_token


async def begin(services: Services) -> tuple[str, str]:
    await services.jobs.enqueue_jobs([make_request("q", max_attempts=10)])
    return await hold(services)


async def watch(services: Services, request: StreamRequest, seen: list[Event], pause: int = 0) -> None:
    async with aclosing(services.events.stream_events(request)) as events:
        async for event in events:
            seen.append(event)
            for _ in range(pause):
                await asyncio.sleep(0)


@pytest.mark.parametrize("delivers", [True, False])
async def test_a_reader_who_wants_nothing_of_what_comes_hears_that_the_stream_lives(delivers: bool) -> None:
    """Clients take 45 s of silence for the end of a connection, however much others are told meanwhile."""
    clock = ManualClock()
    told_at: list[int] = []
    async with make_services(MemoryStore(clock), clock) as services:
        job_id, token = await begin(services)
        request = StreamRequest(job_id=job_id, event_filter=frozenset({EventType.PROCESS_ERROR}))

        async def read() -> None:
            deliver = (lambda _: True) if delivers else None
            async with aclosing(services.events.stream_pages(request, None, deliver)) as pages:
                async for page in pages:
                    assert page is None
                    told_at.append(clock.monotonic())

        reading = asyncio.create_task(read())
        await until(lambda: len(told_at) == 1)
        for sequence in range(1, 13):
            await services.events.publish_events(token, [make_line(sequence)])
            await settle()
            clock.advance(10)
            await settle()
        reading.cancel()
    gaps = [later - sooner for sooner, later in pairwise(told_at)]
    assert len(gaps) >= 5
    assert max(gaps) <= 25_000


@pytest.mark.parametrize("watchers", [1, 10])
async def test_a_publish_is_not_read_by_those_who_wait_behind_it(watchers: int) -> None:
    clock = ManualClock()
    store = CountingStore(clock)
    async with make_services(store, clock) as services:
        job_id, token = await begin(services)
        logs: list[list[Event]] = [[] for _ in range(watchers)]
        watching = [asyncio.create_task(watch(services, StreamRequest(job_id=job_id), log)) for log in logs]
        await settle()
        # The first has no end of an event before it to continue from; those that follow do.
        await services.events.publish_events(token, [make_line(1)])
        await settle()
        before = store.reads
        for sequence in range(2, 30):
            await services.events.publish_events(token, [make_line(sequence)])
            await settle()
        assert store.reads == before
        assert all([event.sequence for event in log] == list(range(1, 30)) for log in logs)
        await services.jobs.complete_jobs([CompleteRequest(task_token=token, result=make_success())])
        await asyncio.gather(*watching)


async def take_pages(
    services: Services, request: StreamRequest, seen: list[Event], may: Callable[[], bool], pause: int = 0
) -> None:
    """Watch like an endpoint that can write at once, unless it may not."""
    start = await services.events.start_position(request)
    progress = StreamProgress(start, request.from_timestamp)

    def deliver(page: StreamedPage) -> bool:
        if not may():
            return False
        for encoded in page.events:
            seen.extend(progress.take(encoded, decode_event(encoded)))
        return True

    async with aclosing(services.events.stream_pages(request, start, deliver)) as pages:
        async for page in pages:
            for encoded in page.events if page else ():
                seen.extend(progress.take(encoded, decode_event(encoded)))
            for _ in range(pause):
                await asyncio.sleep(0)


def broken() -> bool:
    raise RuntimeError("test")


@pytest.mark.parametrize("may", [lambda: True, lambda: False, broken], ids=["can", "cannot", "fails"])
async def test_whoever_can_write_at_once_has_a_line_before_its_publisher_goes_on(
    may: Callable[[], bool],
) -> None:
    clock = ManualClock()
    async with make_services(MemoryStore(clock), clock) as services:
        job_id, token = await begin(services)
        logs: list[list[Event]] = [[] for _ in range(10)]
        request = StreamRequest(job_id=job_id)
        watching = [asyncio.create_task(take_pages(services, request, log, may)) for log in logs]
        await settle()
        await services.events.publish_events(token, [make_line(1)])
        await settle()
        for sequence in range(2, 30):
            await services.events.publish_events(token, [make_line(sequence)])
            at_once = all(len(log) == sequence for log in logs)
            assert at_once == (may is not broken and may())
            await settle()
        assert all([event.sequence for event in log] == list(range(1, 30)) for log in logs)
        await services.jobs.complete_jobs([CompleteRequest(task_token=token, result=make_success())])
        await asyncio.gather(*watching)


@pytest.mark.parametrize("watchers", [1, 10])
async def test_a_ring_of_another_server_is_read_once_for_all(watchers: int) -> None:
    clock = ManualClock()
    store = CountingStore(clock)
    async with make_services(store, clock) as services:
        job_id, token = await begin(services)
        logs: list[list[Event]] = [[] for _ in range(watchers)]
        watching = [asyncio.create_task(watch(services, StreamRequest(job_id=job_id), log)) for log in logs]
        await settle()
        before = store.reads
        services.notifier.ring(f"job:{job_id}")
        await settle()
        assert store.reads == before + 1
        await services.jobs.complete_jobs([CompleteRequest(task_token=token, result=make_success())])
        await asyncio.gather(*watching)


@pytest.mark.parametrize("seed", range(20))
async def test_every_watcher_sees_what_a_fresh_reader_sees(seed: int) -> None:
    """Random publishing, repetitions, rings without data, slow readers, filters, new attempts."""
    chance = random.Random(seed)
    clock = ManualClock()
    async with make_services(MemoryStore(clock), clock) as services:
        job_id, token = await begin(services)
        watched: list[tuple[StreamRequest, list[Event]]] = []
        tasks: list[asyncio.Task[None]] = []
        next_sequence, attempt = 1, 1
        last: list[Event] = []
        for _ in range(60):
            draw = chance.random()
            if draw < 0.6:
                last, next_sequence = _some_events(chance, next_sequence, clock.now())
                await services.events.publish_events(token, last)
            elif draw < 0.7 and last:
                await services.events.publish_events(token, last)
            elif draw < 0.8:
                services.notifier.ring(f"job:{job_id}")
            elif draw < 0.85:
                await services.jobs.release_job(ReleaseRequest(task_token=token))
                _, token = await hold(services)
                next_sequence, attempt, last = 1, attempt + 1, []
            if chance.random() < 0.3 and len(tasks) < 9:
                request = _some_request(chance, job_id, attempt, next_sequence, clock.now())
                watched.append((request, []))
                pause = chance.choice((0, 0, 3, 40))
                reading = (
                    watch(services, *watched[-1], pause=pause)
                    if chance.random() < 0.5
                    else take_pages(services, *watched[-1], lambda: chance.random() < 0.7, pause=pause)
                )
                tasks.append(asyncio.create_task(reading))
            clock.advance(chance.choice((0, 0.001)))
            for _ in range(chance.choice((0, 1, 5, 60))):
                await asyncio.sleep(0)
        await services.jobs.complete_jobs([CompleteRequest(task_token=token, result=make_success())])
        await until(lambda: all(task.done() for task in tasks))
        for request, seen in watched:
            fresh: list[Event] = []
            await watch(services, replace(request, follow=False), fresh)
            assert [_told(event) for event in seen] == [_told(event) for event in fresh], request


def _told(event: Event) -> tuple[object, ...]:
    return event.attempt, event.sequence, event.timestamp, event.cursor, event.data


def _some_events(chance: random.Random, first: int, at: int) -> tuple[list[Event], int]:
    events: list[Event] = []
    for _ in range(chance.choice((1, 1, 1, 2, 5))):
        size = chance.choice((1, 1, 3, 50))
        if size > 1:
            events.append(make_batch(first, first + size - 1, at=at))
        else:
            events.append(chance.choice((make_line, make_error))(first, at=at))
        first += size
    return events, first


def _some_request(
    chance: random.Random, job_id: str, attempt: int, next_sequence: int, now: int
) -> StreamRequest:
    kind = chance.choice(("all", "all", "cursor", "filter", "attempt", "since", "other"))
    if kind == "since":
        cursor = chance.choice(("", Position(attempt, next_sequence - 1).cursor))
        since = now + chance.choice((0, 1, 3, 8))
        return StreamRequest(job_id=job_id, from_timestamp=since, cursor=cursor)
    if kind == "other":
        cursor = Position(attempt, next_sequence - 1).cursor
        return StreamRequest(job_id=job_id, attempt=chance.randint(1, attempt), cursor=cursor)
    if kind == "cursor":
        cursor = Position(attempt, chance.randrange(0, next_sequence)).cursor
        return StreamRequest(job_id=job_id, cursor=cursor)
    if kind == "filter":
        return StreamRequest(job_id=job_id, event_filter=frozenset({EventType.PROCESS_ERROR}))
    return StreamRequest(job_id=job_id, attempt=attempt if kind == "attempt" else 0)


def committed(*events: Event, attempt: int = 1) -> Committed:
    return Committed(attempt, JobState.RUNNING, encode_events(events))


def test_a_tail_has_no_hole() -> None:
    tail = Tail()
    assert tail.after(Position(1, 0)) is None
    assert tail.add(committed(make_line(1), make_line(2)))
    assert tail.add(committed(make_line(3)))
    page = tail.after(Position(1, 1))
    assert page
    assert [event.first_sequence for event in page.page.events] == [2, 3]
    assert tail.after(Position(1, 1)) is page, "made once for all at this place"
    assert tail.add(committed(make_line(7)))
    assert tail.after(Position(1, 3)) is None
    assert tail.after(Position(1, 6)) is not None
    assert tail.add(committed(make_line(1), attempt=2))
    assert tail.after(Position(1, 7)) is None
    assert tail.after(Position(2, 0)) is not None


def test_a_tail_is_bounded() -> None:
    tail = Tail()
    large = Event(sequence=1, timestamp=0, data=Output(bytes(20_000)))
    assert not tail.add(committed(large)), "who waits for it reads it"
    for first in range(2, 2002, 50):
        tail.add(committed(make_batch(first, first + 49)))
    assert tail.after(Position(1, 1)) is None
    assert tail.after(Position(1, 1951)) is not None
    assert sum(len(event.payload) for event in tail._events) <= 16 * 1024
