"""Two replicas on one set of tables and queues: what one does, the other's watchers and holders learn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from airunner.domain.answers import HeldJob
from airunner.domain.event import Event
from airunner.domain.job import JobParams, JobState
from airunner.domain.requests import StreamRequest, UpdateRequest
from airunner.services.composition import ServiceRules, Services
from airunner.stores.aws.layout import Layout
from airunner.testing.clock import ManualClock
from airunner.testing.conditions import until
from airunner.testing.conformance.stores.backend import Api
from airunner.testing.factories import NEVER_SECONDS, make_batch, make_request, make_services, make_success
from tests.doubles.aws.strict import StrictProxy
from tests.support.aws_stores import BorrowLayout, make_store


class Replicas:
    """Two servers' services, each on a clock of its own, so that each looks for news when a test says so."""

    def __init__(self, *replicas: Services) -> None:
        self.a, self.b = (
            Api(jobs=services.jobs, events=services.events, clock=_clock_of(services), services=services)
            for services in replicas
        )

    async def polled(self, api: Api) -> None:
        """Let so much time pass for a replica that it looks at every job that somebody listens to there."""
        (loop,) = (loop for loop in api.services._loops if loop.name == "replica_news")
        await until(lambda: api.clock.waiting > 0)
        api.clock.advance(4)
        await until(lambda: loop.last_turn_at == api.clock.monotonic())


@pytest.fixture
async def replicas(aws: StrictProxy, borrow_layout: BorrowLayout) -> AsyncIterator[Replicas]:
    layout = await borrow_layout()
    async with _services(aws, layout) as first, _services(aws, layout) as second:
        yield Replicas(first, second)


def _services(aws: StrictProxy, layout: Layout) -> Services:
    clock = ManualClock()
    rules = ServiceRules(maintenance_interval_seconds=NEVER_SECONDS)
    return make_services(make_store(aws.url, layout, clock), clock, rules)


def _clock_of(services: Services) -> ManualClock:
    assert isinstance(services.clock, ManualClock)
    return services.clock


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
    replicas.a.clock.advance(30)
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
    # Each watcher reads, and reads again when it is first heard of the job.
    await until(lambda: aws.counts.calls["GetItem"] == 6)
    aws.counts.reset()
    for looks in range(1, 3):
        await replicas.polled(replicas.b)
        await until(lambda looks=looks: aws.counts.calls["BatchGetItem"] == looks)  # type: ignore[misc]  # of this turn
    assert aws.counts.calls == {"BatchGetItem": 2}
    for watch in watching:
        watch.cancel()


@pytest.mark.parametrize("watchers", [1, 10])
async def test_a_line_costs_no_read_where_it_was_published_however_many_watch(
    replicas: Replicas, aws: StrictProxy, watchers: int
) -> None:
    held = await replicas.a.new_claim()
    streams: list[list[Event]] = [[] for _ in range(watchers)]
    request = StreamRequest(job_id=held.job.job_id)
    watching = [asyncio.create_task(replicas.a.watch(request, seen)) for seen in streams]
    await replicas.a.publish(held, make_batch(1, 3))
    await until(lambda: all(len(seen) == 3 for seen in streams))
    await until(lambda: replicas.a.clock.waiting >= watchers + 2)
    for last in (6, 9):
        aws.counts.reset()
        await replicas.a.publish(held, make_batch(last - 2, last))
        await until(lambda last=last: all(len(seen) == last for seen in streams))  # type: ignore[misc]  # as above
        # Written: the batch and the row. What was just committed is at hand.
        assert aws.counts.calls == {"PutItem": 1, "UpdateItem": 1}
        assert aws.counts.items_read == 0
    for watch in watching:
        watch.cancel()


async def test_a_heartbeat_that_waits_is_not_woken_by_lines_and_reads_no_parameters(
    replicas: Replicas, aws: StrictProxy
) -> None:
    params = JobParams(command="make", args=("x" * 100_000,))
    held = await replicas.a.new_claim(make_request(params=params))
    waiting = asyncio.create_task(_update(replicas.a, held.task_token, watched=False))
    await until(lambda: held.job.job_id in replicas.a.services.notifier.jobs)
    await until(lambda: replicas.a.clock.waiting >= 3)
    aws.counts.reset()
    for sequence in range(1, 11):
        await replicas.b.publish(held, make_batch(sequence, sequence))
    await replicas.polled(replicas.a)
    await until(lambda: aws.counts.calls["BatchGetItem"] == 1)
    assert aws.counts.calls["UpdateItem"] >= 10
    # B read the row once, before it remembered it.
    assert aws.counts.calls["GetItem"] <= 1
    aws.counts.reset()
    await replicas.b.jobs.cancel_job(held.job.job_id)
    read = aws.counts.calls["GetItem"]
    await replicas.polled(replicas.a)
    assert (await waiting).cancel_requested
    assert aws.counts.calls["GetItem"] == read + 1


async def _update(api: Api, task_token: str, *, watched: bool) -> HeldJob:
    request = UpdateRequest(queue="builds", task_token=task_token, wait_seconds=30, watched=watched)
    return await api.jobs.update_job(request)
