"""AWS, or one service of it, is away for ten minutes or ten hours, and workers go on with what they have.

Nothing that lives is run again, nothing is lost or put aside, and the job of a worker that died meanwhile is
run once more. All that clients were told is judged by the history checker.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace

import pytest

from airunner.aws.calls import Aws
from airunner.domain.answers import DequeuedJob
from airunner.domain.errors import AirunnerError, NotFound
from airunner.domain.event import Event
from airunner.domain.job import JobState
from airunner.stores.aws.store import AwsStore
from airunner.testing.conformance.stores.backend import QUEUE, Api
from airunner.testing.factories import make_batch, make_request, make_services
from tests.crash.witness import Witness
from tests.doubles.aws.emulator import EmulatorProcess
from tests.doubles.aws.strict import StrictAws
from tests.support.aws_stores import QUICK, BorrowLayout, ClockOfAll, make_store, options_of, outage

REPLICAS = 2
VISIBILITY_SECONDS = 30
# A replica to which nothing answers for longer takes it for an outage.
STEP_SECONDS = 5
BEAT_STEPS = 3
MAINTENANCE_STEPS = 6
# A lapse, the skew of clocks, the reconciler's look a minute later, and the pass that comes after it.
RECOVERY_STEPS = (VISIBILITY_SECONDS + 5 + 60) // STEP_SECONDS + 2 * MAINTENANCE_STEPS
OUTAGE_STEPS = 12


@dataclass(slots=True)
class HoldingWorker:
    """A worker with one job: it beats and prints a line, and repeats what nobody has acknowledged."""

    api: Api
    held: DequeuedJob
    printed: int = 0
    superseded: bool = False
    unpublished: list[Event] = field(default_factory=list)

    async def go_on(self) -> None:
        if not self.unpublished:
            self.printed += 1
            self.unpublished = [make_batch(self.printed, self.printed)]
        try:
            await self.api.beat(self.held)
            await self.api.publish(self.held, *self.unpublished)
            self.unpublished = []
        except NotFound:
            self.superseded = True
        except AirunnerError:
            pass  # only a superseded worker ends its process

    async def finish(self) -> JobState:
        await self.go_on()
        return await self.api.complete(self.held)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """Replicas on one set of tables and queues, the workers that hold jobs, and idle ones that want some."""

    emulator: EmulatorProcess
    clock: ClockOfAll
    account: Aws
    dead_letter_url: str
    stores: list[AwsStore]
    replicas: list[Api]
    witness: Witness
    workers: list[HoldingWorker] = field(default_factory=list)

    async def take(self, replica: Api, *, max_attempts: int) -> HoldingWorker:
        """Have a worker begin with a job of its own."""
        await replica.enqueue(make_request(max_attempts=max_attempts))
        (held,) = await replica.dequeue(visibility_seconds=VISIBILITY_SECONDS)
        worker = HoldingWorker(replica, held)
        await worker.go_on()
        self.workers.append(worker)
        return worker

    async def live(self, steps: int) -> None:
        """Let all of them do for a while what they do, seen by replicas that are asked all the time."""
        for step in range(steps):
            self.clock.advance(STEP_SECONDS)
            for store in self.stores:
                assert store.parts is not None
                await store.parts.keep_well()
            if step % MAINTENANCE_STEPS == 0:
                await self.look_after()
                await self.serve_idle_workers()
            if step % BEAT_STEPS == 0:
                await self.beat()

    async def be_cut_off(self, seconds: int) -> None:
        """Let time pass while calls fail; a jump of the clock is one more silence."""
        for _ in range(OUTAGE_STEPS):
            self.clock.advance(seconds / OUTAGE_STEPS)
            await self.serve_idle_workers()
            await self.beat()
            await self.look_after()

    async def beat(self) -> None:
        for worker in self.workers:
            await worker.go_on()

    async def look_after(self) -> None:
        for replica in self.replicas:
            await tolerant(replica.services.maintenance.run_once())

    async def serve_idle_workers(self) -> None:
        """Let idle workers ask every replica, and end at once what they get."""
        for replica in self.replicas:
            with suppress(AirunnerError):
                for held in await replica.dequeue(max_jobs=10, visibility_seconds=VISIBILITY_SECONDS):
                    await replica.publish(held, make_batch(1, 3))
                    await replica.complete(held)

    async def count_dead_letters(self) -> int:
        answer = await self.account.sqs(
            "GetQueueAttributes",
            QueueUrl=self.dead_letter_url,
            AttributeNames=["ApproximateNumberOfMessages"],
        )
        return int(answer["Attributes"]["ApproximateNumberOfMessages"])


@pytest.fixture
async def fleet(
    strict_aws: StrictAws, emulator: EmulatorProcess, borrow_layout: BorrowLayout
) -> AsyncIterator[Fleet]:
    clock, witness = ClockOfAll(emulator), Witness()
    made = await borrow_layout()
    # Upkeep looks at each queue and shard.
    layout = replace(made, queues={QUEUE: made.queues[QUEUE]}, listing_shards=1)
    async with AsyncExitStack() as stack:
        stores, replicas = [], []
        for number in range(REPLICAS):
            proxy = await stack.enter_async_context(strict_aws.proxy())
            store = make_store(proxy.url, layout, clock, policy=QUICK, watches_parts=True)
            services = await stack.enter_async_context(make_services(store, clock))
            api = Api(jobs=services.jobs, events=services.events, clock=clock, services=services)
            stores.append(store)
            replicas.append(witness.accompany(api, f"replica {number}"))
        yield Fleet(
            emulator=emulator,
            clock=clock,
            account=await stack.enter_async_context(Aws(options_of(emulator.url))),
            dead_letter_url=f"{layout.queues[QUEUE]}-dlq",
            stores=stores,
            replicas=replicas,
            witness=witness,
        )


@pytest.mark.parametrize(
    ("service", "seconds"),
    [
        ("dynamodb", 600),
        pytest.param("sqs", 600, marks=pytest.mark.slow),
        pytest.param("*", 36_000, marks=pytest.mark.slow),
    ],
)
async def test_nothing_that_lives_is_run_again_and_nothing_is_lost(
    fleet: Fleet, service: str, seconds: int
) -> None:
    # The last try of one would be lost with it, and another would be run again.
    living = [
        await fleet.take(replica, max_attempts=1 + place) for place, replica in enumerate(fleet.replicas)
    ]
    dying = await fleet.take(fleet.replicas[0], max_attempts=3)
    await fleet.live(1)
    waiting = await fleet.replicas[1].enqueue_many(2)

    fleet.workers.remove(dying)
    with outage(fleet.emulator, service):
        await fleet.be_cut_off(seconds)
        # Whoever may still add jobs does.
        with suppress(AirunnerError):
            waiting.append(await fleet.replicas[1].enqueue())
    # The holders are the last to come back.
    await fleet.look_after()
    await fleet.serve_idle_workers()
    await fleet.live(RECOVERY_STEPS)

    assert not any(worker.superseded for worker in living)
    assert [await worker.finish() for worker in living] == [JobState.COMPLETED] * len(living)
    ended = [await fleet.replicas[0].jobs.get_job(job_id) for job_id in waiting]
    assert [(job.state, job.attempt) for job in ended] == [(JobState.COMPLETED, 1)] * len(waiting)
    again = await fleet.replicas[0].jobs.get_job(dying.held.job.job_id)
    assert (again.state, again.attempt) == (JobState.COMPLETED, 2)
    assert await fleet.count_dead_letters() == 0
    assert await fleet.witness.judge(fleet.replicas[0]) == []


async def tolerant(work: Awaitable[None]) -> None:
    """Wait for something that AWS may be too far away for."""
    with suppress(AirunnerError):
        await work
