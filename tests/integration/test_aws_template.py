"""The template, deployed to an emulator over a socket, against what `provision` makes.

The emulator drops parts of a stack without a word: those are compared in tests/unit/test_aws_template.py.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiobotocore.session import get_session

from airunner.aws.calls import Aws, AwsOptions
from airunner.aws.provision import Change, provision
from airunner.aws.provision.definitions import ResourceDefinitions
from airunner.config import load_settings
from airunner.domain.clock import SystemClock
from airunner.fleet.aws.layout import FleetLayout, fleet_resources
from airunner.generation.layout import generation_resources
from airunner.stores.aws.layout import Layout, resources
from tests.doubles.aws.emulator import ACCESS_KEY, REGION, SECRET_KEY, EmulatorProcess
from tests.support.template import FLEET_PATH, GENERATION_PATH, PATH

pytest_plugins = ("tests.support.aws",)

# What moto does not take from a stack, by the names that provisioning has for it.
DROPPED = {
    "SSESpecification",
    "TimeToLiveSpecification",
    "PointInTimeRecoverySpecification",
    "PublicAccessBlockConfiguration",
    "LifecycleConfiguration",
}
# What is different each time.
PASSING = {
    "CreatedTimestamp",
    "LastModifiedTimestamp",
    "CreationDateTime",
    "LatestStreamLabel",
    "LatestStreamArn",
    "TableId",
}


@pytest.fixture
async def account(emulator: EmulatorProcess) -> AsyncIterator[Aws]:
    options = AwsOptions(
        region=REGION, endpoint_url=emulator.url, access_key=ACCESS_KEY, secret_key=SECRET_KEY, attempts=1
    )
    async with Aws(options) as opened:
        yield opened


@pytest.mark.parametrize("streams", [False, True])
async def test_provisioning_finds_nothing_to_mend_in_a_stack(
    account: Aws, emulator: EmulatorProcess, aws_env: str, streams: bool
) -> None:
    layout = layout_of(aws_env, streams=streams)
    await deploy(emulator, layout)
    made = await provision(account, resources(layout), SystemClock(), dry_run=True)
    assert [each.name for each in made if each.change == Change.CREATED] == []
    assert {detail for each in made for detail in each.details} <= DROPPED


@pytest.mark.parametrize("streams", [False, True])
async def test_stack_and_provisioning_make_the_same(
    account: Aws, emulator: EmulatorProcess, aws_env: str, streams: bool
) -> None:
    by_stack, by_calls = layout_of(f"{aws_env}a", streams=streams), layout_of(f"{aws_env}b", streams=streams)
    await deploy(emulator, by_stack)
    await provision(account, resources(by_calls), SystemClock())
    for table in ("jobs_table", "events_table"):
        stacked, called = [
            await described(account, getattr(layout, table), layout.env) for layout in (by_stack, by_calls)
        ]
        assert called.pop("SSEDescription")["Status"] == "ENABLED"
        assert stacked == called
    for queue in ("default", "default-dlq", "priority", "priority-dlq"):
        stacked, called = [await attributes(account, queue, layout.env) for layout in (by_stack, by_calls)]
        assert stacked == called


async def test_the_outputs_are_the_settings_of_a_server(
    account: Aws, emulator: EmulatorProcess, aws_env: str
) -> None:
    layout = layout_of(aws_env)
    outputs = await deploy(emulator, layout)
    urls = dict(entry.split("=") for entry in outputs["QueueUrls"].split(","))
    assert {name: url.rpartition("/")[2] for name, url in urls.items()} == {
        "default": f"airunner-{aws_env}-default",
        "priority": f"airunner-{aws_env}-priority",
    }
    assert outputs["JobsTableName"] == layout.jobs_table
    assert outputs["EventsTableName"] == layout.events_table
    assert outputs["BucketName"] == layout.bucket


async def test_without_a_bucket_there_is_none(account: Aws, emulator: EmulatorProcess, aws_env: str) -> None:
    before = await account.s3("ListBuckets")
    outputs = await deploy(emulator, layout_of(aws_env, bucket=""))
    after = await account.s3("ListBuckets")
    assert "BucketName" not in outputs
    assert after["Buckets"] == before["Buckets"]


async def test_the_queues_of_generation_are_the_same_by_stack_and_by_calls(
    account: Aws, emulator: EmulatorProcess, aws_env: str
) -> None:
    """Also with another number of tries, which provisioning raises and lowers to what is set."""
    stack = f"{aws_env}a"
    parameters = {"Env": stack, "MaxReceiveCount": "3"}
    outputs = await deploy_template(emulator, GENERATION_PATH, f"generation-{stack}", parameters)
    assert outputs["QueueUrl"].endswith(f"/airunner-{stack}-generation")
    assert outputs["DeadLetterQueueUrl"].endswith(f"/airunner-{stack}-generation-dlq")
    (found, mended) = [
        await provision(account, generation_of(stack, count), SystemClock()) for count in (3, 2)
    ]
    assert [each.change for each in found] == [Change.UNCHANGED, Change.UNCHANGED]
    assert [each.details for each in mended] == [(), ("RedrivePolicy",)]
    assert [each.arn for each in found] == [outputs["DeadLetterQueueArn"], outputs["QueueArn"]]
    calls = f"{aws_env}b"
    await provision(account, generation_of(calls, 2), SystemClock())
    for queue in ("generation", "generation-dlq"):
        assert await attributes(account, queue, stack) == await attributes(account, queue, calls)


async def test_queues_and_tables_of_a_fleet_are_the_same_by_stack_and_by_calls(
    account: Aws, emulator: EmulatorProcess, aws_env: str
) -> None:
    by_stack, by_calls = FleetLayout(env=f"{aws_env}a"), FleetLayout(env=f"{aws_env}b")
    outputs = await deploy_template(emulator, FLEET_PATH, f"fleet-{by_stack.env}", {"Env": by_stack.env})
    for queue, output in (("termination", "TerminationQueueUrl"), ("housekeeping", "HousekeepingQueueUrl")):
        assert outputs[output].endswith(f"/{by_stack.queue_name(queue)}")
    assert (outputs["FleetTableName"], outputs["PoolsTableName"]) == (
        by_stack.fleet_table,
        by_stack.pool_table,
    )
    found = await provision(account, fleet_resources(by_stack), SystemClock(), dry_run=True)
    assert [each.name for each in found if each.change is Change.CREATED] == []
    assert {detail for each in found for detail in each.details} <= DROPPED
    await provision(account, fleet_resources(by_calls), SystemClock())
    for table in ("fleet_table", "pool_table"):
        stacked, called = [
            await described(account, getattr(layout, table), layout.env) for layout in (by_stack, by_calls)
        ]
        assert called.pop("SSEDescription")["Status"] == "ENABLED"
        assert stacked == called
    for queue in ("termination", "termination-dlq", "housekeeping", "housekeeping-dlq"):
        stacked, called = [await attributes(account, queue, layout.env) for layout in (by_stack, by_calls)]
        assert stacked == called


def generation_of(env: str, max_receive_count: int) -> ResourceDefinitions:
    flags = {"store.aws.env": env, "generation.max_receive_count": max_receive_count}
    return generation_resources(load_settings(environ={}, flags=flags).settings)


def layout_of(env: str, *, streams: bool = False, bucket: str | None = None) -> Layout:
    return Layout(
        env=env,
        queues={"default": "", "priority": ""},
        jobs_table=f"jobs_{env}",
        events_table=f"events_{env}",
        bucket=f"payloads-{env}" if bucket is None else bucket,
        streams=streams,
    )


async def deploy(emulator: EmulatorProcess, layout: Layout) -> dict[str, str]:
    """Make the stack and return its outputs."""
    parameters = {
        "Env": layout.env,
        "JobsTableName": layout.jobs_table,
        "EventsTableName": layout.events_table,
        "BucketName": layout.bucket,
        "Streams": str(layout.streams).lower(),
    }
    return await deploy_template(emulator, PATH, f"airunner-{layout.env}", parameters)


async def deploy_template(
    emulator: EmulatorProcess, path: Path, name: str, parameters: dict[str, str]
) -> dict[str, str]:
    entries: Any = [{"ParameterKey": name, "ParameterValue": value} for name, value in parameters.items()]
    async with get_session().create_client(
        "cloudformation",
        region_name=REGION,
        endpoint_url=emulator.url,
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=SECRET_KEY,
    ) as formation:
        await formation.create_stack(
            StackName=name,
            TemplateBody=path.read_text(),
            Parameters=entries,
            Capabilities=["CAPABILITY_IAM"],
        )
        stack = (await formation.describe_stacks(StackName=name))["Stacks"][0]
    assert stack["StackStatus"] == "CREATE_COMPLETE"
    return {output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]}


async def described(account: Aws, table: str, env: str) -> dict[str, Any]:
    reply = await account.dynamodb("DescribeTable", TableName=table)
    return _comparable(reply["Table"], env)


async def attributes(account: Aws, queue: str, env: str) -> dict[str, Any]:
    url = (await account.sqs("GetQueueUrl", QueueName=f"airunner-{env}-{queue}"))["QueueUrl"]
    reply = await account.sqs("GetQueueAttributes", QueueUrl=url, AttributeNames=["All"])
    found = _comparable(reply["Attributes"], env)
    return found | ({"RedrivePolicy": json.loads(found["RedrivePolicy"])} if "RedrivePolicy" in found else {})


def _comparable(found: dict[str, Any], env: str) -> dict[str, Any]:
    kept = {name: value for name, value in found.items() if name not in PASSING}
    comparable: dict[str, Any] = json.loads(json.dumps(kept, default=str).replace(env, "ENV"))
    return comparable
