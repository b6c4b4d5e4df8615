"""Machines and parameters of a fleet on EC2 and SSM: pages, lags, deadlines and pauses, over a socket."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from airunner.app import build_fleet_connection
from airunner.aws.calls import Aws, Refused
from airunner.aws.clients import OF_A_FLEET
from airunner.config import load_settings
from airunner.domain.errors import ResourceExhausted, Unavailable
from airunner.fleet.aws.instances import MANAGED_TAG, POOL_TAG, Ec2Instances
from airunner.fleet.aws.layout import CALL_POLICY
from airunner.fleet.aws.parameters import SsmParameters
from airunner.fleet.records import Instance, InstanceState
from airunner.testing.clock import ManualClock
from tests.doubles.aws.emulator import ACCESS_KEY, REGION, SECRET_KEY, EmulatorProcess
from tests.doubles.aws.faults import FaultKind
from tests.doubles.aws.strict import StrictAws, StrictProxy
from tests.support.aws import client
from tests.support.aws_stores import options_of
from tests.support.fleet_aws import launch

pytest_plugins = ("tests.support.aws",)

RUNNING = frozenset({InstanceState.PENDING, InstanceState.RUNNING})


class HurriedClock(ManualClock):
    """A clock whose pauses are noted and over at once."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)


@pytest.fixture
def clock() -> HurriedClock:
    return HurriedClock()


@pytest.fixture
async def account(aws: StrictProxy, clock: HurriedClock) -> AsyncIterator[Aws]:
    """EC2 and SSM, called as processors call them."""
    options = replace(options_of(aws.url), clients=OF_A_FLEET)
    async with Aws(options, clock=clock, policy=CALL_POLICY) as opened:
        yield opened


@pytest.fixture
def parameters(account: Aws, aws_env: str) -> SsmParameters:
    return SsmParameters(account, prefix=f"/{aws_env}/runners/")


async def listed(instances: Ec2Instances, pool: str) -> dict[str, Instance]:
    """Return the instances of a pool: other tests of the process have theirs."""
    found = [instance async for page in instances.managed(RUNNING) for instance in page]
    return {instance.instance_id: instance for instance in found if instance.pool == pool}


async def test_instances_are_found_by_tag_and_terminated(
    aws: StrictProxy, account: Aws, aws_env: str
) -> None:
    made = await launch(aws.url, 3, pool=aws_env)
    (foreign,) = await launch(aws.url, 1, managed="false", pool=aws_env)
    instances = Ec2Instances(account)
    found = await listed(instances, aws_env)
    assert set(found) == set(made)
    assert {instance.instance_type for instance in found.values()} == {"m1.small"}
    assert all(instance.launched_at > 1_600_000_000_000 for instance in found.values())
    unknown = [f"i-{number:017x}" for number in range(450)]
    assert set(await instances.find([*made, foreign, *unknown])) == {*made, foreign}
    await instances.terminate([made[0], unknown[0]])
    await instances.terminate([made[0]])
    states = {name: instance.state for name, instance in (await instances.find(made)).items()}
    assert (states[made[0]], states[made[1]]) == (InstanceState.TERMINATED, InstanceState.RUNNING)
    assert set(await listed(instances, aws_env)) == set(made[1:])


async def test_instances_of_another_environment_are_none_of_the_fleet(
    aws: StrictProxy, aws_env: str, tmp_path: Path
) -> None:
    """Its jobs and assignments are in tables that nobody here reads: they would look like orphans."""
    ours, theirs, anybodys = await launch(aws.url, 3, pool=aws_env)
    async with client("ec2", aws.url) as ec2:
        for name, env in ((ours, aws_env), (theirs, "prod")):
            await ec2.create_tags(Resources=[name], Tags=[{"Key": "runs-fleet:env", "Value": env}])
    variables = {
        "AWS_REGION": REGION,
        "AWS_ENDPOINT_URL": aws.url,
        "AIRUNNER_STORE__AWS__ENV": aws_env,
        "AIRUNNER_STORE__AWS__ACCESS_KEY_ID": ACCESS_KEY,
        "AIRUNNER_STORE__AWS__SECRET_ACCESS_KEY": SECRET_KEY,
    }
    settings = load_settings(environ=variables, cwd=tmp_path).settings
    async with build_fleet_connection(settings, clients=["ec2"]) as fleet:
        assert set(await listed(fleet.instances, aws_env)) == {ours, anybodys}
        found = await fleet.instances.find([ours, theirs, anybodys])
        assert {name for name in found if found[name].is_managed} == {ours, anybodys}


async def test_an_instance_that_is_protected_stays_and_all_others_are_terminated(
    aws: StrictProxy, account: Aws, aws_env: str
) -> None:
    made = await launch(aws.url, 4, pool=aws_env)
    async with client("ec2", aws.url) as ec2:
        await ec2.modify_instance_attribute(InstanceId=made[1], DisableApiTermination={"Value": True})
    instances = Ec2Instances(account)
    assert await instances.terminate([*made, f"i-{0:017x}"]) == [made[1]]
    assert set(await listed(instances, aws_env)) == {made[1]}
    assert await instances.terminate([made[1]]) == [made[1]]


async def test_all_pages_of_more_than_a_thousand_instances_are_followed(
    strict_aws: StrictAws, aws: StrictProxy, account: Aws, aws_env: str
) -> None:
    tags = {MANAGED_TAG: "true", POOL_TAG: aws_env}
    crowd = strict_aws.ec2.add_crowd(1005, tags, age_seconds=7200)
    instances = Ec2Instances(account)
    found = await listed(instances, aws_env)
    assert set(found) == set(crowd)
    assert all(7199 <= time.time() - each.launched_at / 1000 <= 7800 for each in found.values())
    assert aws.counts.calls["DescribeInstances"] == 2
    assert set(await instances.find(crowd)) == set(crowd)
    assert aws.counts.calls["DescribeInstances"] == 2 + 6
    await instances.terminate(crowd)
    assert aws.counts.calls["TerminateInstances"] == 11
    assert await listed(instances, aws_env) == {}


async def test_all_pages_of_more_than_a_thousand_parameters_are_followed(
    emulator: EmulatorProcess, aws: StrictProxy, account: Aws, parameters: SsmParameters
) -> None:
    names = [parameters.name_of(f"i-{number}") for number in range(1005)]
    await account.ssm("PutParameter", Name=names[0], Value="secret", Type="SecureString")
    emulator.copy_parameter(names[0], names[1:])
    pages = [page async for page in parameters.list()]
    assert {parameter.name for page in pages for parameter in page} == set(names)
    assert (len(pages), aws.counts.calls["GetParametersByPath"]) == (101, 101)
    assert set(await parameters.delete(names)) == set(names)
    assert aws.counts.calls["DeleteParameters"] == 101
    assert [page async for page in parameters.list()] == [[]]


async def test_parameters_are_listed_and_deleted(
    aws: StrictProxy, account: Aws, parameters: SsmParameters, aws_env: str
) -> None:
    names = [parameters.name_of(f"i-{number}") for number in range(12)]
    odd = f"/{aws_env}/runners/shared/more/config"
    for name in (*names, odd, f"/{aws_env}/other"):
        await account.ssm("PutParameter", Name=name, Value="secret", Type="SecureString")
    aws.faults.next("GetParametersByPath", FaultKind.EMPTY_PAGE)
    found = [parameter async for page in parameters.list() for parameter in page]
    assert {parameter.name for parameter in found} == {*names, odd}
    assert all(parameter.modified_at > 1_600_000_000_000 for parameter in found)
    assert [parameters.instance_of(name) for name in (names[7], odd, "/elsewhere")] == ["i-7", "", ""]
    missing = parameters.name_of("i-missing")
    assert set(await parameters.delete([*names[:11], missing])) == set(names[:11])
    assert await parameters.delete([missing]) == set()
    left = [parameter.name async for page in parameters.list() for parameter in page]
    assert set(left) == {names[11], odd}


async def test_a_description_that_lags_leaves_new_instances_out(
    aws: StrictProxy, account: Aws, aws_env: str
) -> None:
    aws.faults.next("DescribeInstances", FaultKind.STALE_READ, times=2)
    (made,) = await launch(aws.url, 1, pool=aws_env)
    instances = Ec2Instances(account)
    assert await listed(instances, aws_env) == {}
    assert await instances.find([made]) == {}
    aws.faults.next("DescribeInstances", FaultKind.EMPTY_PAGE)
    assert set(await listed(instances, aws_env)) == {made}


async def test_calls_are_repeated_after_100_500_and_1000_ms(
    aws: StrictProxy, account: Aws, parameters: SsmParameters, clock: HurriedClock
) -> None:
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "DescribeInstances": lambda: Ec2Instances(account).find(["i-0123456789abcdef0"]),
        "DeleteParameters": lambda: parameters.delete([parameters.name_of("i-1")]),
    }
    for operation, call in calls.items():
        for kind, error in ((FaultKind.THROTTLE, ResourceExhausted), (FaultKind.RESET, Unavailable)):
            aws.counts.reset()
            clock.pauses.clear()
            aws.faults.next(operation, kind, times=3)
            assert not await call()
            assert (clock.pauses, aws.counts.calls[operation]) == ([0.1, 0.5, 1.0], 4)
            aws.faults.next(operation, kind, times=4)
            with pytest.raises(error):
                await call()
            assert aws.counts.calls[operation] == 8


async def test_a_call_without_an_answer_ends_at_its_deadline(aws: StrictProxy) -> None:
    options = replace(options_of(aws.url), clients=("ec2", "ssm"), call_seconds=0.05)
    async with Aws(options, policy=replace(CALL_POLICY, attempts=1)) as impatient:
        aws.faults.next("TerminateInstances", FaultKind.EXECUTE_THEN_HOLD)
        with pytest.raises(Unavailable):
            await Ec2Instances(impatient).terminate(["i-0123456789abcdef0"])
        aws.faults.next("GetParametersByPath", FaultKind.EXECUTE_THEN_HOLD)
        with pytest.raises(Unavailable):
            [page async for page in SsmParameters(impatient).list()]


async def test_a_refusal_is_not_repeated(aws: StrictProxy, account: Aws, clock: HurriedClock) -> None:
    with pytest.raises(Refused):
        await Ec2Instances(account).terminate(["nonsense"])
    assert (aws.counts.calls["TerminateInstances"], clock.pauses) == (1, [])
