"""What calls that wait read meanwhile: not the whole job at every line that it prints."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from pathlib import Path

import pytest

from airunner.codec.jobs import decode_params
from airunner.domain.answers import DequeuedJob
from airunner.domain.job import Job, JobParams, JobState
from airunner.domain.lifecycle import Lifecycle
from airunner.domain.requests import CompleteRequest, DequeueRequest, StreamRequest, UpdateRequest
from airunner.services.composition import Services
from airunner.services.notifier import holder_bell
from airunner.stores.sqlite import SqliteStore, rows
from airunner.testing.clock import ManualClock
from airunner.testing.conditions import until
from airunner.testing.factories import make_line, make_request, make_services, make_success

RINGS = 10


class CountingStore(SqliteStore):
    """Counts looks at a life, and reads of a whole job."""

    lives = 0
    jobs = 0

    async def get_life(self, job_id: str, *, queues: Collection[str] = ()) -> Lifecycle:
        life = await super().get_life(job_id, queues=queues)
        self.lives += 1
        return life

    async def get_job(self, job_id: str, *, queues: Collection[str] = (), abridge: bool = False) -> Job:
        job = await super().get_job(job_id, queues=queues, abridge=abridge)
        self.jobs += 1
        return job


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(tmp_path: Path, clock: ManualClock) -> CountingStore:
    return CountingStore(tmp_path, clock)


@pytest.fixture
async def services(store: CountingStore, clock: ManualClock) -> AsyncIterator[Services]:
    async with make_services(store, clock) as services:
        yield services


@pytest.fixture
async def held(services: Services) -> DequeuedJob:
    params = JobParams(command="make", args=("x" * 500_000,))
    await services.jobs.enqueue_jobs([make_request(params=params)])
    (held,) = await services.jobs.dequeue_jobs(DequeueRequest(queue="builds"))
    return held


async def test_to_wait_for_the_end_of_a_job_reads_it_twice(
    services: Services, store: CountingStore, held: DequeuedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[bytes] = []

    def decode(encoded: bytes) -> JobParams:
        decoded.append(encoded)
        return decode_params(encoded)

    call = asyncio.create_task(services.jobs.get_job(held.job.job_id, wait_seconds=60))
    await until(lambda: store.jobs == 1)
    monkeypatch.setattr(rows, "decode_params", decode)
    for number in range(1, RINGS + 1):
        await services.events.publish_events(held.task_token, [make_line(number)])
    # What it prints wakes nobody who waits for its end.
    assert (store.lives, store.jobs, decoded) == (0, 1, [])
    await services.jobs.complete_jobs([CompleteRequest(held.task_token, make_success())])
    assert (await call).state is JobState.COMPLETED
    assert store.jobs == 2


async def test_to_wait_for_news_as_a_holder_reads_no_parameters(
    services: Services, store: CountingStore, held: DequeuedJob
) -> None:
    request = UpdateRequest(queue="builds", task_token=held.task_token, wait_seconds=60)
    call = asyncio.create_task(services.jobs.update_job(request))
    bell = holder_bell(held.job.job_id)
    await until(lambda: services.notifier.heard)
    for number in range(1, RINGS + 1):
        await services.events.publish_events(held.task_token, [make_line(number)])
    # What its job prints is no news to a holder.
    assert store.lives == 0
    for number in range(1, RINGS + 1):
        services.notifier.ring(bell)
        await until(lambda number=number: store.lives >= number)  # type: ignore[misc]  # of this turn
    assert not call.done()
    await services.jobs.cancel_job(held.job.job_id)
    assert (await call).cancel_requested
    assert store.jobs == 0


async def test_a_stream_begins_without_the_parameters(
    services: Services, store: CountingStore, held: DequeuedJob
) -> None:
    await services.events.publish_events(held.task_token, [make_line(1)])
    request = StreamRequest(job_id=held.job.job_id, from_sequence=1, follow=False)
    assert [event.sequence async for event in services.events.stream_events(request)] == [1]
    assert store.jobs == 0
