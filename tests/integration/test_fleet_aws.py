"""The ports of the fleet on AWS, over a socket; the records do what those in memory do."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from airunner.aws.calls import Aws
from airunner.aws.provision import Change, provision
from airunner.domain.clock import SystemClock
from airunner.domain.errors import FailedPrecondition
from airunner.fleet.aws.layout import CALL_POLICY, FleetLayout, fleet_resources
from airunner.fleet.aws.records import DynamoDbRecords
from airunner.fleet.aws.slots import DynamoDbSlots
from airunner.fleet.messages.housekeeping import TaskType
from airunner.fleet.ports import FleetRecords, Slots, SlotState
from airunner.fleet.records import (
    ActionKind,
    HousekeepingRun,
    Pool,
    PoolAudit,
    RecordedAction,
    RunOutcome,
)
from tests.doubles.aws.faults import FaultKind
from tests.doubles.aws.strict import StrictProxy
from tests.support.aws_stores import options_of
from tests.support.fleet import FakeRecords, FakeSlots

pytest_plugins = ("tests.support.aws",)

ORPHANS = TaskType.ORPHANED_INSTANCES
RUN = HousekeepingRun(
    slot="orphaned_instances#2025-11-25T10:00:00.000Z",
    task_type=ORPHANS,
    started_at=1_000,
    ended_at=2_000,
    outcome=RunOutcome.DONE,
    listed=3,
    changed=1,
    actions=(
        RecordedAction(kind=ActionKind.MARKED, target="i-1", why="it is old", seen="running", at=1_500),
    ),
)
AUDIT = PoolAudit(
    pool="builds",
    audited_at=1_000,
    running=2,
    stopped=1,
    idle=1,
    seconds=3600.0,
    compute_cost_usd=0.2,
    idle_cost_usd=None,
)


async def made_records(aws: Aws, env: str) -> DynamoDbRecords:
    layout = FleetLayout(env=env)
    wanted = fleet_resources(layout)
    await provision(aws, wanted, SystemClock())
    again = await provision(aws, wanted, SystemClock())
    assert {resource.change for resource in again} == {Change.UNCHANGED}
    return DynamoDbRecords(aws, layout)


async def test_records_in_memory_do_what_their_port_says() -> None:
    await do_what_the_port_says(FakeRecords())
    await slots_are_claimed_once(FakeSlots())


async def test_records_in_dynamodb_do_what_their_port_says(aws: StrictProxy, aws_env: str) -> None:
    async with Aws(replace(options_of(aws.url), clients=("dynamodb", "sqs"))) as opened:
        await do_what_the_port_says(await made_records(opened, aws_env))
        await slots_are_claimed_once(DynamoDbSlots(opened, FleetLayout(env=aws_env)))


async def do_what_the_port_says(records: FleetRecords) -> None:
    """One test for all, since tables take their time."""
    await instances_are_marked_and_assigned(records)
    await stale_parameters_are_noted(records)
    await leases_have_one_holder(records)
    await attempts_count_once(records)
    await runs_and_audits_are_kept(records)
    await pools_are_kept(records)


async def slots_are_claimed_once(slots: Slots) -> None:
    """Until the minute of a claim is over, and never once its message is sent."""
    assert await slots.claim("a", 100, stale_before=40, new=False) is SlotState.OVER
    claims = await asyncio.gather(*(slots.claim("a", 100, stale_before=40, new=True) for _ in range(3)))
    assert sorted(claim.value for claim in claims) == ["claimed", "pending", "pending"]
    assert await slots.claim("a", 159, stale_before=99, new=True) is SlotState.PENDING
    assert await slots.claim("a", 160, stale_before=100, new=False) is SlotState.CLAIMED
    await slots.mark_sent("a", 161)
    assert await slots.claim("a", 300, stale_before=240, new=True) is SlotState.OVER


async def instances_are_marked_and_assigned(records: FleetRecords) -> None:
    first = (await records.read_instances(["i-1"]))["i-1"]
    assert (first.assigned_at, first.draining_since) == (0, 0)
    assigned = await records.assign("i-1", "builds", 10)
    assert (assigned.queue, assigned.assigned_at) == ("builds", 10)
    assert not await records.mark_draining(first, 20)
    assert await records.mark_draining(assigned, 20)
    assert not await records.mark_draining(assigned, 30)
    with pytest.raises(FailedPrecondition):
        await records.assign("i-1", "builds", 30)
    assert not await records.undrain("i-1", draining_since=19)
    assert await records.undrain("i-1", draining_since=20)
    assert not await records.undrain("i-1")
    assert not await records.undrain("i-unknown")
    found = await records.read_instances(["i-1", "i-2"])
    assert found["i-1"] == assigned
    assert found["i-2"].instance_id == "i-2"
    outcomes = await asyncio.gather(*(records.mark_draining(found["i-2"], now) for now in range(40, 45)))
    assert sum(outcomes) == 1


async def stale_parameters_are_noted(records: FleetRecords) -> None:
    await records.note_stale("i-3", 10)
    await records.note_stale("i-3", 20)
    assert (await records.read_instances(["i-3"]))["i-3"].stale_since == 10
    await records.forget_stale("i-3")
    assert (await records.read_instances(["i-3"]))["i-3"].stale_since == 0


async def leases_have_one_holder(records: FleetRecords) -> None:
    assert await records.take_lease(ORPHANS, "a", 10, 20) == "a"
    assert await records.take_lease(ORPHANS, "a", 10, 20) == "a"
    assert await records.take_lease(ORPHANS, "b", 19, 30) == "a"
    assert await records.extend_lease(ORPHANS, "a", 25)
    assert await records.take_lease(ORPHANS, "b", 24, 30) == "a"
    assert await records.take_lease(ORPHANS, "b", 25, 30) == "b"
    assert not await records.extend_lease(ORPHANS, "a", 40)
    await records.leave_lease(ORPHANS, "a")
    assert await records.take_lease(ORPHANS, "a", 26, 30) == "b"
    await records.leave_lease(ORPHANS, "b")
    assert await records.take_lease(ORPHANS, "a", 26, 30) == "a"
    assert await records.take_lease(TaskType.STALE_SSM, "b", 26, 30) == "b"


async def attempts_count_once(records: FleetRecords) -> None:
    outcomes = await asyncio.gather(*(records.count_once("job", "1", 10) for _ in range(5)))
    assert sum(outcomes) == 1
    assert await records.count_once("job", "2", 10)
    assert [await records.count_once("job", "3", 10, by=by) for by in ("a", "a", "b", "")] == [
        True,
        True,
        False,
        False,
    ]


async def runs_and_audits_are_kept(records: FleetRecords) -> None:
    assert await records.find_run(RUN.slot) is None
    await records.put_run(replace(RUN, outcome=RunOutcome.FAILED))
    await records.put_run(RUN)
    assert not await records.add_run(replace(RUN, outcome=RunOutcome.SKIPPED))
    later = replace(RUN, slot="later", started_at=5_000)
    assert await records.add_run(later)
    assert await records.find_run(RUN.slot) == RUN
    assert list(await records.list_runs(10)) == [later, RUN]
    assert list(await records.list_runs(1)) == [later]
    assert await records.last_audits(1) == []
    other = replace(AUDIT, pool="other#odd")
    await records.put_audits([AUDIT, other])
    await records.put_audits([replace(AUDIT, audited_at=2_000)])
    assert await records.last_audits(1) == [[replace(AUDIT, audited_at=2_000)]]
    assert await records.last_audits(5) == [[replace(AUDIT, audited_at=2_000)], [AUDIT, other]]


async def pools_are_kept(records: FleetRecords) -> None:
    pools = [Pool(name=name, instance_type="m5.large", desired_running=2) for name in ("b", "a")]
    for pool in pools:
        await records.put_pool(pool)
    await records.put_pool(replace(pools[0], desired_running=3))
    assert list(await records.list_pools()) == [pools[1], replace(pools[0], desired_running=3)]


async def test_a_write_whose_answer_is_lost_is_known_again(aws: StrictProxy, aws_env: str) -> None:
    async with Aws(replace(options_of(aws.url), clients=("dynamodb", "sqs")), policy=CALL_POLICY) as opened:
        records = await made_records(opened, aws_env)
        aws.faults.next("UpdateItem", FaultKind.EXECUTE_THEN_DROP)
        assigned = await records.assign("i-1", "builds", 10)
        aws.faults.next("UpdateItem", FaultKind.EXECUTE_THEN_DROP)
        assert await records.mark_draining(assigned, 20)
        aws.faults.next("UpdateItem", FaultKind.EXECUTE_THEN_DROP)
        assert await records.undrain("i-1")
        aws.faults.next("PutItem", FaultKind.EXECUTE_THEN_DROP)
        assert not await records.count_once("job", "1", 10)
        aws.faults.next("PutItem", FaultKind.EXECUTE_THEN_DROP)
        assert await records.count_once("job", "2", 10, by="us")
        slots = DynamoDbSlots(opened, FleetLayout(env=aws_env))
        aws.faults.next("UpdateItem", FaultKind.EXECUTE_THEN_DROP)
        assert await slots.claim("a", 100, stale_before=40, new=True) is SlotState.CLAIMED
