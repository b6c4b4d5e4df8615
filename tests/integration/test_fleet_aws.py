"""The ports of the fleet on AWS, over a socket; the records do what those in memory do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from airunner.aws.calls import Aws
from airunner.aws.clients import OF_A_FLEET
from airunner.aws.provision import Change, provision
from airunner.domain.clock import SystemClock
from airunner.domain.errors import FailedPrecondition
from airunner.fleet.aws.instances import MANAGED_TAG, POOL_TAG, Ec2Instances
from airunner.fleet.aws.layout import CALL_POLICY, FleetLayout, fleet_resources
from airunner.fleet.aws.parameters import SsmParameters
from airunner.fleet.aws.records import DynamoDbRecords
from airunner.fleet.messages.housekeeping import TaskType
from airunner.fleet.ports import FleetRecords
from airunner.fleet.records import (
    ActionKind,
    HousekeepingRun,
    InstanceState,
    Pool,
    PoolAudit,
    RecordedAction,
    RunOutcome,
)
from tests.doubles.aws.emulator import EmulatorProcess
from tests.doubles.aws.faults import FaultKind
from tests.doubles.aws.strict import StrictProxy
from tests.support.aws_stores import options_of
from tests.support.fleet import FakeRecords

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


@pytest.fixture
async def account(emulator: EmulatorProcess) -> AsyncIterator[Aws]:
    """EC2 and SSM without the rules of the strict layer."""
    async with Aws(replace(options_of(emulator.url), clients=OF_A_FLEET), policy=CALL_POLICY) as opened:
        yield opened


async def made_records(aws: Aws, env: str) -> DynamoDbRecords:
    layout = FleetLayout(env=env)
    wanted = fleet_resources(layout)
    await provision(aws, wanted, SystemClock())
    again = await provision(aws, wanted, SystemClock())
    assert {resource.change for resource in again} == {Change.UNCHANGED}
    return DynamoDbRecords(aws, layout)


async def test_records_in_memory_do_what_their_port_says() -> None:
    await do_what_the_port_says(FakeRecords())


async def test_records_in_dynamodb_do_what_their_port_says(aws: StrictProxy, aws_env: str) -> None:
    async with Aws(replace(options_of(aws.url), clients=("dynamodb", "sqs"))) as opened:
        await do_what_the_port_says(await made_records(opened, aws_env))


async def do_what_the_port_says(records: FleetRecords) -> None:
    """One test for all, since tables take their time."""
    await instances_are_marked_and_assigned(records)
    await stale_parameters_are_noted(records)
    await leases_have_one_holder(records)
    await attempts_count_once(records)
    await runs_and_audits_are_kept(records)
    await pools_are_kept(records)


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


async def test_instances_are_found_by_tag_and_terminated(account: Aws) -> None:
    tags = [{"Key": MANAGED_TAG, "Value": "true"}, {"Key": POOL_TAG, "Value": "builds"}]
    made = await launch(account, 3, tags)
    (foreign,) = await launch(account, 1, [])
    instances = Ec2Instances(account)
    running = {InstanceState.PENDING, InstanceState.RUNNING}
    listed = [instance async for page in instances.managed(running) for instance in page]
    assert {instance.instance_id for instance in listed} == set(made)
    assert {(instance.pool, instance.instance_type) for instance in listed} == {("builds", "m1.small")}
    assert all(instance.launched_at > 1_600_000_000_000 for instance in listed)
    unknown = [f"i-{number:017x}" for number in range(450)]
    assert set(await instances.find([*made, foreign, *unknown])) == {*made, foreign}
    await instances.terminate([made[0], unknown[0]])
    await instances.terminate([made[0]])
    found = await instances.find(made)
    assert found[made[0]].state is InstanceState.TERMINATED
    assert found[made[1]].state is InstanceState.RUNNING


async def launch(account: Aws, count: int, tags: list[dict[str, str]]) -> list[str]:
    options: dict[str, Any] = (
        {"TagSpecifications": [{"ResourceType": "instance", "Tags": tags}]} if tags else {}
    )
    image = (await account.ec2("DescribeImages"))["Images"][0]["ImageId"]
    answer = await account.ec2(
        "RunInstances", ImageId=image, MinCount=count, MaxCount=count, InstanceType="m1.small", **options
    )
    return [entry["InstanceId"] for entry in answer["Instances"]]


async def test_parameters_are_listed_over_pages_and_deleted_in_tens(account: Aws, aws_env: str) -> None:
    parameters = SsmParameters(account, prefix=f"/{aws_env}/runners/")
    names = [parameters.name_of(f"i-{number}") for number in range(25)]
    odd = f"/{aws_env}/runners/shared/more/config"
    for name in (*names, odd, f"/{aws_env}/other"):
        await account.ssm("PutParameter", Name=name, Value="secret", Type="SecureString")
    listed = [parameter async for page in parameters.list() for parameter in page]
    assert {parameter.name for parameter in listed} == {*names, odd}
    assert all(parameter.modified_at > 1_600_000_000_000 for parameter in listed)
    assert [parameters.instance_of(name) for name in (names[7], odd, "/elsewhere")] == ["i-7", "", ""]
    missing = parameters.name_of("i-missing")
    assert set(await parameters.delete([*names[:12], missing])) == set(names[:12])
    assert await parameters.delete([missing]) == set()
    left = [parameter.name async for page in parameters.list() for parameter in page]
    assert set(left) == {*names[12:], odd}
