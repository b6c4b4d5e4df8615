"""The strict double of EC2, SSM and CloudWatch: pages, limits, lags and ages, seen through the SDK."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from tests.doubles.aws.emulator import EmulatorFailed, EmulatorProcess
from tests.doubles.aws.faults import FaultKind
from tests.doubles.aws.strict import StrictProxy
from tests.support.aws import client
from tests.support.aws_samples import refused

pytest_plugins = ("tests.support.aws_samples",)

UNKNOWN = "i-0123456789abcdef0"
DATUM: Mapping[str, Any] = {"MetricName": "Jobs", "Value": 1.0}


@pytest.fixture
async def ec2(aws: StrictProxy) -> AsyncIterator[Any]:
    async with client("ec2", aws.url) as opened:
        yield opened


@pytest.fixture
async def ssm(aws: StrictProxy) -> AsyncIterator[Any]:
    async with client("ssm", aws.url) as opened:
        yield opened


async def launch(ec2: Any, env: str, count: int = 1) -> list[str]:
    tags = [{"Key": "env", "Value": env}]
    answer = await ec2.run_instances(
        ImageId="ami-12c6146b",
        MinCount=count,
        MaxCount=count,
        TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
    )
    return [entry["InstanceId"] for entry in answer["Instances"]]


async def describe(ec2: Any, *filters: tuple[str, list[str]], **options: Any) -> tuple[dict[str, str], str]:
    """Return the states of the instances of a page, and where the next one begins."""
    named = [{"Name": name, "Values": values} for name, values in filters]
    answer = await ec2.describe_instances(Filters=named, **options)
    found = [entry for each in answer["Reservations"] for entry in each["Instances"]]
    return {entry["InstanceId"]: entry["State"]["Name"] for entry in found}, answer.get("NextToken", "")


# EC2


async def test_pages_are_of_instances_and_may_be_empty(aws: StrictProxy, ec2: Any, aws_env: str) -> None:
    made = await launch(ec2, aws_env, 12)
    mine = ("tag:env", [aws_env])
    aws.faults.next("DescribeInstances", FaultKind.EMPTY_PAGE)
    nothing, token = await describe(ec2, mine, MaxResults=5)
    assert (nothing, bool(token)) == ({}, True)
    found: dict[str, str] = {}
    sizes = []
    while token:
        page, token = await describe(ec2, mine, MaxResults=5, NextToken=token)
        sizes.append(len(page))
        found |= page
    assert (sizes, set(found)) == ([5, 5, 2], set(made))
    assert aws.counts.calls["DescribeInstances"] == 4
    with refused("InvalidNextToken"):
        await describe(ec2, mine, MaxResults=5, NextToken="page-0")


async def test_descriptions_are_refused_beyond_the_limits(ec2: Any) -> None:
    ids = [f"i-{number:017x}" for number in range(201)]
    assert await describe(ec2, ("instance-id", ids[:200])) == ({}, "")
    with refused("FilterLimitExceeded"):
        await describe(ec2, ("instance-id", ids))
    with refused("InvalidParameterValue"):
        await describe(ec2, ("instance-idea", ids[:1]))
    for size in (4, 1001):
        with refused("InvalidParameterValue"):
            await describe(ec2, MaxResults=size)
    with refused("InvalidParameterCombination"):
        await describe(ec2, MaxResults=5, InstanceIds=ids[:1])


async def test_one_unknown_id_fails_a_whole_call(ec2: Any, aws_env: str) -> None:
    (made,) = await launch(ec2, aws_env)
    for call in (ec2.describe_instances, ec2.terminate_instances):
        with refused("InvalidInstanceID.NotFound"):
            await call(InstanceIds=[made, UNKNOWN])
        with refused("InvalidInstanceID.Malformed"):
            await call(InstanceIds=[made, "i-nonsense"])
    assert await describe(ec2, ("instance-id", [made])) == ({made: "running"}, "")


async def test_descriptions_lag_behind_changes(aws: StrictProxy, ec2: Any, aws_env: str) -> None:
    aws.faults.next("DescribeInstances", FaultKind.STALE_READ, times=3)
    (old,) = await launch(ec2, aws_env)
    assert await describe(ec2, ("tag:env", [aws_env])) == ({}, "")
    aws.faults.release()
    await ec2.terminate_instances(InstanceIds=[old])
    (new,) = await launch(ec2, aws_env)
    assert await describe(ec2, ("tag:env", [aws_env])) == ({old: "running"}, "")
    assert await describe(ec2, ("instance-id", [old]), ("instance-state-name", ["terminated"])) == ({}, "")
    known = {old: "terminated", new: "running"}
    assert await describe(ec2, ("tag:env", [aws_env])) == (known, "")


async def test_throttling_and_faults_are_those_of_each_service(aws: StrictProxy, aws_env: str) -> None:
    calls = {
        "DescribeInstances": ("ec2", {}, "RequestLimitExceeded", "InternalError"),
        "GetParametersByPath": ("ssm", {"Path": "/"}, "ThrottlingException", "InternalServerError"),
        "ListMetrics": ("cloudwatch", {}, "Throttling", "InternalServiceFault"),
    }
    for operation, (service, arguments, throttled, broken) in calls.items():
        for kind, code in ((FaultKind.THROTTLE, throttled), (FaultKind.SERVER_ERROR, broken)):
            aws.faults.next(operation, kind)
            async with client(service, aws.url) as opened:  # type: ignore[arg-type] # one of the three
                with refused(code):
                    await opened._make_api_call(operation, arguments)
        assert aws.counts.calls[operation] == 2


# Ages


async def test_launches_and_parameters_can_be_backdated(
    emulator: EmulatorProcess, ec2: Any, ssm: Any, aws_env: str
) -> None:
    (made,) = await launch(ec2, aws_env)
    name = f"/{aws_env}/a"
    await ssm.put_parameter(Name=name, Value="x", Type="String")
    emulator.backdate(7200, instances=[made], parameters=[name])
    answer = await ec2.describe_instances(InstanceIds=[made])
    launched = answer["Reservations"][0]["Instances"][0]["LaunchTime"].timestamp()
    written = (await ssm.get_parameter(Name=name))["Parameter"]["LastModifiedDate"].timestamp()
    for instant in (launched, written):
        assert 7199 <= time.time() - instant <= 7260
    with pytest.raises(EmulatorFailed):
        emulator.backdate(1, instances=[UNKNOWN])


# SSM


async def test_parameters_come_and_go_in_tens(aws: StrictProxy, ssm: Any, aws_env: str) -> None:
    names = [f"/{aws_env}/{number}/config" for number in range(11)]
    for name in names:
        await ssm.put_parameter(Name=name, Value="x", Type="String")
    aws.faults.next("GetParametersByPath", FaultKind.EMPTY_PAGE)
    pages: list[list[str]] = []
    token: dict[str, str] = {}
    while not pages or token:
        answer = await ssm.get_parameters_by_path(Path=f"/{aws_env}", Recursive=True, **token)
        pages.append([parameter["Name"] for parameter in answer["Parameters"]])
        token = {"NextToken": answer["NextToken"]} if "NextToken" in answer else {}
    assert [len(page) for page in pages] == [0, 10, 1]
    with refused("ValidationException"):
        await ssm.get_parameters_by_path(Path=f"/{aws_env}", MaxResults=11)
    with refused("ValidationException"):
        await ssm.get_parameters_by_path(Path=aws_env)
    for wrong in (names, names[:1] * 2):
        with refused("ValidationException"):
            await ssm.delete_parameters(Names=wrong)
    answer = await ssm.delete_parameters(Names=[*names[:2], f"/{aws_env}/missing"])
    assert set(answer["DeletedParameters"]) == set(names[:2])
    assert answer["InvalidParameters"] == [f"/{aws_env}/missing"]


async def test_a_secure_string_is_read_by_who_asks_for_its_decryption(ssm: Any, aws_env: str) -> None:
    name = f"/{aws_env}/i-1/config"
    await ssm.put_parameter(Name=name, Value="hush", Type="SecureString", Tags=[{"Key": "a", "Value": "b"}])
    for answer in (
        (await ssm.get_parameter(Name=name))["Parameter"],
        (await ssm.get_parameters_by_path(Path=f"/{aws_env}", Recursive=True))["Parameters"][0],
    ):
        assert "hush" not in answer["Value"]
    assert (await ssm.get_parameter(Name=name, WithDecryption=True))["Parameter"]["Value"] == "hush"
    tags = await ssm.list_tags_for_resource(ResourceType="Parameter", ResourceId=name)
    assert tags["TagList"] == [{"Key": "a", "Value": "b"}]


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"Name": "/a b"}, "ValidationException"),
        ({"Name": "/aws/x"}, "ValidationException"),
        ({"Name": "/x" * 16}, "HierarchyLevelLimitExceededException"),
        ({"Value": "x" * 4097}, "ValidationException"),
        ({"Overwrite": True, "Tags": [{"Key": "a", "Value": "b"}]}, "ValidationException"),
    ],
)
async def test_parameters_are_refused_beyond_the_limits(
    ssm: Any, aws_env: str, changed: dict[str, Any], code: str
) -> None:
    arguments = {"Name": f"/{aws_env}/a", "Value": "x", "Type": "String", **changed}
    with refused(code):
        await ssm.put_parameter(**arguments)


async def test_a_parameter_is_not_overwritten_unawares(ssm: Any, aws_env: str) -> None:
    await ssm.put_parameter(Name=f"/{aws_env}/a", Value="x", Type="String")
    with refused("ParameterAlreadyExists"):
        await ssm.put_parameter(Name=f"/{aws_env}/a", Value="y", Type="String")
    await ssm.put_parameter(Name=f"/{aws_env}/a", Value="y", Type="String", Overwrite=True)


# CloudWatch


@pytest.mark.parametrize(
    ("data", "code"),
    [
        ([{**DATUM, "Unit": "Parsec"}], "InvalidParameterValue"),
        ([{**DATUM, "Values": [1.0]}], "InvalidParameterCombination"),
        ([{"MetricName": "Jobs", "Values": [float(n) for n in range(151)]}], "InvalidParameterValue"),
        ([{"MetricName": "Jobs", "Values": [1.0, 2.0], "Counts": [1.0]}], "InvalidParameterValue"),
        ([{**DATUM, "Dimensions": [{"Name": "Pool", "Value": "ä"}]}], "InvalidParameterValue"),
        ([{**DATUM, "Dimensions": [{"Name": "Pool", "Value": " "}]}], "InvalidParameterValue"),
        ([DATUM] * 1001, "InvalidParameterValue"),
    ],
)
async def test_metrics_are_refused_beyond_the_limits(
    aws: StrictProxy, aws_env: str, data: list[Any], code: str
) -> None:
    async with client("cloudwatch", aws.url) as cloudwatch:
        with refused(code):
            await cloudwatch.put_metric_data(Namespace=aws_env, MetricData=data)
        with refused("InvalidParameterValue"):
            await cloudwatch.put_metric_data(Namespace="AWS/EC2", MetricData=[DATUM])


async def test_metrics_that_are_many_are_read_and_passed_on(aws: StrictProxy, aws_env: str) -> None:
    """The SDK compresses what is large."""
    async with client("cloudwatch", aws.url) as cloudwatch:
        data = [{**DATUM, "MetricName": f"{'m' * 200}{number}"} for number in range(300)]
        await cloudwatch.put_metric_data(Namespace=aws_env, MetricData=data)
        listed = await cloudwatch.list_metrics(Namespace=aws_env, MetricName=data[-1]["MetricName"])
    assert len(listed["Metrics"]) == 1
    assert aws.counts.calls["PutMetricData"] == 1
