"""Two replicas on one set of tables and queues: what one does, the other's watchers and holders learn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from airunner.domain.answers import HeldJob
from airunner.domain.event import Event
from airunner.domain.job import JobState
from airunner.domain.requests import StreamRequest, UpdateRequest
from airunner.services.composition import ServiceRules, Services
from airunner.stores.aws.layout import Layout
from airunner.testing.clock import ManualClock
from airunner.testing.conditions import until
from airunner.testing.conformance.stores.backend import Api
from airunner.testing.factories import NEVER_SECONDS, make_batch, make_services, make_success
from tests.doubles.aws.strict import StrictProxy
from tests.support.aws_stores import BorrowLayout, make_store


class Replicas:
    """Two servers' services, on one clock."""

    def __init__(self, clock: ManualClock, platforms: tuple[Services, Services]) -> None:
        self.clock = clock
        self.a, self.b = (
            Api(jobs=services.jobs, events=services.events, clock=clock, services=services)
            for services in platforms
        )

    async def polled(self, api: Api) -> None:
        """Let a replica look for news once."""
        assert api.services.replica_news
        await api.services.replica_news.run_once()


@pytest.fixture
async def replicas(aws: StrictProxy, borrow_layout: BorrowLayout) -> AsyncIterator[Replicas]:
    async with _replicas(aws, await borrow_layout()) as opened:
        yield opened


@asynccontextmanager
async def _replicas(aws: StrictProxy, layout: Layout) -> AsyncIterator[Replicas]:
    clock = ManualClock()
    rules = ServiceRules(maintenance_interval_seconds=NEVER_SECONDS)
    async with (
        make_services(make_store(aws.url, layout, clock), clock, rules) as first,
        make_services(make_store(aws.url, layout, clock), clock, rules) as second,
    ):
        yield Replicas(clock, (first, second))


async def test_a_line_published_through_one_reaches_a_watcher_on_the_other(replicas: Replicas) -> None:
    held = await replicas.a.new_claim()
    seen: list[Event] = []
    watching = asyncio.create_task(replicas.b.watch(StreamRequest(job_id=held.job.job_id), seen))
    await until(lambda: held.job.job_id in replicas.b.services.notifier.jobs)
    await replicas.polled(replicas.b)
    await replicas.a.publish(held, make_batch(1, 3))
    await replicas.polled(replicas.b)
    await until(lambda: len(seen) == 3)
    await replicas.a.complete(held, make_success(final_sequence=3))
    await replicas.polled(replicas.b)
    await watching


async def test_a_holder_learns_of_a_cancellation_and_of_watchers_elsewhere(replicas: Replicas) -> None:
    held = await replicas.a.new_claim()
    assert not (await replicas.a.beat(held)).watched
    watching = asyncio.create_task(replicas.b.watch(StreamRequest(job_id=held.job.job_id), []))
    await until(lambda: bool(replicas.b.services.watchers.jobs))
    waiting = asyncio.create_task(_update(replicas.a, held.task_token, watched=False))
    await until(lambda: held.job.job_id in replicas.a.services.notifier.jobs)
    await replicas.polled(replicas.b)
    await replicas.polled(replicas.a)
    assert (await waiting).watched
    assert (await replicas.a.publish(held, make_batch(1, 1))).watched
    waiting = asyncio.create_task(_update(replicas.a, held.task_token, watched=True))
    await until(lambda: held.job.job_id in replicas.a.services.notifier.jobs)
    await replicas.b.jobs.cancel_job(held.job.job_id)
    await replicas.polled(replicas.a)
    assert (await waiting).cancel_requested
    watching.cancel()


async def test_attention_that_is_not_renewed_ends(replicas: Replicas) -> None:
    held = await replicas.a.new_claim()
    watching = asyncio.create_task(replicas.b.watch(StreamRequest(job_id=held.job.job_id), []))
    await until(lambda: bool(replicas.b.services.watchers.jobs))
    await replicas.polled(replicas.b)
    watching.cancel()
    assert (await replicas.a.beat(held)).watched
    replicas.clock.advance(26)
    assert not (await replicas.a.beat(held)).watched


async def test_a_token_of_one_replica_is_good_on_the_other(replicas: Replicas) -> None:
    held = await replicas.a.new_claim()
    await replicas.b.publish(held, make_batch(1, 2))
    await replicas.a.publish(held, make_batch(3, 4))
    await replicas.b.beat(held)
    assert await replicas.b.complete(held, make_success(final_sequence=4)) is JobState.COMPLETED
    assert await replicas.a.stored(held.job.job_id) == [(1, sequence) for sequence in range(1, 5)]


async def test_an_idle_watcher_costs_its_share_of_one_read(replicas: Replicas, aws: StrictProxy) -> None:
    held = [await replicas.a.new_claim() for _ in range(3)]
    aws.counts.reset()
    watching = [
        asyncio.create_task(replicas.b.watch(StreamRequest(job_id=one.job.job_id), [])) for one in held
    ]
    await until(lambda: len(replicas.b.services.watchers.jobs) == 3)
    await replicas.polled(replicas.b)
    # Each watcher looks where to begin, reads, and reads again when it is first heard of the job.
    await until(lambda: aws.counts.calls["GetItem"] == 9)
    aws.counts.reset()
    for _ in range(4):
        await replicas.polled(replicas.b)
    assert aws.counts.calls == {"BatchGetItem": 4}
    for watch in watching:
        watch.cancel()


async def _update(api: Api, task_token: str, *, watched: bool) -> HeldJob:
    request = UpdateRequest(queue="builds", task_token=task_token, wait_seconds=30, watched=watched)
    return await api.jobs.update_job(request)
