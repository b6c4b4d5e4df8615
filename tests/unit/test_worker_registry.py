"""Who holds what: remembered while it is true, forgotten when it was ended elsewhere."""

from __future__ import annotations

import pytest

from airunner.domain.answers import Enqueued
from airunner.domain.requests import CompleteRequest, DequeueRequest, OverviewQuery, UpdateRequest
from airunner.services.composition import Services
from airunner.services.worker_registry import MAX_REMEMBERED, WorkerRegistry
from airunner.stores.memory import MemoryStore
from airunner.stores.records import Demand
from airunner.testing.clock import ManualClock
from airunner.testing.factories import make_new_job, make_request, make_services, make_success

VISIBILITY = 60
LONG_GONE = VISIBILITY + 61


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


async def take(services: Services, count: int = 1) -> list[str]:
    outcomes = await services.jobs.enqueue_jobs([make_request() for _ in range(count)])
    assert all(isinstance(outcome, Enqueued) for outcome in outcomes)
    request = DequeueRequest(
        queue="builds", max_jobs=count, visibility_timeout_seconds=VISIBILITY, worker_id="ann"
    )
    return [dequeued.task_token for dequeued in await services.jobs.dequeue_jobs(request)]


async def held(services: Services) -> int:
    return sum(len(worker.job_ids) for worker in await services.jobs.list_workers())


async def test_jobs_that_end_on_another_server_are_forgotten(clock: ManualClock) -> None:
    store = MemoryStore(clock)
    async with make_services(store, clock) as one:
        other = make_services(store, clock)
        tokens = await take(one, 100)
        await other.jobs.complete_jobs([CompleteRequest(token, make_success()) for token in tokens])
        assert await held(one) == 100
        clock.advance(LONG_GONE)
        await one.maintenance.run_once()
        assert await held(one) == 0
        clock.advance(5 * 60)
        assert await one.jobs.list_workers() == []


def demand(worker_id: str) -> Demand:
    return Demand(
        queues=("builds",), max_jobs=1, visibility_seconds=VISIBILITY, worker_id=worker_id, waits=False
    )


async def test_of_too_many_workers_those_are_forgotten_that_called_longest_ago_and_hold_nothing(
    clock: ManualClock,
) -> None:
    workers, store = WorkerRegistry(), MemoryStore(clock)
    await store.enqueue_jobs([make_new_job(queue="builds")], max_queued=0)
    for worker_id in ("holds", "idle", "asks again"):
        workers.requested(demand(worker_id), None, 0)
    workers.took("holds", await store.dequeue_jobs(demand("holds")))
    workers.requested(demand("asks again"), None, 1)
    for number in range(MAX_REMEMBERED - 2):
        workers.requested(demand(f"new-{number}"), None, 2)
    names = {worker.worker_id for worker in workers.list(2, limit=2 * MAX_REMEMBERED)}
    assert len(names) == MAX_REMEMBERED
    assert {"holds", "asks again"} <= names
    assert "idle" not in names


async def test_a_job_that_its_holder_extends_is_remembered(clock: ManualClock) -> None:
    async with make_services(MemoryStore(clock), clock) as services:
        (token,) = await take(services)
        for _ in range(5):
            clock.advance(VISIBILITY - 1)
            await services.jobs.update_job(UpdateRequest(queue="builds", task_token=token))
            await services.maintenance.run_once()
        assert await held(services) == 1


async def test_a_list_names_a_hundred_jobs_of_a_worker_at_most(clock: ManualClock) -> None:
    async with make_services(MemoryStore(clock), clock) as services:
        for _ in range(3):
            await take(services, 50)
        assert await held(services) == 100


async def test_an_answer_has_a_hundred_workers_unless_more_are_asked_for(clock: ManualClock) -> None:
    async with make_services(MemoryStore(clock), clock) as services:
        for number in range(601):
            worker_id = f"w{number:03}"
            await services.jobs.dequeue_jobs(
                DequeueRequest(queue="builds", worker_id=worker_id, wait_seconds=0)
            )
        pages = [await services.jobs.page_workers(OverviewQuery(page_size=size)) for size in (0, 500)]
        assert [len(page.workers) for page in pages] == [100, 500]
        names = [worker.worker_id for worker in await services.jobs.list_workers()]
        assert names == [f"w{number:03}" for number in range(601)]
