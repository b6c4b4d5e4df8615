"""A fleet on the emulator, jobs and all, and two replicas of its processors: one may die at a call."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TypeVar

from airunner.aws.calls import Aws
from airunner.aws.clients import OF_A_FLEET
from airunner.domain.answers import DequeuedJob
from airunner.domain.errors import AirunnerError, PermanentFailure
from airunner.domain.job import JobState
from airunner.domain.requests import DequeueRequest
from airunner.domain.retry import RetryPolicy
from airunner.domain.token import TokenSigner
from airunner.fleet.aws.instances import MANAGED_TAG, POOL_TAG, Ec2Instances
from airunner.fleet.aws.layout import MAX_RECEIVE_COUNT, FleetLayout, fleet_resources
from airunner.fleet.aws.parameters import SsmParameters
from airunner.fleet.aws.records import DynamoDbRecords
from airunner.fleet.consuming import fleet_consumer
from airunner.fleet.dependencies import Dependencies
from airunner.fleet.housekeeper import Housekeeper
from airunner.fleet.housekeeping.old_jobs import PurgedOldJobs
from airunner.fleet.housekeeping.orphaned_instances import OrphanedInstances
from airunner.fleet.housekeeping.pool_audit import PoolAudits
from airunner.fleet.housekeeping.stale_ssm import StaleParameters
from airunner.fleet.messages.housekeeping import HousekeepingMessage, TaskType, parse_housekeeping
from airunner.fleet.messages.termination import (
    EndStatus,
    TerminationMessage,
    format_termination,
    parse_termination,
)
from airunner.fleet.prices import ListedPrices
from airunner.fleet.records import HousekeepingRun
from airunner.fleet.task_run import HousekeepingTask
from airunner.fleet.termination import CONCURRENCY, TerminationProcessor
from airunner.queues.messages import Message, MessageSource, NewMessage
from airunner.queues.sqs import SqsQueue
from airunner.services.composition import Services
from airunner.stores.aws.layout import Layout
from airunner.stores.aws.store import AwsStore
from airunner.testing.factories import TOKEN_KEY, make_request, make_services
from tests.doubles.aws.emulator import EmulatorProcess
from tests.doubles.aws.strict import StrictAws, StrictProxy
from tests.support.aws_queues import make_queues
from tests.support.aws_stores import QUICK, ClockOfAll, make_resources, options_of
from tests.support.fleet import ended_attempt

T = TypeVar("T")

ONCE = RetryPolicy(first_seconds=0, attempts=1)
DAY = 24 * 3600
QUEUE = "builds"
PRICES = {"m1.small": 0.05}
# Whatever time a test lets pass, jobs stay with their instances.
_VISIBILITY_SECONDS = 43_200


class WatchedQueue(SqsQueue):
    """Counts how often the visibility of a message was extended."""

    extensions = 0

    async def extend(self, message: Message, visibility_seconds: int) -> bool:
        is_held = await super().extend(message, visibility_seconds)
        self.extensions += is_held
        return is_held

    def is_extended(self, times: int) -> bool:
        return self.extensions >= times


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """A process of both processors: what it calls goes through a proxy of its own."""

    proxy: StrictProxy
    services: Services
    store: AwsStore
    queue: WatchedQueue
    records: DynamoDbRecords
    parameters: SsmParameters
    instances: Ec2Instances
    clock: ClockOfAll
    dependencies: Dependencies

    @property
    def processor(self) -> TerminationProcessor:
        return TerminationProcessor(
            self.services.jobs,
            self.parameters,
            self.records,
            TokenSigner([TOKEN_KEY]).terminations(),
            dependencies=self.dependencies,
            clock=self.clock,
        )

    async def process_terminations(self) -> None:
        """Process what is in the queue, one after the other, as the consumer does."""
        source = MessageSource(self.queue, parse_termination, clock=self.clock, wait_seconds=0, policy=ONCE)
        while deliveries := await source.receive(10):
            for delivery in deliveries:
                try:
                    await self.processor.process(delivery.body.value)
                except PermanentFailure as failure:
                    await source.dead_letter(delivery, failure)
                else:
                    await source.ack([(delivery, None)])

    @asynccontextmanager
    async def working(self) -> AsyncIterator[Dependencies]:
        """Process termination messages meanwhile, as the process of its own does."""
        busy = replace(self, dependencies=Dependencies(self.clock))
        async with busy._consuming(self.queue, parse_termination, busy.processor.process, CONCURRENCY):
            yield busy.dependencies

    @asynccontextmanager
    async def housekeeping(self, queue: SqsQueue) -> AsyncIterator[Dependencies]:
        """The same for the messages of housekeeping."""
        busy = replace(self, dependencies=Dependencies(self.clock))
        async with busy._consuming(queue, parse_housekeeping, busy.housekeeper.process, len(TaskType)):
            yield busy.dependencies

    @asynccontextmanager
    async def _consuming(
        self,
        queue: SqsQueue,
        decode: Callable[[str], T],
        process: Callable[[T], Awaitable[None]],
        concurrency: int,
    ) -> AsyncIterator[None]:
        consumer, source = fleet_consumer(
            queue,
            decode,
            process,
            dependencies=self.dependencies,
            clock=self.clock,
            concurrency=concurrency,
        )
        work = asyncio.create_task(consumer.run())
        try:
            yield
        except BaseException:
            # Nobody would move the clock that a drain waits for.
            work.cancel()
            raise
        consumer.stop()
        await work
        await source.finish()

    @property
    def housekeeper(self) -> Housekeeper:
        tasks: dict[TaskType, HousekeepingTask] = {
            TaskType.ORPHANED_INSTANCES: OrphanedInstances(self.instances, self.records, self.store),
            TaskType.STALE_SSM: StaleParameters(self.instances, self.parameters, self.records),
            TaskType.OLD_JOBS: PurgedOldJobs(self.store, retention_ms=7 * DAY * 1000),
            TaskType.POOL_AUDIT: PoolAudits(self.instances, self.records, self.store, ListedPrices(PRICES)),
        }
        return Housekeeper(tasks, self.records, self.clock, dependencies=self.dependencies, holder="replica")

    async def housekeep(self, message: HousekeepingMessage) -> HousekeepingRun:
        """Run a task, as a message wishes."""
        return await self.housekeeper.run(message)

    async def dies_at(self, number: int, work: Callable[[], Awaitable[object]], *, executed: bool) -> bool:
        """Do something and die at one of its calls; return whether it had that many."""
        self.proxy.faults.die_after(number, executed=executed)
        try:
            await work()
        except AirunnerError:
            assert self.proxy.faults.is_dead
        await self.store._background_tasks.finish()
        has_died = self.proxy.faults.is_dead
        self.proxy.faults.revive()
        return has_died


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetWorld:
    """Queues, tables, machines and parameters, one clock for all, and two replicas."""

    emulator: EmulatorProcess
    aws: StrictAws
    env: str
    clock: ClockOfAll
    direct: Aws
    dead_letters: SqsQueue
    survivor: Replica
    mortal: Replica

    async def run_job(self, instance_id: str = "") -> DequeuedJob:
        """Enqueue a job that an instance gets, with its parameter."""
        (held,) = await self.run_jobs([instance_id or _new_instance_id()])
        return held

    async def run_jobs(self, instance_ids: Sequence[str] = (), *, count: int = 0) -> list[DequeuedJob]:
        """Enqueue jobs that instances get, with their parameters."""
        instance_ids = instance_ids or [_new_instance_id() for _ in range(count)]
        first, *others = map(self.survivor.parameters.name_of, instance_ids)
        await self.put_parameter(first)
        self.emulator.copy_parameter(first, others)
        await self.survivor.services.jobs.enqueue_jobs([make_request(QUEUE) for _ in instance_ids])
        return [await self._claim(instance_id) for instance_id in instance_ids]

    async def put_parameter(self, name: str) -> None:
        """Write a parameter, whether or not the answer of a first try was lost."""
        await self.direct.ssm("PutParameter", Name=name, Value="{}", Type="SecureString", Overwrite=True)

    async def _claim(self, instance_id: str) -> DequeuedJob:
        demand = DequeueRequest(
            queue=QUEUE,
            instance_id=instance_id,
            wait_seconds=0,
            visibility_timeout_seconds=_VISIBILITY_SECONDS,
        )
        for _ in range(20):
            if held := await self.survivor.services.jobs.dequeue_jobs(demand):
                return held[0]
        raise AssertionError("no job came")

    def end(self, held: DequeuedJob, status: EndStatus = EndStatus.SUCCESS) -> TerminationMessage:
        return ended_attempt(held, self.clock.now(), status)

    async def send(self, *messages: TerminationMessage) -> None:
        bodies = [NewMessage(body=format_termination(message)) for message in messages]
        sent = await self.survivor.queue.send(bodies)
        assert all(isinstance(one, str) for one in sent)

    async def waiting(self, queue: SqsQueue | None = None) -> int:
        """Return how many messages are in the queue, held or not."""
        depth = await (queue or self.survivor.queue).depth()
        return depth.visible + depth.in_flight + depth.delayed

    async def put_aside(self) -> int:
        """Return how many messages are in the dead-letter queue."""
        return (await self.dead_letters.depth()).visible

    async def until_empty(self, queue: SqsQueue | None = None) -> None:
        """Return once all messages are processed; time passes for those that wait."""
        async with asyncio.timeout(120):
            while await self.waiting(queue):
                self.clock.advance(1)

    async def state(self, held: DequeuedJob) -> JobState:
        return (await self.survivor.store.get_life(held.job.job_id)).state

    async def has_parameter(self, instance_id: str) -> bool:
        name = self.survivor.parameters.name_of(instance_id)
        return bool((await self.direct.ssm("GetParameters", Names=[name]))["Parameters"])

    def launch(self, count: int, *, age_seconds: float = 0, pool: str = "") -> list[str]:
        """Add machines of the fleet; ages are by the clock of this world."""
        ahead = self.clock.now() / 1000 - time.time()
        tags: Mapping[str, str] = {MANAGED_TAG: "true", POOL_TAG: pool or self.env}
        return self.aws.ec2.add_crowd(count, tags, age_seconds=age_seconds - ahead)


def _new_instance_id() -> str:
    return f"i-{secrets.token_hex(8)}0"


@asynccontextmanager
async def opened_fleet(aws: StrictAws, emulator: EmulatorProcess, env: str) -> AsyncIterator[FleetWorld]:
    """Make all of it, empty."""
    clock = ClockOfAll(emulator)
    clock.step(time.time() - clock.now() / 1000)
    # A first call of a service waits for the emulator to import it.
    options = replace(options_of(emulator.url), clients=OF_A_FLEET, call_seconds=60, table_seconds=60)
    async with Aws(options) as direct, aws.proxy() as safe, aws.proxy() as deadly:
        layout = FleetLayout(env=env)
        tables = fleet_resources(layout).tables
        await asyncio.gather(*(direct.dynamodb("CreateTable", **table.creation) for table in tables))
        dead_url, url = await make_queues(direct, layout.queue_name("termination"), MAX_RECEIVE_COUNT)
        made = await make_resources(emulator.url, f"{env}j", queues=[QUEUE])
        # Upkeep and walks look at each queue and shard.
        jobs = replace(made, queues={QUEUE: made.queues[QUEUE]}, listing_shards=1)
        async with (
            _replica(safe, clock, layout, url, jobs) as survivor,
            _replica(deadly, clock, layout, url, jobs) as mortal,
        ):
            yield FleetWorld(
                emulator=emulator,
                aws=aws,
                env=env,
                clock=clock,
                direct=direct,
                dead_letters=SqsQueue(direct, dead_url, clock=clock),
                survivor=survivor,
                mortal=mortal,
            )


@asynccontextmanager
async def _replica(
    proxy: StrictProxy, clock: ClockOfAll, layout: FleetLayout, url: str, jobs: Layout
) -> AsyncIterator[Replica]:
    store = AwsStore(
        Aws(options_of(proxy.url), policy=QUICK), jobs, clock, short_poll_seconds=0, watches_parts=False
    )
    options = replace(options_of(proxy.url), clients=OF_A_FLEET)
    async with Aws(options, policy=QUICK) as aws, make_services(store, clock) as services:
        yield Replica(
            proxy=proxy,
            services=services,
            store=store,
            queue=WatchedQueue(aws, url, clock=clock),
            records=DynamoDbRecords(aws, layout),
            parameters=SsmParameters(aws, prefix=f"/{layout.env}/runners"),
            instances=Ec2Instances(aws),
            clock=clock,
            dependencies=Dependencies(clock, policy=ONCE),
        )
