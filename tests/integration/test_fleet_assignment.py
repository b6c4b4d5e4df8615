"""Assigning in a real account: the parameter that one instance alone may read, and a death at every call."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from airunner.aws.calls import Aws
from airunner.aws.clients import OF_A_FLEET
from airunner.aws.provision import provision
from airunner.domain.clock import SystemClock
from airunner.domain.errors import FailedPrecondition, NotFound
from airunner.fleet.assignment import Assignments, RunnerAccess
from airunner.fleet.aws.instances import MANAGED_TAG, Ec2Instances
from airunner.fleet.aws.layout import CALL_POLICY, FleetLayout, fleet_resources
from airunner.fleet.aws.parameters import INSTANCE_TAG, SsmParameters
from airunner.fleet.aws.records import DynamoDbRecords
from tests.doubles.aws.ec2 import ACCOUNT
from tests.doubles.aws.emulator import REGION
from tests.doubles.aws.faults import FaultKind
from tests.doubles.aws.strict import StrictProxy
from tests.support.aws_stores import options_of
from tests.support.mortals import Died, Gate

pytest_plugins = ("tests.support.aws",)

ACCESS = RunnerAccess(servers=("https://jobs.example",), api_key="sk-secret-0123456789")


class MortalAws(Aws):
    """AWS as a process sees it that dies at one of its calls."""

    gate = Gate(1_000_000, executed=False)

    async def _call(self, *arguments: Any, **options: Any) -> dict[str, Any]:
        inner = super()._call
        return await self.gate.pass_through(lambda: inner(*arguments, **options))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """A fleet, and somebody who assigns its instances."""

    aws: MortalAws
    parameters: SsmParameters
    records: DynamoDbRecords
    instance: str

    async def assign(self, queue: str) -> None:
        ports = (Ec2Instances(self.aws), self.records, self.parameters)
        await Assignments(*ports, ACCESS, SystemClock()).assign(self.instance, queue)

    async def queue_of_parameter(self) -> str:
        value = json.loads(await self.parameters.read(self.parameters.name_of(self.instance)))
        return ",".join(value["worker"]["queues"])

    async def tags(self) -> dict[str, str]:
        name = self.parameters.name_of(self.instance)
        answer = await self.aws.ssm("ListTagsForResource", ResourceType="Parameter", ResourceId=name)
        return {tag["Key"]: tag["Value"] for tag in answer["TagList"]}


@pytest.fixture
async def fleet(aws: StrictProxy, aws_env: str) -> AsyncIterator[Fleet]:
    tags = [{"ResourceType": "instance", "Tags": [{"Key": MANAGED_TAG, "Value": "true"}]}]
    image = {"ImageId": "ami-12345678", "InstanceType": "m1.small"}
    options = replace(options_of(aws.url), clients=OF_A_FLEET)
    async with MortalAws(options, policy=CALL_POLICY) as account:
        layout = FleetLayout(env=aws_env)
        await provision(account, replace(fleet_resources(layout), queues=[]), SystemClock())
        made = await account.ec2("RunInstances", **image, MinCount=1, MaxCount=1, TagSpecifications=tags)
        yield Fleet(
            aws=account,
            parameters=SsmParameters(account, prefix=f"/{aws_env}/runners"),
            records=DynamoDbRecords(account, layout),
            instance=made["Instances"][0]["InstanceId"],
        )


async def test_after_a_death_at_any_call_assigning_again_completes_it(fleet: Fleet) -> None:
    """First of an instance that was never assigned, then of one that was, to another queue each time."""
    deaths = [
        await died_at(fleet, call, executed=executed, queue=f"q{call}{executed}", is_new=is_new)
        for is_new in (True, False)
        for call in range(1, 10)
        for executed in (False, True)
    ]
    # DescribeInstances, UpdateItem and PutParameter; and where that was there, one more and its tags.
    assert deaths.count(True) == 2 * 3 + 2 * 5


async def died_at(fleet: Fleet, call: int, *, executed: bool, queue: str, is_new: bool) -> bool:
    """Let an assignment die at a call, and assign again; return whether there was such a call."""
    name = fleet.parameters.name_of(fleet.instance)
    if is_new:
        await fleet.parameters.delete([name])
    before = "" if is_new else await fleet.queue_of_parameter()
    gate = fleet.aws.gate = Gate(call, executed=executed)
    try:
        await fleet.assign(queue)
    except Died:
        pass
    finally:
        fleet.aws.gate = MortalAws.gate
    if not gate.happened:
        return False
    try:
        assert await fleet.queue_of_parameter() in (before, queue)
    except NotFound:
        assert is_new
    await fleet.assign(queue)
    assert await fleet.queue_of_parameter() == queue
    arn = f"arn:aws:ec2:{REGION}:{ACCOUNT}:instance/{fleet.instance}"
    assert await fleet.tags() == {INSTANCE_TAG: arn}
    assert (await fleet.records.read_instances([fleet.instance]))[fleet.instance].queue == queue
    return True


async def test_answers_that_are_lost_change_nothing(fleet: Fleet, aws: StrictProxy) -> None:
    for queue in ("new", "again"):
        for operation in ("DescribeInstances", "UpdateItem", "PutParameter", "AddTagsToResource"):
            aws.faults.next(operation, FaultKind.EXECUTE_THEN_DROP)
        await fleet.assign(queue)
        assert await fleet.queue_of_parameter() == queue
        assert set(await fleet.tags()) == {INSTANCE_TAG}


async def test_a_draining_instance_is_refused_until_its_mark_is_taken_back(fleet: Fleet) -> None:
    record = (await fleet.records.read_instances([fleet.instance]))[fleet.instance]
    assert await fleet.records.mark_draining(record, SystemClock().now())
    with pytest.raises(FailedPrecondition, match=f"{fleet.instance} is draining"):
        await fleet.assign("builds")
    assert await fleet.records.undrain(fleet.instance)
    await fleet.assign("builds")
    assert await fleet.queue_of_parameter() == "builds"


async def test_an_instance_of_somebody_else_is_refused(fleet: Fleet) -> None:
    await fleet.aws.ec2("DeleteTags", Resources=[fleet.instance], Tags=[{"Key": MANAGED_TAG}])
    with pytest.raises(FailedPrecondition, match="not tagged"):
        await fleet.assign("builds")
    with pytest.raises(NotFound):
        await fleet.queue_of_parameter()
