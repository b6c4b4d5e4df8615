"""How often a server looks for the news of others, who is woken by them, and how soon they come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from airunner.domain.answers import DequeuedJob, HeldJob
from airunner.domain.errors import Unavailable
from airunner.domain.event import Event
from airunner.domain.job import Job, JobState
from airunner.domain.requests import StreamRequest, UpdateRequest
from airunner.services.composition import Services
from airunner.testing.clock import ManualClock
from airunner.testing.conditions import until
from airunner.testing.conformance.stores.backend import Api
from airunner.testing.factories import make_batch, make_line, make_services, make_success
from tests.support.shared_memory import SharedMemoryStore

STEP_SECONDS = 0.5
TURNS_OF_THE_LOOP = 20


@dataclass(slots=True)
class Replicas:
    """Two servers in one process, with all their loops."""

    clock: ManualClock
    store: SharedMemoryStore
    a: Api
    b: Api

    async def advance(self, seconds: float) -> None:
        """Let time pass in small steps, after each of which everybody does what there is to do."""
        for _ in range(round(seconds / STEP_SECONDS)):
            self.clock.advance(STEP_SECONDS)
            await settle()

    async def seconds_until(self, task: asyncio.Task[HeldJob] | asyncio.Task[Job]) -> float:
        began = self.clock.now()
        while not task.done():
            await self.advance(STEP_SECONDS)
        return (self.clock.now() - began) / 1000

    def looks(self) -> int:
        """Return how many marks were read since this was last asked."""
        looked, self.store.marks_read = len(self.store.marks_read), []
        return looked


async def settle() -> None:
    """Let everybody do what they can do by now: in memory nothing takes time."""
    for _ in range(TURNS_OF_THE_LOOP):
        await asyncio.sleep(0)


@pytest.fixture
async def replicas() -> AsyncIterator[Replicas]:
    clock = ManualClock()
    store = SharedMemoryStore(clock)
    async with make_services(store, clock) as first, make_services(store, clock) as second:
        yield Replicas(clock, store, _api(first, clock), _api(second, clock))


def _api(services: Services, clock: ManualClock) -> Api:
    return Api(jobs=services.jobs, events=services.events, clock=clock, services=services)


async def _waits(api: Api, held: DequeuedJob, *, watched: bool = False) -> asyncio.Task[HeldJob]:
    """Begin a heartbeat that waits."""
    request = UpdateRequest(
        queue="builds",
        task_token=held.task_token,
        visibility_timeout_seconds=300,
        wait_seconds=60,
        watched=watched,
    )
    return await api.started(api.jobs.update_job(request))


async def _watches(api: Api, held: DequeuedJob) -> tuple[asyncio.Task[None], list[Event]]:
    seen: list[Event] = []
    task = asyncio.create_task(api.watch(StreamRequest(job_id=held.job.job_id), seen))
    await until(lambda: held.job.job_id in api.services.notifier.jobs)
    await settle()
    return task, seen


async def test_a_cancellation_reaches_a_holder_at_another_server_within_5_seconds(replicas: Replicas) -> None:
    for before in (0, 0.5, 2, 3.5, 4, 7.5):
        held = await replicas.a.new_claim()
        waiting = await _waits(replicas.a, held)
        await replicas.advance(before)
        await replicas.b.jobs.cancel_job(held.job.job_id)
        assert await replicas.seconds_until(waiting) <= 5
        assert (await waiting).cancel_requested


async def test_a_held_job_is_looked_at_every_4_seconds(replicas: Replicas) -> None:
    held = await replicas.a.new_claim()
    waiting = await _waits(replicas.a, held)
    await replicas.advance(3.5)
    assert replicas.looks() == 0
    await replicas.advance(36.5)
    assert replicas.looks() == 10
    # Nothing changed: neither the first look nor a later one made the holder read.
    assert replicas.store.lives_read == 0
    waiting.cancel()


async def test_one_busy_job_has_no_other_looked_at_more_often(replicas: Replicas) -> None:
    quiet, busy = await replicas.a.new_claim(), await replicas.a.new_claim()
    watching = [(await _watches(replicas.b, held))[0] for held in (quiet, busy)]
    await replicas.advance(12)
    replicas.looks()
    for sequence in range(1, 6):
        await replicas.a.publish(busy, make_line(sequence))
        await replicas.advance(2)
    marks = replicas.store.marks_read
    assert (marks.count(quiet.job.job_id), marks.count(busy.job.job_id)) == (5, 20)
    for task in watching:
        task.cancel()


async def test_a_line_comes_within_half_a_second_and_after_a_silence_within_two(replicas: Replicas) -> None:
    held = await replicas.a.new_claim()
    watching, seen = await _watches(replicas.b, held)
    await replicas.advance(1)
    await replicas.a.publish(held, make_line(1))
    await replicas.advance(0.5)
    assert len(seen) == 1
    await replicas.advance(60)
    replicas.looks()
    await replicas.advance(20)
    assert replicas.looks() == 10
    await replicas.a.publish(held, make_line(2))
    await replicas.advance(2)
    assert len(seen) == 2
    watching.cancel()


async def test_what_a_job_prints_elsewhere_wakes_neither_its_holder_nor_who_waits_for_its_end(
    replicas: Replicas,
) -> None:
    held = await replicas.a.new_claim()
    holding = await _waits(replicas.b, held)
    ending = await replicas.b.started(replicas.b.jobs.get_job(held.job.job_id, wait_seconds=60))
    await replicas.advance(1)
    replicas.store.lives_read = 0
    for sequence in range(1, 11):
        await replicas.a.publish(held, make_line(sequence))
        await replicas.advance(1)
    assert replicas.store.lives_read == 0
    assert not holding.done()
    await replicas.a.complete(held, make_success(final_sequence=10))
    await replicas.advance(2)
    assert (await ending).state is JobState.COMPLETED
    holding.cancel()


async def test_who_was_rung_for_a_line_here_is_not_rung_for_it_again(replicas: Replicas) -> None:
    held = await replicas.a.new_claim()
    watching, seen = await _watches(replicas.a, held)
    await replicas.advance(1)
    read = replicas.store.pages_read
    for sequence in range(1, 6):
        await replicas.a.publish(held, make_line(sequence))
        await replicas.advance(2)
    # The first is read; those that follow it are at hand.
    assert (len(seen), replicas.store.pages_read - read) == (5, 1)
    watching.cancel()


async def test_a_holder_learns_from_its_own_server_what_a_publish_there_was_told(replicas: Replicas) -> None:
    held = await replicas.a.new_claim()
    waiting = await _waits(replicas.a, held)
    await replicas.b.jobs.cancel_job(held.job.job_id)
    assert (await replicas.a.publish(held, make_line(1))).cancel_requested
    await settle()
    assert waiting.done()


@pytest.mark.parametrize("watchers", [1, 10])
async def test_all_watchers_of_a_server_share_one_read_for_each_ring(
    replicas: Replicas, watchers: int
) -> None:
    held = await replicas.a.new_claim()
    streams = [await _watches(replicas.b, held) for _ in range(watchers)]
    await replicas.advance(1)
    for ring in range(1, 6):
        replicas.store.pages_read = 0
        await replicas.a.publish(held, make_batch(2 * ring - 1, 2 * ring))
        await replicas.advance(0.5)
        assert replicas.store.pages_read == 1
    assert [len(seen) for _, seen in streams] == [10] * watchers
    for task, _ in streams:
        task.cancel()


async def test_a_look_that_fails_is_repeated_and_ends_nothing(replicas: Replicas) -> None:
    held = await replicas.a.new_claim()
    watching, seen = await _watches(replicas.b, held)
    await replicas.advance(1)
    replicas.store.failure = Unavailable("away")
    await replicas.a.publish(held, make_line(1))
    await replicas.advance(3)
    assert not seen
    replicas.store.failure = None
    await replicas.advance(0.5)
    assert len(seen) == 1
    watching.cancel()


async def test_that_a_job_is_watched_is_said_every_10_seconds_and_sooner_after_a_failure(
    replicas: Replicas,
) -> None:
    held = await replicas.a.new_claim()
    replicas.store.failure = Unavailable("away")
    watching, _ = await _watches(replicas.b, held)
    await replicas.advance(1)
    replicas.store.failure = None
    assert not replicas.store.noted
    await replicas.advance(2)
    assert replicas.store.noted == [held.job.job_id]
    await replicas.advance(30)
    assert replicas.store.noted == [held.job.job_id] * 4
    watching.cancel()


async def test_a_job_that_is_gone_rings_once(replicas: Replicas) -> None:
    with replicas.a.services.notifier.listen("job:nowhere") as bell:
        await replicas.advance(20)
        assert bell.rings == 1


async def test_what_nobody_listens_to_any_more_is_forgotten(replicas: Replicas) -> None:
    held = await replicas.a.new_claim()
    watching, _ = await _watches(replicas.b, held)
    await replicas.advance(1)
    watching.cancel()
    await settle()
    replicas.looks()
    await replicas.advance(10)
    assert replicas.looks() == 0
