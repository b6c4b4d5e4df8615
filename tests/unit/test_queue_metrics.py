"""Queues and workers as metrics: what is shown, and that there is never too much of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from airunner import telemetry
from airunner.domain.requests import DequeueRequest
from airunner.services.composition import Services
from airunner.services.queue_metrics import (
    INTERVAL_SECONDS,
    MAX_QUEUES,
    OTHER_QUEUES,
    STALE_AFTER_MS,
    QueueMetrics,
)
from airunner.stores.memory import MemoryStore
from airunner.testing.clock import ManualClock
from airunner.testing.conditions import until
from airunner.testing.factories import make_request, make_services
from tests.support.scraping import gauge_value


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def services(clock: ManualClock) -> AsyncIterator[Services]:
    async with make_services(MemoryStore(clock), clock) as opened:
        yield opened


@pytest.fixture
def queue_metrics(services: Services, clock: ManualClock) -> QueueMetrics:
    return QueueMetrics(services.jobs, clock)


async def test_depth_and_age_of_a_queue(
    services: Services, clock: ManualClock, queue_metrics: QueueMetrics
) -> None:
    await services.jobs.enqueue_jobs([make_request("builds")])
    clock.advance(40)
    await services.jobs.enqueue_jobs([make_request("builds"), make_request("builds")])
    clock.advance(2)
    await queue_metrics.run_once()
    assert gauge_value(telemetry.queue_depth, "builds", "scheduled") == 3
    assert gauge_value(telemetry.queue_oldest_age, "builds") == 42
    await services.jobs.dequeue_jobs(DequeueRequest(queue="builds"))
    await queue_metrics.run_once()
    assert gauge_value(telemetry.queue_depth, "builds", "scheduled") == 2
    assert gauge_value(telemetry.queue_depth, "builds", "running") == 1
    assert gauge_value(telemetry.queue_oldest_age, "builds") == 2


async def test_an_empty_queue_has_no_age(
    services: Services, clock: ManualClock, queue_metrics: QueueMetrics
) -> None:
    await services.jobs.enqueue_jobs([make_request("builds")])
    await services.jobs.dequeue_jobs(DequeueRequest(queue="builds"))
    clock.advance(100)
    await queue_metrics.run_once()
    assert gauge_value(telemetry.queue_oldest_age, "builds") == 0


async def test_pauses_are_shown(services: Services, queue_metrics: QueueMetrics) -> None:
    await services.jobs.enqueue_jobs([make_request("builds"), make_request("tests")])
    await services.jobs.set_paused("builds", paused=True)
    await queue_metrics.run_once()
    assert telemetry.queue_paused.read() == {("builds",): 1, ("tests",): 0}


async def test_only_so_many_queues_have_a_label(services: Services, queue_metrics: QueueMetrics) -> None:
    for number in range(150):
        await services.jobs.enqueue_jobs([make_request(f"queue-{number:03}")])
    await services.jobs.enqueue_jobs([make_request("queue-149"), make_request("queue-149")])
    await queue_metrics.run_once()
    for shown in (telemetry.queue_depth, telemetry.queue_oldest_age, telemetry.queue_paused):
        names = {values[0] for values in shown.read()}
        assert len(names) == MAX_QUEUES + 1
        # The deepest comes first, whatever its name.
        assert {OTHER_QUEUES, "queue-149"} <= names
    scheduled = [n for (_, state), n in telemetry.queue_depth.read().items() if state == "scheduled"]
    assert sum(scheduled) == 152
    assert gauge_value(telemetry.queue_depth, OTHER_QUEUES, "scheduled") == 50


async def test_a_queue_keeps_its_label(services: Services, queue_metrics: QueueMetrics) -> None:
    for number in range(MAX_QUEUES):
        await services.jobs.enqueue_jobs([make_request(f"queue-{number:03}")])
    await queue_metrics.run_once()
    await services.jobs.enqueue_jobs([make_request("deeper") for _ in range(10)])
    await queue_metrics.run_once()
    assert gauge_value(telemetry.queue_depth, "deeper", "scheduled") == 0
    assert gauge_value(telemetry.queue_depth, OTHER_QUEUES, "scheduled") == 10


async def test_a_worker_that_falls_silent_is_stale(
    services: Services, clock: ManualClock, queue_metrics: QueueMetrics
) -> None:
    await services.jobs.dequeue_jobs(DequeueRequest(queue="builds", worker_id="silent", wait_seconds=0))
    clock.advance(STALE_AFTER_MS / 1000)
    await services.jobs.dequeue_jobs(DequeueRequest(queue="builds", worker_id="lively", wait_seconds=0))
    await queue_metrics.run_once()
    assert telemetry.workers_seen.read() == {("alive",): 2, ("stale",): 0}
    clock.advance(1)
    await queue_metrics.run_once()
    assert telemetry.workers_seen.read() == {("alive",): 1, ("stale",): 1}


async def test_it_looks_at_once_and_then_now_and_then(
    services: Services, clock: ManualClock, queue_metrics: QueueMetrics
) -> None:
    def scheduled() -> float:
        return gauge_value(telemetry.queue_depth, "builds", "scheduled")

    await services.jobs.enqueue_jobs([make_request("builds")])
    before = clock.waiting
    loop = queue_metrics.periodic()
    loop.start()
    await until(lambda: clock.waiting > before)
    assert scheduled() == 1
    await services.jobs.enqueue_jobs([make_request("builds")])
    assert scheduled() == 1
    clock.advance(INTERVAL_SECONDS)
    await until(lambda: scheduled() == 2)
    await loop.stop()
