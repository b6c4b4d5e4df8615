"""A fleet whose messages come often, late and from anybody, and whose services go away for ten minutes."""

from __future__ import annotations

import itertools
import random
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial

import pytest

from airunner.app import build_export_loop
from airunner.domain.job import JobState
from airunner.domain.requests import CompleteRequest
from airunner.fleet.aws.layout import MAX_RECEIVE_COUNT
from airunner.fleet.messages.housekeeping import HousekeepingMessage, TaskType, format_housekeeping
from airunner.fleet.messages.termination import EndStatus
from airunner.fleet.records import RunOutcome
from airunner.fleet.termination import CONCURRENCY
from airunner.queues.message_rules import REASON_ATTRIBUTE
from airunner.queues.messages import NewMessage
from airunner.queues.sqs import SqsQueue
from airunner.telemetry import fleet_metrics
from airunner.testing.conditions import until
from airunner.testing.factories import make_success
from tests.doubles.aws.emulator import EmulatorProcess
from tests.doubles.aws.faults import Fault, FaultKind
from tests.doubles.aws.strict import StrictAws, StrictProxy
from tests.support.aws_queues import make_queues
from tests.support.aws_stores import outage
from tests.support.cloudwatch import watch_of_fleet
from tests.support.fleet import CountedAttempts
from tests.support.fleet_world import FleetWorld, WatchedQueue, opened_fleet

pytest_plugins = ("tests.support.aws",)


@pytest.fixture
async def world(strict_aws: StrictAws, emulator: EmulatorProcess, aws_env: str) -> AsyncIterator[FleetWorld]:
    async with opened_fleet(strict_aws, emulator, aws_env) as opened:
        yield opened


@pytest.mark.parametrize(
    "service",
    [
        pytest.param("ssm", marks=pytest.mark.slow),
        pytest.param("dynamodb", marks=pytest.mark.long),
        pytest.param("sqs", marks=pytest.mark.long),
    ],
)
async def test_a_service_that_is_away_for_ten_minutes_costs_no_message(
    world: FleetWorld, emulator: EmulatorProcess, service: str
) -> None:
    counted = CountedAttempts()
    held = await world.run_jobs(count=50)
    await world.send(*map(world.end, held))
    queue = world.survivor.queue
    with outage(emulator, service):
        async with world.survivor.working() as dependencies:
            if service != "sqs":
                await until(lambda: not dependencies.are_there)
            for turn in range(1, 31):
                await until(lambda: world.clock.waiting > 0)
                world.clock.advance(20)
                # Messages that are held are extended every 20 s; while SQS is away none is.
                if service != "sqs":
                    await until(partial(queue.is_extended, turn * CONCURRENCY))
            emulator.set_away()
            await world.until_empty()
    assert await world.put_aside() == 0
    assert counted() == 50
    assert {await world.state(one) for one in held} == {JobState.COMPLETED}


@pytest.mark.slow
async def test_housekeeping_that_waits_for_machines_for_ten_minutes_is_done_after_that(
    world: FleetWorld, emulator: EmulatorProcess
) -> None:
    """EC2 is away. Of messages of one task that are on together, one runs and others are skipped."""
    dead_url, url = await make_queues(world.direct, f"{world.env}-housekeeping", MAX_RECEIVE_COUNT)
    queue = WatchedQueue(world.direct, url, clock=world.clock)
    tasks = (TaskType.ORPHANED_INSTANCES, TaskType.STALE_SSM, TaskType.POOL_AUDIT)
    wishes = [
        HousekeepingMessage(task_type=task, timestamp=world.clock.now() + number)
        for number, task in zip(range(50), itertools.cycle(tasks), strict=False)
    ]
    world.launch(3)
    # A parameter, or that task would have no question.
    await world.put_parameter(world.survivor.parameters.name_of("i-0123456789abcdef0"))
    world.clock.advance(3601)
    await queue.send([NewMessage(body=format_housekeeping(wish)) for wish in wishes])
    with outage(emulator, "ec2"):
        async with world.survivor.housekeeping(queue) as dependencies:
            await until(lambda: not dependencies.are_there)
            for _ in range(30):
                extended = queue.extensions
                world.clock.advance(20)
                await until(partial(queue.is_extended, extended + 1))
            assert await world.waiting(queue) >= len(wishes) - 2 * len(TaskType)
            emulator.set_away()
            await world.until_empty(queue)
    assert (await SqsQueue(world.direct, dead_url).depth()).visible == 0
    runs = [await world.survivor.records.find_run(wish.slot) for wish in wishes]
    # A try that failed stays on record where the next one of its message was skipped.
    assert all(runs)
    assert {run.task_type for run in runs if run and run.outcome is RunOutcome.DONE} == set(tasks)


@pytest.mark.slow
async def test_messages_do_not_wait_for_cloudwatch_and_are_counted_when_it_is_back(
    world: FleetWorld, emulator: EmulatorProcess
) -> None:
    before = fleet_metrics.job_successes.read().get((), 0)
    watch = watch_of_fleet(world.survivor.proxy.url, world.env)
    held = await world.run_jobs(count=50)
    async with watch.exporter:
        loop = build_export_loop(watch.exporter, watch.clock)
        loop.start()
        with outage(emulator, "monitoring"):
            async with world.survivor.working():
                await world.send(*map(world.end, held))
                await world.until_empty()
            for turn in range(1, 11):
                await until(lambda: watch.clock.waiting > 0)
                watch.clock.advance(60)
                await until(partial(has_been_told, world.survivor.proxy, turn))
        await until(lambda: watch.clock.waiting > 0)
        await loop.stop()
        await watch.exporter.send()
    assert await world.put_aside() == 0
    assert {await world.state(one) for one in held} == {JobState.COMPLETED}
    durations = await watch.told("JobDuration", Status="success")
    assert durations == [(50 * 12.5, 50)]
    assert sum(total for total, _ in await watch.told("JobSuccess")) == before + 50


def has_been_told(proxy: StrictProxy, times: int) -> bool:
    return proxy.counts.calls["PutMetricData"] >= times


async def test_messages_that_come_often_in_any_order_and_forged_close_each_attempt_once(
    world: FleetWorld,
) -> None:
    dice = random.Random(14)
    held = await world.run_jobs(count=8)
    # The worker of the first could still complete it.
    request = CompleteRequest(task_token=held[0].task_token, result=make_success())
    await world.survivor.services.jobs.complete_jobs([request])
    messages = [world.end(one, dice.choice(list(EndStatus))) for one in held]
    forged = [
        replace(messages[0], termination_token=messages[1].termination_token),
        replace(messages[2], instance_id=held[3].job.life.instance_id),
        replace(messages[4], termination_token=""),
        replace(messages[5], attempt=2),
    ]
    spared = await world.run_job()
    forged.append(replace(world.end(spared), termination_token=messages[0].termination_token))
    deliveries = [*forged, *(message for message in messages for _ in range(dice.randint(1, 5)))]
    dice.shuffle(deliveries)
    counted = CountedAttempts()
    faults = world.survivor.proxy.faults
    faults.add(Fault(operation="ReceiveMessage", kind=FaultKind.DUPLICATE, probability=0.3))
    faults.add(Fault(operation="ReceiveMessage", kind=FaultKind.REORDER))
    async with world.survivor.working():
        await world.send(*deliveries)
        await world.until_empty()
        faults.clear()
        await world.until_empty()
    assert counted() == len(messages)
    assert await letters(world) == ["token"] * len(forged)
    assert await world.state(spared) is JobState.RUNNING
    assert await world.has_parameter(spared.job.life.instance_id)
    expected = {
        EndStatus.SUCCESS: JobState.COMPLETED,
        EndStatus.FAILURE: JobState.FAILED,
        EndStatus.TIMEOUT: JobState.FAILED,
        EndStatus.INTERRUPTED: JobState.SCHEDULED,
    }
    assert await world.state(held[0]) is JobState.COMPLETED
    for one, message in zip(held[1:], messages[1:], strict=True):
        assert await world.state(one) is expected[message.status], message
        assert not await world.has_parameter(message.instance_id)


async def letters(world: FleetWorld) -> list[str]:
    """Return the codes of all that was put aside, each once: a delivery that was doubled may be twice."""
    found: dict[str, str] = {}
    while messages := await world.dead_letters.receive(10):
        found |= {message.body: message.attributes.get(REASON_ATTRIBUTE, "") for message in messages}
        await world.dead_letters.delete(messages)
    return list(found.values())
