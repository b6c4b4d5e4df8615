"""What the services count of jobs, attempts and events."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from airunner import telemetry
from airunner.domain.answers import DequeuedJob, Enqueued
from airunner.domain.job import Outcome
from airunner.domain.requests import CompleteRequest, DequeueRequest, ReleaseRequest, UpdateRequest
from airunner.services.composition import Services
from airunner.stores.memory import MemoryStore
from airunner.testing.clock import ManualClock
from airunner.testing.factories import (
    make_batch,
    make_end,
    make_failure,
    make_request,
    make_services,
    make_start,
    make_success,
)
from tests.support.scraping import Change

VISIBILITY = 60


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def services(clock: ManualClock) -> AsyncIterator[Services]:
    async with make_services(MemoryStore(clock), clock) as opened:
        yield opened


@pytest.fixture
def ended() -> Change:
    return Change(telemetry.jobs_completed)


@pytest.fixture
def lost() -> Change:
    return Change(telemetry.attempts_lost)


async def enqueue(services: Services, **wishes: int) -> None:
    await services.jobs.enqueue_jobs([make_request("builds", max_attempts=wishes.get("max_attempts", 0))])


async def dequeue(services: Services, worker_id: str = "") -> DequeuedJob:
    request = DequeueRequest(
        queue="builds", visibility_timeout_seconds=VISIBILITY, worker_id=worker_id, wait_seconds=0
    )
    (dequeued,) = await services.jobs.dequeue_jobs(request)
    return dequeued


async def test_ends_are_counted_by_state_and_outcome(services: Services, ended: Change) -> None:
    for result in (make_success(), make_failure(), make_failure(outcome=Outcome.TIMEOUT)):
        await enqueue(services)
        request = CompleteRequest(task_token=(await dequeue(services)).task_token, result=result)
        await services.jobs.complete_jobs([request])
    assert ended("completed", "success") == 1
    assert ended("failed", "failure") == 1
    assert ended("failed", "timeout") == 1


async def test_a_repeated_completion_counts_once(
    services: Services, clock: ManualClock, ended: Change
) -> None:
    published = Change(telemetry.events_published)
    await enqueue(services)
    token = (await dequeue(services)).task_token
    request = CompleteRequest(task_token=token, result=make_success(), events=[make_start(1), make_end(2)])
    await services.jobs.complete_jobs([request])
    clock.advance(1)
    await services.jobs.complete_jobs([request])
    assert ended("completed", "success") == 1
    assert published() == 2


async def test_a_cancelled_job_is_counted_where_it_ends(services: Services, ended: Change) -> None:
    await enqueue(services)
    taken = await dequeue(services)
    await services.jobs.cancel_job(taken.job.job_id)
    assert ended("cancelled", "cancelled") == 0
    await services.jobs.release_job(ReleaseRequest(task_token=taken.task_token))
    assert ended("cancelled", "cancelled") == 1


async def test_a_queued_job_that_is_cancelled_counts_at_once(
    services: Services, clock: ManualClock, ended: Change
) -> None:
    (enqueued,) = await services.jobs.enqueue_jobs([make_request("builds")])
    assert isinstance(enqueued, Enqueued)
    await services.jobs.cancel_job(enqueued.job_id)
    clock.advance(1)
    await services.jobs.cancel_job(enqueued.job_id)
    assert ended("cancelled", "cancelled") == 1


@pytest.mark.parametrize("worker_id", ["known", ""])
async def test_an_attempt_that_lapsed_is_lost(
    services: Services, clock: ManualClock, lost: Change, worker_id: str
) -> None:
    redelivered = Change(telemetry.jobs_redelivered)
    await enqueue(services)
    await dequeue(services, worker_id)
    assert lost("redelivered") == 0
    clock.advance(VISIBILITY)
    await dequeue(services, "another")
    assert lost("redelivered") == 1
    assert redelivered() == 1  # though it cost no try


async def test_an_attempt_that_was_given_back_is_not_lost(services: Services, lost: Change) -> None:
    released, redelivered = Change(telemetry.jobs_released), Change(telemetry.jobs_redelivered)
    await enqueue(services)
    token = (await dequeue(services, "worker")).task_token
    await services.jobs.release_job(ReleaseRequest(task_token=token, error="once more"))
    await dequeue(services, "worker")
    assert (lost("redelivered"), released(), redelivered()) == (0, 1, 1)


async def test_a_job_that_is_lost_on_its_last_try_counts(
    services: Services, clock: ManualClock, ended: Change, lost: Change
) -> None:
    await enqueue(services, max_attempts=1)
    held = await dequeue(services)
    await services.jobs.update_job(UpdateRequest(queue=held.job.queue, task_token=held.task_token))
    clock.advance(VISIBILITY)
    await services.maintenance.run_once()
    assert lost("failed") == 1
    assert ended("failed", "lost") == 1


async def test_waiting_and_processing_are_timed(services: Services, clock: ManualClock) -> None:
    wait, work = telemetry.jobs_queue_wait, telemetry.jobs_processing_time
    before = wait.read().total, work.read().total
    counts = Change(wait), Change(work)
    await services.jobs.enqueue_jobs([make_request("builds", delay_seconds=100)])
    clock.advance(107)
    token = (await dequeue(services)).task_token
    clock.advance(30)
    await services.jobs.complete_jobs([CompleteRequest(task_token=token, result=make_success())])
    # The delay was asked for; only what came after it is waiting.
    assert wait.read().total - before[0] == pytest.approx(7)
    assert work.read().total - before[1] == pytest.approx(30)
    assert [count() for count in counts] == [1, 1]


async def test_only_the_first_dequeue_has_waited(services: Services, clock: ManualClock) -> None:
    waited = Change(telemetry.jobs_queue_wait)
    await enqueue(services)
    await dequeue(services)
    clock.advance(VISIBILITY)
    await dequeue(services)
    assert waited() == 1


async def test_events_are_counted_wherever_they_come_in(services: Services) -> None:
    events, batches, size = (
        Change(instrument)
        for instrument in (
            telemetry.events_published,
            telemetry.events_batches,
            telemetry.events_published_bytes,
        )
    )
    await enqueue(services)
    token = (await dequeue(services)).task_token
    await services.events.publish_events(token, [make_start(1), make_batch(2, 51)])
    assert (events(), batches()) == (51, 2)
    assert size() > 50 * len("line 2\n")
    last = CompleteRequest(task_token=token, result=make_success(), events=[make_end(52)])
    await services.jobs.complete_jobs([last])
    assert (events(), batches()) == (52, 3)
