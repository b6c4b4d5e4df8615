"""Tasks on AWS that must not go on: a lease that is lost in mid-run, and a breaker that trips."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from airunner.fleet.lease import LEASE_MS
from airunner.fleet.messages.housekeeping import HousekeepingMessage, TaskType
from airunner.fleet.records import ActionKind, InstanceState, RunOutcome
from airunner.testing.conditions import until
from tests.doubles.aws.emulator import EmulatorProcess
from tests.doubles.aws.faults import FaultKind
from tests.doubles.aws.strict import StrictAws
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
