"""Processors of a fleet that die at every call to AWS: another ends what they began, nothing counts twice."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial

import pytest

from airunner.domain.errors import NotFound
from airunner.domain.job import JobState
from airunner.fleet.aws.layout import MAX_RECEIVE_COUNT, FleetLayout
from airunner.fleet.aws.slots import DynamoDbSlots
from airunner.fleet.lease import LEASE_MS
from airunner.fleet.messages.housekeeping import HousekeepingMessage, TaskType, parse_housekeeping
from airunner.fleet.records import InstanceState, PoolAudit, RunOutcome
from airunner.fleet.schedule import Schedule
from airunner.queues.sqs import SqsQueue
from airunner.testing.factories import make_success
from tests.doubles.aws.emulator import EmulatorProcess
from tests.doubles.aws.strict import StrictAws
from tests.support.aws_queues import make_queues
from tests.support.fleet import CountedAttempts
from tests.support.fleet_world import DAY, FleetWorld, Replica, opened_fleet

pytest_plugins = ("tests.support.aws",)

HOUR = 3600

Check = Callable[[], Awaitable[None]]


@pytest.fixture
async def world(strict_aws: StrictAws, emulator: EmulatorProcess, aws_env: str) -> AsyncIterator[FleetWorld]:
    async with opened_fleet(strict_aws, emulator, aws_env) as opened:
        yield opened


@pytest.mark.parametrize(
    "executed", [pytest.param(False, marks=pytest.mark.slow, id="before"), pytest.param(True, id="after")]
)
async def test_whatever_its_processor_dies_at_an_attempt_is_closed_and_counted_once_at_most(
    world: FleetWorld, executed: bool
) -> None:
    for number in itertools.count(1):
        counted = CountedAttempts()
        held = await world.run_job()
        instance_id = held.job.life.instance_id
        await world.send(world.end(held))
        died = await world.mortal.dies_at(number, world.mortal.process_terminations, executed=executed)
        # The visibility of what it held passes.
        world.clock.advance(61)
        await world.survivor.process_terminations()
        story = f"dead {'after' if executed else 'before'} call {number}"
        assert await world.state(held) is JobState.COMPLETED, story
        assert not await world.has_parameter(instance_id), story
        assert (await world.waiting(), await world.put_aside()) == (0, 0), story
        assert not await world.survivor.records.count_once(held.job.job_id, "1", 0), story
        assert counted() <= 1, story
        if not died:
            assert counted() == 1
            assert number >= 7
            return


@pytest.mark.parametrize(
    ("task", "executed"),
    [
        pytest.param(TaskType.ORPHANED_INSTANCES, True, marks=pytest.mark.slow),
        pytest.param(TaskType.POOL_AUDIT, True, marks=pytest.mark.slow),
        pytest.param(TaskType.STALE_SSM, True, marks=pytest.mark.long),
        pytest.param(TaskType.OLD_JOBS, True, marks=pytest.mark.long),
        *(pytest.param(task, False, marks=pytest.mark.long) for task in TaskType),
    ],
)
async def test_whatever_a_task_dies_at_the_next_one_finishes_it_and_a_second_changes_nothing(
    world: FleetWorld, task: TaskType, executed: bool
) -> None:
    scene = SCENES[task]
    world.launch(8)
    for number in itertools.count(1):
        check = await scene(world)
        message = HousekeepingMessage(task_type=task, timestamp=world.clock.now())
        housekeep = partial(world.mortal.housekeep, message)
        died = await world.mortal.dies_at(number, housekeep, executed=executed)
        world.clock.advance(LEASE_MS / 1000 + 1)
        run = await world.survivor.housekeep(message)
        story = f"dead {'after' if executed else 'before'} call {number}: {run}"
        assert run.outcome is RunOutcome.DONE, story
        await check()
        assert await world.survivor.housekeep(message) == run, story
        world.survivor.proxy.counts.reset()
        again = await world.survivor.housekeep(next_slot(world, task))
        assert again.outcome is RunOutcome.DONE, story
        assert again.changed == 0, story
        calls = set(world.survivor.proxy.counts.calls)
        assert not calls & {"TerminateInstances", "DeleteParameters"}, story
        await check()
        if not died:
            assert number >= 5
            return


@pytest.mark.slow
@pytest.mark.parametrize("executed", [False, True], ids=["before", "after"])
async def test_whatever_a_schedule_dies_at_another_sends_what_it_owed(
    world: FleetWorld, executed: bool
) -> None:
    _, url = await make_queues(world.direct, f"{world.env}-housekeeping", MAX_RECEIVE_COUNT)
    queue = SqsQueue(world.direct, url, clock=world.clock)
    for number in itertools.count(1):
        # A slot of each task that nobody has claimed, and that lasts: the next one is half an hour away.
        world.clock.advance(DAY + 1 - world.clock.now() // 1000 % DAY)
        mortal, survivor = (schedule(world, replica, url) for replica in (world.mortal, world.survivor))
        died = await world.mortal.dies_at(number, mortal.turn, executed=executed)
        story = f"dead {'after' if executed else 'before'} call {number}"
        await survivor.turn()
        world.clock.advance(61)
        await survivor.turn()
        sent = await taken(queue)
        assert set(sent) == set(TaskType), story
        # What was sent and not marked is sent again: its second message finds the run of the first.
        assert max(sent.values()) <= 2, story
        assert sum(sent.values()) <= len(TaskType) + 1, story
        await survivor.turn()
        assert await world.waiting(queue) == 0, story
        if not died:
            assert sent == Counter(TaskType)
            assert number > 3 * len(TaskType)
            return


def schedule(world: FleetWorld, replica: Replica, url: str) -> Schedule:
    """Return a schedule whose calls are those of a replica."""
    aws = replica.records._aws
    slots = DynamoDbSlots(aws, FleetLayout(env=world.env))
    return Schedule(slots, SqsQueue(aws, url, clock=world.clock), world.clock)


async def taken(queue: SqsQueue) -> Counter[TaskType]:
    """Return the tasks that all messages ask for, and delete these."""
    found: Counter[TaskType] = Counter()
    while messages := await queue.receive(10):
        found.update(parse_housekeeping(message.body).task_type for message in messages)
        await queue.delete(messages)
    return found


async def orphan(world: FleetWorld) -> Check:
    """An orphan that was marked five minutes ago, and an old instance with a job."""
    (old,) = world.launch(1, age_seconds=8 * HOUR)
    (busy,) = world.launch(1, age_seconds=8 * HOUR)
    await world.run_job(busy)
    marked = await world.survivor.housekeep(next_slot(world, TaskType.ORPHANED_INSTANCES))
    assert [action.target for action in marked.actions if action.kind.value == "marked"] == [old]
    world.clock.advance(301)

    async def check() -> None:
        found = await world.survivor.instances.find([old, busy])
        assert found[old].state is InstanceState.TERMINATED
        assert found[busy].state is InstanceState.RUNNING

    return check


async def stale_parameter(world: FleetWorld) -> Check:
    """A parameter that was seen without its instance five minutes ago, and one whose instance is there."""
    (living,) = world.launch(1)
    dead = f"i-{world.clock.now():017x}"
    names = [world.survivor.parameters.name_of(name) for name in (living, dead)]
    for name in names:
        await world.put_parameter(name)
    world.emulator.backdate(2 * HOUR, parameters=names)
    await world.survivor.housekeep(next_slot(world, TaskType.STALE_SSM))
    world.clock.advance(301)

    async def check() -> None:
        assert await world.has_parameter(living)
        assert not await world.has_parameter(dead)

    return check


async def old_jobs(world: FleetWorld) -> Check:
    """Jobs that ended eight days ago."""
    held = [await world.run_job() for _ in range(3)]
    for one in held:
        await world.survivor.services.jobs.end_attempt(
            one.job.job_id, 1, one.job.life.instance_id, make_success()
        )
    world.clock.advance(8 * DAY)

    async def check() -> None:
        for one in held:
            with pytest.raises(NotFound):
                await world.survivor.store.get_life(one.job.job_id)

    return check


async def audited_pool(world: FleetWorld) -> Check:
    """A pool that was audited half an hour ago."""
    await world.survivor.housekeep(next_slot(world, TaskType.POOL_AUDIT))
    (before,) = await audits(world, 1)
    world.clock.advance(HOUR / 2)

    async def check() -> None:
        since = [audit for audit in await audits(world, 10) if audit.audited_at > before.audited_at]
        assert {(audit.pool, audit.running, audit.idle) for audit in since} == {(world.env, 8, 8)}
        # No time is paid for twice, and none is left out.
        seconds = sum(audit.seconds for audit in since)
        assert seconds == (since[0].audited_at - before.audited_at) / 1000
        assert sum(audit.compute_cost_usd or 0 for audit in since) == pytest.approx(8 * 0.05 * seconds / HOUR)

    return check


async def audits(world: FleetWorld, limit: int) -> list[PoolAudit]:
    """Return the last audits of this world's pool: the machines of other tests are still there, in theirs."""
    found = await world.survivor.records.last_audits(limit)
    return [audit for pools in found for audit in pools if audit.pool == world.env]


SCENES: dict[TaskType, Callable[[FleetWorld], Awaitable[Check]]] = {
    TaskType.ORPHANED_INSTANCES: orphan,
    TaskType.STALE_SSM: stale_parameter,
    TaskType.OLD_JOBS: old_jobs,
    TaskType.POOL_AUDIT: audited_pool,
}


def next_slot(world: FleetWorld, task: TaskType) -> HousekeepingMessage:
    """Return the message of another slot, a moment later."""
    world.clock.advance(0.001)
    return HousekeepingMessage(task_type=task, timestamp=world.clock.now())
