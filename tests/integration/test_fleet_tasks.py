"""Tasks on AWS: what a sweep of a thousand costs, a lease that is lost in mid-run, a breaker that trips."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from airunner.aws.calls import Aws
from airunner.fleet.aws.instances import Ec2Instances
from airunner.fleet.housekeeping.orphaned_instances import OrphanedInstances
from airunner.fleet.lease import LEASE_MS, TaskLease
from airunner.fleet.messages.housekeeping import HousekeepingMessage, TaskType
from airunner.fleet.records import ActionKind, InstanceState, RunOutcome
from airunner.fleet.task_run import TaskRun
from airunner.testing.conditions import until
from tests.doubles.aws.emulator import EmulatorProcess
from tests.doubles.aws.faults import FaultKind
from tests.doubles.aws.strict import StrictAws
from tests.support.aws_stores import options_of
from tests.support.fleet_world import FleetWorld, opened_fleet

pytest_plugins = ("tests.support.aws",)

HOUR = 3600


@pytest.fixture
async def world(strict_aws: StrictAws, emulator: EmulatorProcess, aws_env: str) -> AsyncIterator[FleetWorld]:
    async with opened_fleet(strict_aws, emulator, aws_env) as opened:
        yield opened


def wish(world: FleetWorld, task: TaskType) -> HousekeepingMessage:
    """Return the message of another slot, a moment later."""
    world.clock.advance(0.001)
    return HousekeepingMessage(task_type=task, timestamp=world.clock.now())


async def test_a_run_whose_lease_is_lost_changes_nothing_more_and_the_other_one_ends_it(
    world: FleetWorld,
) -> None:
    """EC2 takes longer to answer than the lease lasts; meanwhile another replica has done all of it."""
    task = TaskType.ORPHANED_INSTANCES
    world.launch(8)
    (orphan,) = world.launch(1, age_seconds=8 * HOUR)
    await world.survivor.housekeep(wish(world, task))
    world.clock.advance(301)
    world.mortal.proxy.faults.next("DescribeInstances", FaultKind.DELAY)
    slow = wish(world, task)
    run = asyncio.create_task(world.mortal.housekeeper.process(slow))
    await until(lambda: world.mortal.proxy.counts.calls["DescribeInstances"] > 0)
    world.mortal.proxy.counts.reset()
    world.clock.advance(LEASE_MS / 1000 + 1)
    done = await world.survivor.housekeep(wish(world, task))
    (orphan_again,) = world.launch(1, age_seconds=8 * HOUR)
    world.mortal.proxy.faults.release()
    await run
    assert [(each.kind, each.target) for each in done.actions] == [(ActionKind.TERMINATED, orphan)]
    # What it asks is whether the lease is still its own, no more.
    calls = world.mortal.proxy.counts.calls
    assert (calls["UpdateItem"], calls["TerminateInstances"]) == (1, 0)
    records = await world.survivor.records.read_instances([orphan_again])
    assert not records[orphan_again].draining_since
    skipped = await world.survivor.records.find_run(slow.slot)
    assert skipped
    assert (skipped.outcome, skipped.changed) == (RunOutcome.SKIPPED, 0)
    assert (await world.survivor.instances.find([orphan]))[orphan].state is InstanceState.TERMINATED


async def test_the_message_of_a_replica_that_died_is_done_once_its_lease_is_over(world: FleetWorld) -> None:
    world.launch(8)
    (orphan,) = world.launch(1, age_seconds=8 * HOUR)
    message = wish(world, TaskType.ORPHANED_INSTANCES)
    # Dead at its look at EC2: after its lease, and the question whether the slot had its run.
    assert await world.mortal.dies_at(3, lambda: world.mortal.housekeep(message), executed=True)
    others = world.clock.waiting
    work = asyncio.create_task(world.survivor.housekeeper.process(message))
    await until(lambda: world.clock.waiting > others or work.done(), limit_seconds=60)
    assert not work.done()
    world.clock.advance(LEASE_MS / 1000 + 1)
    await work
    run = await world.survivor.records.find_run(message.slot)
    assert run
    assert run.outcome is RunOutcome.DONE
    assert orphan in {each.target for each in run.actions if each.kind is ActionKind.MARKED}


async def test_a_run_that_would_change_too_much_changes_nothing_until_it_is_forced(
    world: FleetWorld, emulator: EmulatorProcess
) -> None:
    replica, parameters = world.survivor, world.survivor.parameters
    # So many that they are most of what there is: other tests of the process have instances, too.
    orphans = world.launch(100, age_seconds=8 * HOUR)
    stale = [f"i-{number:017x}" for number in range(5)]
    names = [parameters.name_of(name) for name in stale]
    for name in names:
        await world.put_parameter(name)
    emulator.backdate(2 * HOUR, parameters=names)
    for task in (TaskType.ORPHANED_INSTANCES, TaskType.STALE_SSM):
        replica.proxy.counts.reset()
        message = wish(world, task)
        await replica.housekeeper.process(message)
        run = await replica.records.find_run(message.slot)
        assert run
        assert (run.outcome, run.changed, run.actions) == (RunOutcome.REFUSED, 0, ())
        assert "more than a quarter" in run.text
        assert not set(replica.proxy.counts.calls) & {"TerminateInstances", "DeleteParameters"}
        forced = await replica.housekeeper.run(wish(world, task), force=True)
        assert forced.outcome is RunOutcome.DONE
        targets = {each.target for each in forced.actions if each.kind is ActionKind.MARKED}
        assert targets == set(orphans if task is TaskType.ORPHANED_INSTANCES else names)


async def sweep(world: FleetWorld) -> TaskRun:
    """Sweep once; the counts of the replica are those of the sweep alone."""
    replica = world.survivor
    lease = TaskLease(replica.records, world.clock, TaskType.ORPHANED_INSTANCES, "replica")
    await lease.take()
    run = TaskRun(world.clock, lease)
    await replica.store._background_tasks.finish()
    replica.proxy.counts.reset()
    await OrphanedInstances(replica.instances, replica.records, replica.store).run(run)
    return run


async def terminate_all(world: FleetWorld) -> None:
    """Terminate what other tests of the process have left."""
    async with world.aws.proxy() as proxy:
        options = replace(options_of(proxy.url), clients=("ec2",), call_seconds=60)
        async with Aws(options) as aws:
            instances = Ec2Instances(aws)
            pages = [page async for page in instances.managed({InstanceState.RUNNING, InstanceState.PENDING})]
            await instances.terminate([each.instance_id for page in pages for each in page])


@pytest.mark.slow
async def test_a_sweep_of_a_thousand_costs_a_call_a_page_and_an_item_a_candidate(world: FleetWorld) -> None:
    counts = world.survivor.proxy.counts
    await terminate_all(world)
    world.launch(1000)
    await sweep(world)
    # No candidate: nothing but the one page is asked for.
    assert counts.calls == {"DescribeInstances": 1}

    orphans = world.launch(60, age_seconds=8 * HOUR)
    (busy,) = world.launch(1, age_seconds=8 * HOUR)
    await world.run_job(busy)
    # A read that is not consistent would find no mark, in the second of these sweeps.
    world.survivor.proxy.faults.next("BatchGetItem", FaultKind.STALE_READ, times=4)
    run = await sweep(world)
    assert run.listed == 1061
    walk = counts.calls["Query"]
    assert counts.calls == {"DescribeInstances": 2, "Query": walk, "BatchGetItem": 2, "UpdateItem": 60}
    # The job that runs is read, and no instance had an item before its mark.
    assert (counts.entries_read, counts.items_read - counts.entries_read) == (1, 1)

    world.clock.advance(301)
    run = await sweep(world)
    ended = {each.target for each in run.actions if each.kind is ActionKind.TERMINATED}
    assert ended == set(orphans)
    calls = {"DescribeInstances": 2, "Query": walk, "BatchGetItem": 2, "TerminateInstances": 1}
    assert counts.calls == calls
    assert (counts.entries_read, counts.items_read - counts.entries_read) == (1, 1 + len(orphans))
