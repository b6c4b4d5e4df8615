"""Claims that reach nobody go back, whatever one of them runs into."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
import structlog

from airunner.domain.answers import Enqueued
from airunner.domain.errors import Unavailable
from airunner.domain.job import Job, JobState
from airunner.domain.lifecycle import Lifecycle
from airunner.domain.requests import DequeueRequest
from airunner.services.composition import Services
from airunner.stores.memory import MemoryStore
from airunner.stores.records import Demand, Release
from airunner.testing.clock import ManualClock
from airunner.testing.conditions import until
from airunner.testing.factories import make_request, make_services


class FragileStore(MemoryStore):
    """Breaks at the first release, and on demand at the next claim."""

    claim_error: Exception | None = None
    withdraw_error: Exception | None = None
    release_errors: int = 1
    release_error: Exception = RuntimeError("a surprise")

    async def dequeue_jobs(self, demand: Demand) -> Sequence[Job]:
        jobs = await super().dequeue_jobs(demand)
        if self.claim_error:
            raise self.claim_error
        return jobs

    async def withdraw(self, demand: Demand) -> None:
        error, self.withdraw_error = self.withdraw_error, None
        if error:
            raise error
        await super().withdraw(demand)

    async def release_job(self, release: Release, now: int) -> Lifecycle:
        if self.release_errors:
            self.release_errors -= 1
            raise self.release_error
        return await super().release_job(release, now)


@pytest.fixture
def store() -> FragileStore:
    return FragileStore(ManualClock())


@pytest.fixture
async def services(store: FragileStore) -> AsyncIterator[Services]:
    async with make_services(store, ManualClock()) as opened:
        yield opened


async def test_one_that_cannot_be_handed_back_stops_no_other(services: Services) -> None:
    enqueued = await services.jobs.enqueue_jobs([make_request() for _ in range(3)])
    claimed = await services.jobs.dequeue_jobs(DequeueRequest(queue="builds", max_jobs=3))
    with structlog.testing.capture_logs() as logs:
        services.jobs.hand_back(claimed)
        await services.dispatcher.stop()
    states = [(await services.jobs.get_job(job.job.job_id)).life.handed_back for job in claimed]
    assert (len(enqueued), states) == (3, [0, 1, 1])
    assert [(entry["event"], entry["error"]) for entry in logs] == [
        ("dequeue.hand_back_failed", "RuntimeError: a surprise")
    ]


@pytest.mark.parametrize(
    ("error", "text"),
    [(Unavailable("no answer"), "no answer"), (RuntimeError("a surprise"), "RuntimeError: a surprise")],
)
async def test_a_claim_that_breaks_after_its_caller_left_is_logged(
    services: Services, store: FragileStore, error: Exception, text: str
) -> None:
    store.claim_error = error
    leaving = asyncio.create_task(services.jobs.dequeue_jobs(DequeueRequest(queue="builds", wait_seconds=9)))
    await until(lambda: services.dispatcher.waiting == 1)
    with structlog.testing.capture_logs() as logs:
        leaving.cancel()
        await asyncio.wait({leaving})
        await services.dispatcher.stop()
    assert [(entry["event"], entry["error"]) for entry in logs] == [("dequeue.hand_back_failed", text)]


async def test_what_the_store_cannot_write_now_is_handed_back_when_it_can(store: FragileStore) -> None:
    clock = ManualClock()
    store.release_errors, store.release_error = 3, Unavailable("the disk is full")
    async with make_services(store, clock) as services:
        await services.jobs.enqueue_jobs([make_request() for _ in range(2)])
        claimed = await services.jobs.dequeue_jobs(DequeueRequest(queue="builds", max_jobs=2))
        services.jobs.hand_back(claimed)
        for _ in range(20):
            await asyncio.sleep(0)
            clock.advance(1)
        await until(lambda: not store.release_errors)
        await services.dispatcher.stop()
        lives = [(await services.jobs.get_job(job.job.job_id)).life for job in claimed]
    assert [(life.state, life.handed_back) for life in lives] == [(JobState.SCHEDULED, 1)] * 2


async def test_a_stop_does_not_wait_for_a_store_that_cannot_write(store: FragileStore) -> None:
    clock = ManualClock()
    store.release_errors, store.release_error = 1_000, Unavailable("the disk is full")
    async with make_services(store, clock) as services:
        await services.jobs.enqueue_jobs([make_request()])
        claimed = await services.jobs.dequeue_jobs(DequeueRequest(queue="builds"))
        before = clock.waiting
        services.jobs.hand_back(claimed)
        await until(lambda: clock.waiting == before + 1)
        stopping = asyncio.create_task(services.dispatcher.stop())
        await until(lambda: clock.waiting == before + 2)
        clock.advance(5)
        await asyncio.wait_for(stopping, 30)
        assert not services.dispatcher._background_tasks


async def test_a_wait_that_breaks_leaves_no_demand_behind(store: FragileStore) -> None:
    clock = ManualClock()
    store.release_errors = 0
    async with make_services(store, clock) as services:
        store.withdraw_error = RuntimeError("a surprise")
        waiting = asyncio.create_task(
            services.jobs.dequeue_jobs(DequeueRequest(queue="builds", wait_seconds=1))
        )
        await until(lambda: services.dispatcher.waiting == 1)
        clock.advance(1)
        with pytest.raises(RuntimeError):
            await waiting
        await services.dispatcher._background_tasks.finish()
        (outcome,) = await services.jobs.enqueue_jobs([make_request()])
        assert isinstance(outcome, Enqueued)
        assert (await services.jobs.get_job(outcome.job_id)).state is JobState.SCHEDULED
