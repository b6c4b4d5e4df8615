"""A message of a healthy job is not received so often that SQS puts it aside, whatever happens around it.

The queues have a redrive policy that is a hundred times stricter than the one we provision.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial

import pytest

from airunner.aws.calls import Aws
from airunner.domain.job import Job
from airunner.services.jobs import JobService
from airunner.stores.aws.layout import Layout
from airunner.stores.aws.store import AwsStore
from airunner.stores.records import AttemptKey, Demand, Release, Retention
from airunner.testing.clock import ManualClock
from airunner.testing.conditions import until
from airunner.testing.factories import make_request, make_services
from tests.doubles.aws.emulator import EmulatorProcess
from tests.doubles.aws.faults import Fault, FaultKind
from tests.doubles.aws.strict import StrictProxy
from tests.support.aws_queues import limit_receives
from tests.support.aws_stores import make_resources, options_of

pytest_plugins = ("tests.support.aws",)

FEW_RECEIVES = 10
# How long a message is hidden that was received, and given back at the most; and how long a poll waits.
HIDDEN_SECONDS = 30
GIVEN_BACK_SECONDS = 5
POLL_SECONDS = 20
MANY_LOOKS = 20
QUEUES = ("builds", "priority")
TABLE_CALLS = ("BatchGetItem", "GetItem", "UpdateItem", "Query")


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A worker that waits at a server."""

    store: AwsStore
    demand: Demand
    call: asyncio.Task[Sequence[Job]]


async def withdraw(waiting: Sequence[Waiting]) -> list[Job]:
    """Let workers leave; return what they got."""
    for each in waiting:
        await each.store.withdraw(each.demand)
    return list(itertools.chain.from_iterable([await each.call for each in waiting]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """Servers on one emulator, all with one clock, which SQS goes by too."""

    stores: Sequence[AwsStore]
    jobs: JobService
    clock: ManualClock
    aws: StrictProxy
    emulator: EmulatorProcess
    account: Aws
    layout: Layout

    def pass_time(self, seconds: float) -> None:
        self.emulator.advance(seconds)
        self.clock.advance(seconds)

    async def until(self, condition: Callable[[], bool], *, sqs_seconds: float = 0.0) -> None:
        """Wait for something while time passes for the servers, and if told to, for SQS."""

        def holds() -> bool:
            self.clock.advance(0.1)
            if sqs_seconds:
                self.emulator.advance(sqs_seconds)
            return condition()

        await until(holds)

    async def let_polls_end(self, queue: str) -> None:
        """Let the time of a long poll pass, once the message of a queue does not go from poll to poll."""
        looks = 0
        while looks < MANY_LOOKS:
            hidden, put_aside = await self.counts(queue)
            assert put_aside == 0
            looks = looks + 1 if hidden else 0
        # Between two steps a message that went back may come again.
        for _ in range(POLL_SECONDS // GIVEN_BACK_SECONDS + 1):
            self.pass_time(GIVEN_BACK_SECONDS)
            for _ in range(3):
                assert (await self.counts(queue))[1] == 0

    def calls(self, operation: str) -> int:
        return self.aws.counts.calls[operation]

    async def enqueue(self, queue: str = "builds", *, delay_seconds: int = 0) -> None:
        await self.jobs.enqueue_jobs([make_request(queue, delay_seconds=delay_seconds)])

    def called_again(self, operation: str, before: int) -> bool:
        return self.calls(operation) > before

    def wait_for_jobs(
        self, max_jobs: int, queues: tuple[str, ...] = ("builds",), *, workers: int = 1
    ) -> list[Waiting]:
        """Let workers wait at each server."""
        waiting = []
        for store in list(self.stores) * workers:
            demand = Demand(queues=queues, max_jobs=max_jobs, visibility_seconds=60)
            call = asyncio.create_task(store.dequeue_jobs(demand))
            waiting.append(Waiting(store=store, demand=demand, call=call))
        return waiting

    async def counts(self, queue: str) -> tuple[int, int]:
        """Return how many messages of a queue are hidden, and how many were put aside."""
        hidden, put_aside = "ApproximateNumberOfMessagesNotVisible", "ApproximateNumberOfMessages"
        found = [
            await self.account.sqs("GetQueueAttributes", QueueUrl=url, AttributeNames=[hidden, put_aside])
            for url in (self.layout.queues[queue], f"{self.layout.queues[queue]}-dlq")
        ]
        return int(found[0]["Attributes"][hidden]), int(found[1]["Attributes"][put_aside])

    async def receives(self, job: Job) -> int:
        """Give a job back, and return how often its message was received up to then."""
        key = AttemptKey(job.job_id, job.attempt, job.receipt)
        await self.stores[0].release_job(Release(key=key, unstarted=True), self.clock.now())
        answer = await self.account.sqs(
            "ReceiveMessage",
            QueueUrl=self.layout.queues[job.queue],
            AttributeNames=["ApproximateReceiveCount"],
        )
        (message,) = answer["Messages"]
        return int(message["Attributes"]["ApproximateReceiveCount"]) - 1


OpenFleet = Callable[[int], Awaitable[Fleet]]


@pytest.fixture
async def open_fleet(aws: StrictProxy, aws_env: str, emulator: EmulatorProcess) -> AsyncIterator[OpenFleet]:
    async with AsyncExitStack() as stack:

        async def opened(servers: int) -> Fleet:
            layout = await make_resources(emulator.url, aws_env, queues=QUEUES, more=())
            account = await stack.enter_async_context(Aws(options_of(emulator.url)))
            for url in layout.queues.values():
                await limit_receives(account, url, FEW_RECEIVES)
            clock = ManualClock()
            options = replace(options_of(aws.url), attempts=1, clients=("dynamodb", "sqs", "polls"))
            stores = [
                AwsStore(Aws(options), layout, clock, real_clock=clock, watches_parts=False)
                for _ in range(servers)
            ]
            services = await stack.enter_async_context(make_services(stores[0], clock))
            for store in stores[1:]:
                await store.open()
                stack.push_async_callback(store.close)
            return Fleet(
                stores=stores,
                jobs=services.jobs,
                clock=clock,
                aws=aws,
                emulator=emulator,
                account=account,
                layout=layout,
            )

        yield opened


@pytest.mark.parametrize("minutes", [pytest.param(5, marks=pytest.mark.slow), 10])
async def test_the_table_is_away_while_workers_wait(open_fleet: OpenFleet, minutes: int) -> None:
    fleet = await open_fleet(2)
    for _ in range(5):
        await fleet.enqueue(delay_seconds=10)
    waiting = fleet.wait_for_jobs(max_jobs=5)
    await fleet.until(lambda: fleet.calls("ReceiveMessage") == 2)
    for operation in TABLE_CALLS:
        fleet.aws.faults.add(Fault(operation=operation, kind=FaultKind.RESET))
    for _ in range(minutes * 60 // HIDDEN_SECONDS + 1):
        before = fleet.calls("GetItem")
        fleet.pass_time(HIDDEN_SECONDS + 1)
        await fleet.until(partial(fleet.called_again, "GetItem", before))
    # Those that were parked when it began, and not one more.
    assert fleet.calls("ReceiveMessage") == 2
    fleet.aws.faults.clear()
    fleet.pass_time(HIDDEN_SECONDS + 1)
    await fleet.until(lambda: any(each.call.done() for each in waiting))
    found = await withdraw(waiting)
    assert len(found) == 5
    assert await fleet.receives(found[0]) <= 2
    assert (await fleet.counts("builds"))[1] == 0


@pytest.mark.parametrize(("servers", "workers"), [(4, 4), pytest.param(12, 1, marks=pytest.mark.slow)])
async def test_a_queue_is_paused_while_workers_wait(
    open_fleet: OpenFleet, servers: int, workers: int
) -> None:
    fleet = await open_fleet(servers)
    waiting = fleet.wait_for_jobs(10, workers=workers)
    await fleet.until(lambda: fleet.calls("ReceiveMessage") == len(waiting))
    await fleet.jobs.set_paused("builds", paused=True)
    await fleet.enqueue()
    await fleet.let_polls_end("builds")
    # No poll is left, and none begins.
    received = fleet.calls("ReceiveMessage")
    await fleet.jobs.set_paused("builds", paused=False)
    assert received == len(waiting)
    await fleet.until(lambda: any(each.call.done() for each in waiting), sqs_seconds=0.1)
    (job,) = await withdraw(waiting)
    assert await fleet.receives(job) < FEW_RECEIVES


@pytest.mark.parametrize(
    "leaves", ["by its own will", pytest.param("with a job of another queue", marks=pytest.mark.slow)]
)
async def test_polls_outlive_those_they_were_for(open_fleet: OpenFleet, leaves: str) -> None:
    fleet = await open_fleet(12)
    waiting = fleet.wait_for_jobs(1, ("priority", "builds"))
    await fleet.until(lambda: fleet.calls("ReceiveMessage") >= 24)
    if leaves == "by its own will":
        await withdraw(waiting)
    else:
        for _ in waiting:
            await fleet.enqueue()
        await fleet.until(lambda: all(each.call.done() for each in waiting))
    await fleet.enqueue("priority")
    await fleet.let_polls_end("priority")
    again = fleet.wait_for_jobs(1, ("priority", "builds"))
    await fleet.until(lambda: any(each.call.done() for each in again), sqs_seconds=0.1)
    (job,) = await withdraw(again)
    assert await fleet.receives(job) < FEW_RECEIVES


async def test_maintenance_sends_the_letters_of_open_jobs_back(open_fleet: OpenFleet) -> None:
    fleet = await open_fleet(1)
    (store,) = fleet.stores
    url = fleet.layout.queues["builds"]
    await fleet.enqueue()
    for _ in range(FEW_RECEIVES + 1):
        # Somebody who receives and does nothing.
        await fleet.account.sqs("ReceiveMessage", QueueUrl=url, VisibilityTimeout=0)
    assert (await fleet.counts("builds"))[1] == 1
    fleet.clock.advance(60)
    fleet.aws.faults.next("GetQueueAttributes", FaultKind.RESET)
    # One that fails hurts nothing else of the pass, and the next goes on.
    await store.maintain(Retention(), fleet.clock.now())
    assert (await fleet.counts("builds"))[1] == 1
    fleet.clock.advance(60)
    await store.maintain(Retention(), fleet.clock.now())
    assert (await fleet.counts("builds"))[1] == 0
    demand = Demand(queues=("builds",), max_jobs=1, visibility_seconds=60, waits=False)
    (job,) = await store.dequeue_jobs(demand)
    assert await fleet.receives(job) == 1
