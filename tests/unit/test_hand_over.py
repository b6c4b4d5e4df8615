"""The moment between reading the store and waiting for a bell: what happens in it is missed by nobody.

Nobody moves the clock unless a test says so, so that no later look hides a ring that was missed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Collection

import pytest

from airunner.domain.answers import DequeuedJob
from airunner.domain.job import Job
from airunner.domain.lifecycle import Lifecycle
from airunner.domain.requests import CompleteRequest, DequeueRequest, StreamRequest, UpdateRequest
from airunner.services.composition import Services
from airunner.stores.memory import MemoryStore
from airunner.stores.records import AttemptKey, EventPage, EventQuery
from airunner.testing.clock import ManualClock
from airunner.testing.conditions import until
from airunner.testing.factories import make_batch, make_line, make_request, make_services, make_success

LIMIT_SECONDS = 20
HAND_OVERS = 10_000
EVENTS = 5

Surprise = Callable[[], Awaitable[object]]


class SurprisedStore(MemoryStore):
    """Something happens after it has read, and before its caller has the answer."""

    surprise: Surprise | None = None
    reads: int = 0

    @property
    def is_surprise_left(self) -> bool:
        return self.surprise is not None

    async def read_events(self, query: EventQuery) -> EventPage:
        page = await super().read_events(query)
        self.reads += 1
        await self._be_surprised()
        return page

    async def extend_job(self, key: AttemptKey, visibility_seconds: int, now: int) -> Lifecycle:
        life = await super().extend_job(key, visibility_seconds, now)
        await self._be_surprised()
        return life

    async def get_life(self, job_id: str, *, queues: Collection[str] = ()) -> Lifecycle:
        life = await super().get_life(job_id, queues=queues)
        await self._be_surprised()
        return life

    async def get_job(self, job_id: str, *, queues: Collection[str] = (), abridge: bool = False) -> Job:
        job = await super().get_job(job_id, queues=queues, abridge=abridge)
        await self._be_surprised()
        return job

    async def _be_surprised(self) -> None:
        surprise, self.surprise = self.surprise, None
        if surprise:
            await surprise()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> SurprisedStore:
    return SurprisedStore(clock)


@pytest.fixture
async def services(store: SurprisedStore, clock: ManualClock) -> AsyncIterator[Services]:
    async with make_services(store, clock) as opened:
        yield opened


async def begin(services: Services) -> DequeuedJob:
    await services.jobs.enqueue_jobs([make_request()])
    (held,) = await services.jobs.dequeue_jobs(DequeueRequest(queue="builds", wait_seconds=0))
    return held


async def finish(services: Services, held: DequeuedJob) -> None:
    await services.jobs.complete_jobs([CompleteRequest(task_token=held.task_token, result=make_success())])


async def test_an_event_between_the_read_and_the_wait_reaches_the_stream(
    services: Services, store: SurprisedStore
) -> None:
    held = await begin(services)
    stream = services.events.stream_events(StreamRequest(job_id=held.job.job_id, attempt=1))
    store.surprise = lambda: services.events.publish_events(held.task_token, [make_line(1)])
    async with asyncio.timeout(LIMIT_SECONDS):
        assert (await anext(stream)).sequence == 1
    await stream.aclose()


async def test_an_end_between_the_read_and_the_wait_ends_the_stream(
    services: Services, store: SurprisedStore
) -> None:
    held = await begin(services)
    store.surprise = lambda: finish(services, held)
    async with asyncio.timeout(LIMIT_SECONDS):
        request = StreamRequest(job_id=held.job.job_id, attempt=1)
        assert [event async for event in services.events.stream_events(request)] == []


async def test_a_cancellation_between_the_extension_and_the_wait_is_told_at_once(
    services: Services, store: SurprisedStore
) -> None:
    held = await begin(services)
    beat = UpdateRequest(queue="builds", task_token=held.task_token, wait_seconds=60)
    store.surprise = lambda: services.jobs.cancel_job(held.job.job_id)
    async with asyncio.timeout(LIMIT_SECONDS):
        assert (await services.jobs.update_job(beat)).cancel_requested


async def test_a_cancellation_while_a_holder_looks_again_is_told_at_once(
    services: Services, store: SurprisedStore, clock: ManualClock
) -> None:
    held = await begin(services)
    beat = UpdateRequest(queue="builds", task_token=held.task_token, wait_seconds=60, watched=False)
    before = clock.waiting
    waiting = asyncio.create_task(services.jobs.update_job(beat))
    await until(lambda: clock.waiting > before)
    store.surprise = lambda: services.jobs.cancel_job(held.job.job_id)
    services.notifier.ring_all()  # for nothing, but the holder looks
    async with asyncio.timeout(LIMIT_SECONDS):
        assert (await waiting).cancel_requested


async def test_an_end_while_a_waiting_get_reads_is_told_at_once(
    services: Services, store: SurprisedStore, clock: ManualClock
) -> None:
    held = await begin(services)
    store.surprise = lambda: finish(services, held)
    async with asyncio.timeout(LIMIT_SECONDS):
        assert (await services.jobs.get_job(held.job.job_id, wait_seconds=60)).state.terminal
    held = await begin(services)
    before = clock.waiting
    waiting = asyncio.create_task(services.jobs.get_job(held.job.job_id, wait_seconds=60))
    await until(lambda: clock.waiting > before)
    store.surprise = lambda: finish(services, held)
    services.notifier.ring_all()
    async with asyncio.timeout(LIMIT_SECONDS):
        assert (await waiting).state.terminal


async def test_a_silent_stream_says_at_once_that_it_is_connected(services: Services) -> None:
    held = await begin(services)
    stream = services.events.stream_or_idle(StreamRequest(job_id=held.job.job_id))
    async with asyncio.timeout(LIMIT_SECONDS):
        assert await anext(stream) is None
    await stream.aclose()


async def test_a_stream_that_nobody_rang_for_looks_again_after_15_seconds(
    services: Services, store: SurprisedStore, clock: ManualClock
) -> None:
    held = await begin(services)
    before = clock.waiting
    stream = services.events.stream_events(StreamRequest(job_id=held.job.job_id))
    coming = asyncio.ensure_future(anext(stream))
    await until(lambda: clock.waiting > before)
    reads = store.reads
    other = make_services(store, clock)  # another server's, which rings its own bells
    await other.events.publish_events(held.task_token, [make_line(1)])
    clock.advance(14.999)
    await asyncio.sleep(0)
    assert (coming.done(), store.reads) == (False, reads)
    clock.advance(0.001)
    async with asyncio.timeout(LIMIT_SECONDS):
        assert (await coming).sequence == 1
    await stream.aclose()


async def test_ten_thousand_hand_overs_from_stored_to_live_events(
    services: Services, store: SurprisedStore
) -> None:
    """Each stream begins somewhere in a job that prints: what it shows is every event once, in order."""
    chance = random.Random(16)
    streams = 10
    for _ in range(HAND_OVERS // streams):
        held = await begin(services)
        printing = Printing(services, store, held, chance)
        starts = [chance.randrange(1, 2 * EVENTS) for _ in range(streams)]
        watching = []
        for start in starts:
            request = StreamRequest(job_id=held.job.job_id, from_sequence=start, attempt=1)
            watching.append(asyncio.create_task(sequences(services, request)))
            await printing.go_on()
        await printing.end()
        async with asyncio.timeout(LIMIT_SECONDS):
            seen = await asyncio.gather(*watching)
        assert seen == [list(range(start, printing.printed + 1)) for start in starts]


async def sequences(services: Services, request: StreamRequest) -> list[int]:
    return [event.sequence async for event in services.events.stream_events(request)]


class Printing:
    """A job that prints batches of a few lines: now, or when a stream has read and not heard yet."""

    def __init__(
        self, services: Services, store: SurprisedStore, held: DequeuedJob, chance: random.Random
    ) -> None:
        self._services = services
        self._store = store
        self._held = held
        self._chance = chance
        self.printed = 0

    async def go_on(self) -> None:
        match self._chance.randrange(4):
            case 0:
                await self.print()
            case 1:
                self._store.surprise = self.print
            case 2:
                await asyncio.sleep(0)

    async def print(self) -> None:
        first = self.printed + 1
        self.printed += self._chance.randrange(1, EVENTS)
        batch = make_batch(first, self.printed)
        await self._services.events.publish_events(self._held.task_token, [batch])

    async def end(self) -> None:
        """End while one of the streams has read that the job goes on."""
        self._store.surprise = self._print_the_last
        self._services.notifier.ring_all()
        while self._store.is_surprise_left:
            await asyncio.sleep(0)

    async def _print_the_last(self) -> None:
        await self.print()
        await finish(self._services, self._held)
