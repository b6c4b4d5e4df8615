"""Both processors on queues of SQS, with parameters of SSM, machines of EC2 and records in DynamoDB."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from airunner.aws.calls import Aws
from airunner.aws.clients import OF_A_FLEET
from airunner.aws.provision import provision
from airunner.domain.clock import SystemClock
from airunner.domain.job import JobParams, JobState
from airunner.domain.requests import DequeueRequest, EnqueueRequest
from airunner.domain.token import TokenSigner
from airunner.fleet.aws.instances import Ec2Instances
from airunner.fleet.aws.layout import CALL_POLICY, FleetLayout, fleet_resources
from airunner.fleet.aws.parameters import SsmParameters
from airunner.fleet.aws.records import DynamoDbRecords
from airunner.fleet.consuming import fleet_consumer
from airunner.fleet.dependencies import Dependencies
from airunner.fleet.housekeeper import Housekeeper
from airunner.fleet.housekeeping.stale_ssm import StaleParameters
from airunner.fleet.messages.housekeeping import (
    HousekeepingMessage,
    TaskType,
    format_housekeeping,
    parse_housekeeping,
)
from airunner.fleet.messages.termination import (
    EndStatus,
    TerminationMessage,
    format_termination,
    parse_termination,
)
from airunner.fleet.records import RunOutcome
from airunner.fleet.termination import TerminationProcessor
from airunner.queues.messages import NewMessage
from airunner.queues.sqs import SqsQueue
from airunner.services.composition import Services
from airunner.stores.memory import MemoryStore
from airunner.testing.conditions import until
from tests.doubles.aws.emulator import EmulatorProcess
from tests.support.aws_stores import options_of

pytest_plugins = ("tests.support.aws",)

SIGNER = TokenSigner([b"a key of the tests"])
CLOCK = SystemClock()
INSTANCE = "i-0123456789abcdef0"


@asynccontextmanager
async def working(
    queue: SqsQueue, decode: Any, process: Any, dependencies: Dependencies
) -> AsyncIterator[None]:
    consumer, source = fleet_consumer(
        queue, decode, process, dependencies=dependencies, clock=CLOCK, concurrency=5
    )
    work = asyncio.create_task(consumer.run())
    try:
        yield
    finally:
        consumer.stop()
        await work
        await source.finish()


async def test_a_message_of_each_queue_is_processed(emulator: EmulatorProcess, aws_env: str) -> None:
    """One test for both, since tables and queues take their time."""
    layout = FleetLayout(env=aws_env)
    options = replace(options_of(emulator.url), clients=OF_A_FLEET)
    async with (
        Aws(options, policy=CALL_POLICY) as aws,
        Services(MemoryStore(CLOCK), CLOCK, SIGNER) as services,
    ):
        made = await provision(aws, fleet_resources(layout), CLOCK)
        urls = {resource.name: resource.url for resource in made}
        queues = {
            name: SqsQueue(aws, urls[layout.queue_name(name)]) for name in ("termination", "housekeeping")
        }
        parameters = SsmParameters(aws, prefix=f"/{aws_env}/runners")
        records, dependencies = DynamoDbRecords(aws, layout), Dependencies(CLOCK)
        name = parameters.name_of(INSTANCE)
        await aws.ssm("PutParameter", Name=name, Value="{}", Type="SecureString")
        message = await ended_attempt(services)
        processor = TerminationProcessor(
            services.jobs,
            parameters,
            records,
            SIGNER.terminations(),
            dependencies=dependencies,
            clock=CLOCK,
        )
        async with working(queues["termination"], parse_termination, processor.process, dependencies):
            await queues["termination"].send([NewMessage(body=format_termination(message))])
            await until_empty(queues["termination"])
        assert (await services.store.get_job(message.job_id)).state is JobState.COMPLETED
        assert [page async for page in parameters.list()] == [[]]
        assert not await records.count_once(message.job_id, "1", CLOCK.now())

        tasks = {TaskType.STALE_SSM: StaleParameters(Ec2Instances(aws), parameters, records)}
        housekeeper = Housekeeper(tasks, records, CLOCK, dependencies=dependencies, holder="replica")
        wish = HousekeepingMessage(task_type=TaskType.STALE_SSM, timestamp=CLOCK.now())
        async with working(queues["housekeeping"], parse_housekeeping, housekeeper.process, dependencies):
            await queues["housekeeping"].send([NewMessage(body=format_housekeeping(wish))] * 2)
            await until_empty(queues["housekeeping"])
        (run,) = await records.list_runs(10)
        assert (run.slot, run.outcome) == (wish.slot, RunOutcome.DONE)


async def ended_attempt(services: Services) -> TerminationMessage:
    """Return what a runner says that had a job, and could not complete it."""
    params = JobParams(command="true")
    request = EnqueueRequest(request_id=str(uuid.uuid4()), queue="builds", params=params)
    await services.jobs.enqueue_jobs([request])
    demand = DequeueRequest(queue="builds", instance_id=INSTANCE, wait_seconds=0)
    (held,) = await services.jobs.dequeue_jobs(demand)
    return TerminationMessage(
        instance_id=INSTANCE,
        job_id=held.job.job_id,
        status=EndStatus.SUCCESS,
        exit_code=0,
        duration_seconds=1,
        started_at=CLOCK.now(),
        completed_at=CLOCK.now(),
        attempt=1,
        termination_token=held.termination_token,
    )


async def until_empty(queue: SqsQueue) -> None:
    """Return once all messages of a queue are processed and deleted."""
    left = [1]

    async def look() -> None:
        while left[0]:
            depth = await queue.depth()
            left[0] = depth.visible + depth.in_flight + depth.delayed

    looking = asyncio.create_task(look())
    await until(lambda: left[0] == 0)
    await looking
