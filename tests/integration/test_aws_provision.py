"""Provisioning against an emulator over a socket: what is made, mended, left alone and refused."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airunner.app import provision_aws
from airunner.aws.calls import Aws, AwsOptions
from airunner.aws.provision import Change, Resource, ResourceKind, provision
from airunner.aws.table_meta import TableOwnership
from airunner.config import load_settings
from airunner.domain.clock import SystemClock
from airunner.domain.errors import DeadlineExceeded, FailedPrecondition, InvalidArgument
from airunner.stores.aws import layout as definitions
from airunner.stores.aws.layout import Layout
from tests.doubles.aws.emulator import ACCESS_KEY, REGION, SECRET_KEY, EmulatorProcess

pytest_plugins = ("tests.support.aws",)

OPERATOR_POLICY = Path(__file__).parents[2] / "infra" / "provisioning-policy.json"
# Operations of S3 whose right has another name.
RIGHTS = {
    "GetBucketEncryption": "GetEncryptionConfiguration",
    "GetBucketLifecycleConfiguration": "GetLifecycleConfiguration",
    "GetPublicAccessBlock": "GetBucketPublicAccessBlock",
    "HeadBucket": "ListBucket",
    "PutBucketEncryption": "PutEncryptionConfiguration",
    "PutBucketLifecycleConfiguration": "PutLifecycleConfiguration",
    "PutPublicAccessBlock": "PutBucketPublicAccessBlock",
}


@pytest.fixture
async def account(emulator: EmulatorProcess) -> AsyncIterator[Aws]:
    options = AwsOptions(
        region=REGION,
        endpoint_url=emulator.url,
        access_key=ACCESS_KEY,
        secret_key=SECRET_KEY,
        attempts=1,
        validate=True,
    )
    async with Aws(options) as opened:
        yield opened


@pytest.fixture
def layout(aws_env: str) -> Layout:
    return Layout(
        env=aws_env,
        queues={"default": "", "priority": ""},
        jobs_table=f"jobs_{aws_env}",
        events_table=f"events_{aws_env}",
        bucket=f"payloads-{aws_env}",
    )


async def make(account: Aws, layout: Layout, **options: Any) -> list[Resource]:
    return await provision(account, definitions.resources(layout), SystemClock(), **options)


def changes(made: Sequence[Resource]) -> dict[str, Change]:
    return {each.name: each.change for each in made}


async def test_everything_is_made_and_named(account: Aws, layout: Layout, emulator: EmulatorProcess) -> None:
    made = await make(account, layout)
    env = layout.env
    assert [(each.kind, each.name) for each in made] == [
        (ResourceKind.DEAD_LETTER_QUEUE, f"airunner-{env}-default-dlq"),
        (ResourceKind.QUEUE, f"airunner-{env}-default"),
        (ResourceKind.DEAD_LETTER_QUEUE, f"airunner-{env}-priority-dlq"),
        (ResourceKind.QUEUE, f"airunner-{env}-priority"),
        (ResourceKind.TABLE, layout.jobs_table),
        (ResourceKind.TABLE, layout.events_table),
        (ResourceKind.BUCKET, layout.bucket),
    ]
    assert set(changes(made).values()) == {Change.CREATED}
    place = f"{REGION}:123456789012"
    assert made[1].arn == f"arn:aws:sqs:{place}:airunner-{env}-default"
    assert made[1].url == f"{emulator.url}/123456789012/airunner-{env}-default"
    assert made[4].arn == f"arn:aws:dynamodb:{place}:table/{layout.jobs_table}"
    assert made[6].arn == f"arn:aws:s3:::{layout.bucket}"


async def test_what_is_made_is_as_defined(account: Aws, layout: Layout) -> None:
    await make(account, replace(layout, streams=True, deletion_protection=True))
    found = await queue_attributes(account, f"airunner-{layout.env}-default")
    assert found["VisibilityTimeout"] == "300"
    assert found["ReceiveMessageWaitTimeSeconds"] == "20"
    assert found["MessageRetentionPeriod"] == "1209600"
    assert found["SqsManagedSseEnabled"] == "true"
    assert json.loads(found["RedrivePolicy"]) == {
        "deadLetterTargetArn": f"{found['QueueArn']}-dlq",
        "maxReceiveCount": 1000,
    }
    jobs, events = await described(account, layout.jobs_table), await described(account, layout.events_table)
    assert keys_of(jobs) == [("job_id", "HASH")]
    assert {index["IndexName"]: keys_of(index) for index in jobs["GlobalSecondaryIndexes"]} == {
        "listing": [("list_key", "HASH"), ("order_key", "RANGE")],
        "checks": [("check_key", "HASH"), ("check_at", "RANGE")],
    }
    assert keys_of(events) == [("job_id", "HASH"), ("sequence", "RANGE")]
    assert events["StreamSpecification"] == {"StreamEnabled": True, "StreamViewType": "KEYS_ONLY"}
    assert "StreamSpecification" not in jobs
    for table in (jobs, events):
        assert table["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"
        assert table["SSEDescription"]["Status"] == "ENABLED"
        assert table["DeletionProtectionEnabled"]
        assert await time_to_live(account, table["TableName"]) == ("ENABLED", "ttl")
        assert await recovery(account, table["TableName"]) == "ENABLED"


async def test_the_bucket_is_encrypted_closed_and_expires(account: Aws, layout: Layout) -> None:
    await make(account, layout)
    encryption = await account.s3("GetBucketEncryption", Bucket=layout.bucket)
    rule = encryption["ServerSideEncryptionConfiguration"]["Rules"][0]
    assert rule["ApplyServerSideEncryptionByDefault"] == {"SSEAlgorithm": "AES256"}
    block = await account.s3("GetPublicAccessBlock", Bucket=layout.bucket)
    assert set(block["PublicAccessBlockConfiguration"].values()) == {True}
    assert [rule["Expiration"] for rule in await lifecycle_rules(account, layout.bucket)] == [{"Days": 60}]
    place = await account.s3("GetBucketLocation", Bucket=layout.bucket)
    assert place["LocationConstraint"] == REGION


async def test_a_second_time_changes_nothing(account: Aws, layout: Layout) -> None:
    layout = replace(layout, streams=True, deletion_protection=True)
    first = await make(account, layout)
    second = await make(account, layout)
    assert set(changes(second).values()) == {Change.UNCHANGED}
    assert [(each.arn, each.url) for each in second] == [(each.arn, each.url) for each in first]


async def test_what_was_turned_on_stays_on(account: Aws, layout: Layout) -> None:
    await make(account, replace(layout, streams=True, deletion_protection=True))
    assert set(changes(await make(account, layout)).values()) == {Change.UNCHANGED}
    table = await described(account, layout.events_table)
    assert table["DeletionProtectionEnabled"]
    assert table["StreamSpecification"]["StreamEnabled"]


async def test_a_queue_that_was_changed_is_mended(account: Aws, layout: Layout) -> None:
    made = await make(account, layout)
    odd = {"VisibilityTimeout": "7", "DelaySeconds": "3", "RedrivePolicy": json.dumps(
        {"deadLetterTargetArn": made[0].arn, "maxReceiveCount": 3}
    )}  # fmt: skip
    await account.sqs("SetQueueAttributes", QueueUrl=made[1].url, Attributes=odd)
    again = await make(account, layout)
    assert [each.name for each in again if each.change != Change.UNCHANGED] == [made[1].name]
    assert again[1].details == ("RedrivePolicy", "VisibilityTimeout")
    found = await queue_attributes(account, made[1].name)
    assert found["VisibilityTimeout"] == "300"
    assert json.loads(found["RedrivePolicy"])["maxReceiveCount"] == 1000
    assert found["DelaySeconds"] == "3"


async def test_more_receives_than_we_need_are_left_to_the_operator(account: Aws, layout: Layout) -> None:
    made = await make(account, layout)
    policy = json.dumps({"deadLetterTargetArn": made[0].arn, "maxReceiveCount": "1001"})
    await account.sqs("SetQueueAttributes", QueueUrl=made[1].url, Attributes={"RedrivePolicy": policy})
    assert set(changes(await make(account, layout)).values()) == {Change.UNCHANGED}


async def test_a_bare_table_gets_all_that_it_lacks(account: Aws, layout: Layout) -> None:
    wanted = definitions.jobs_table(layout)
    bare = {name: wanted[name] for name in ("TableName", "KeySchema")} | {
        "AttributeDefinitions": [{"AttributeName": "job_id", "AttributeType": "S"}],
        "ProvisionedThroughput": {"ReadCapacityUnits": 1, "WriteCapacityUnits": 1},
    }
    await account.dynamodb("CreateTable", **bare)
    made = {each.name: each for each in await make(account, layout)}[layout.jobs_table]
    assert made.change == Change.UPDATED
    assert made.details == (
        "BillingMode",
        "SSESpecification",
        "index listing",
        "index checks",
        "TimeToLiveSpecification",
        "PointInTimeRecoverySpecification",
    )
    table = await described(account, layout.jobs_table)
    assert {index["IndexName"] for index in table["GlobalSecondaryIndexes"]} == {"listing", "checks"}
    kinds = {entry["AttributeName"]: entry["AttributeType"] for entry in table["AttributeDefinitions"]}
    assert kinds == {"job_id": "S", "list_key": "S", "order_key": "S", "check_key": "S", "check_at": "N"}
    assert await time_to_live(account, layout.jobs_table) == ("ENABLED", "ttl")
    again = [each.details for each in await make(account, layout) if each.change != Change.UNCHANGED]
    assert again == [("SSESpecification",)]  # which the emulator accepts for an existing table, and forgets


async def test_lifecycle_rules_of_others_stay(account: Aws, layout: Layout) -> None:
    theirs = {
        "ID": "theirs",
        "Status": "Enabled",
        "Filter": {"Prefix": "logs/"},
        "Expiration": {"Days": 5},
    }
    place = {"LocationConstraint": REGION}
    await account.s3("CreateBucket", Bucket=layout.bucket, CreateBucketConfiguration=place)
    rules = {"Rules": [theirs]}
    await account.s3("PutBucketLifecycleConfiguration", Bucket=layout.bucket, LifecycleConfiguration=rules)
    made = (await make(account, layout))[-1]
    assert made.change == Change.UPDATED
    assert "LifecycleConfiguration" in made.details
    found = {rule["ID"]: rule["Expiration"] for rule in await lifecycle_rules(account, layout.bucket)}
    assert found == {"theirs": {"Days": 5}, "expire-payloads": {"Days": 60}}


async def test_a_dry_run_tells_and_does_nothing(account: Aws, layout: Layout) -> None:
    assert set(changes(await make(account, layout, dry_run=True)).values()) == {Change.CREATED}
    assert set(changes(await make(account, layout, dry_run=True)).values()) == {Change.CREATED}
    made = await make(account, layout)
    await account.sqs("SetQueueAttributes", QueueUrl=made[1].url, Attributes={"VisibilityTimeout": "7"})
    told = await make(account, replace(layout, streams=True), dry_run=True)
    assert {each.name: each.details for each in told if each.change == Change.UPDATED} == {
        made[1].name: ("VisibilityTimeout",),
        layout.events_table: ("StreamSpecification",),
    }
    assert (await queue_attributes(account, made[1].name))["VisibilityTimeout"] == "7"
    assert "StreamSpecification" not in await described(account, layout.events_table)


@pytest.mark.parametrize(
    ("difference", "message"),
    [
        ({"key": "id"}, "has the key id (S, HASH), but airunner needs the key job_id (S, HASH)"),
        ({"kind": "N"}, "has the key job_id (N, HASH), but airunner needs the key job_id (S, HASH)"),
        (
            {"index_key": "other"},
            "has the key other (S, HASH), order_key (S, RANGE), but airunner needs the key list_key",
        ),
        ({"projection": {"ProjectionType": "KEYS_ONLY"}}, "has the projection KEYS_ONLY"),
    ],
)
async def test_other_keys_are_refused(
    account: Aws, layout: Layout, difference: dict[str, Any], message: str
) -> None:
    await account.dynamodb("CreateTable", **unlike(definitions.jobs_table(layout), **difference))
    before = await described(account, layout.jobs_table)
    with pytest.raises(FailedPrecondition) as caught:
        await make(account, layout)
    assert layout.jobs_table in caught.value.text
    assert message in caught.value.text
    assert await described(account, layout.jobs_table) == before


async def test_another_time_to_live_is_refused(account: Aws, layout: Layout) -> None:
    await account.dynamodb("CreateTable", **definitions.jobs_table(layout))
    other = {"AttributeName": "expires", "Enabled": True}
    await account.dynamodb("UpdateTimeToLive", TableName=layout.jobs_table, TimeToLiveSpecification=other)
    with pytest.raises(FailedPrecondition, match="time-to-live attribute expires"):
        await make(account, layout)


async def test_a_stream_of_images_will_do(account: Aws, layout: Layout) -> None:
    table = definitions.events_table(layout)
    stream = table["StreamSpecification"] = {"StreamEnabled": True, "StreamViewType": "NEW_IMAGE"}
    await account.dynamodb("CreateTable", **table)
    await make(account, replace(layout, streams=True))
    assert (await described(account, layout.events_table))["StreamSpecification"] == stream


async def test_an_index_of_everything_will_do(account: Aws, layout: Layout) -> None:
    table = unlike(definitions.jobs_table(layout), projection={"ProjectionType": "ALL"})
    await account.dynamodb("CreateTable", **table)
    made = {each.name: each for each in await make(account, layout)}
    assert not [what for what in made[layout.jobs_table].details if "index" in what]


async def test_a_queue_with_a_url_is_known_by_it(account: Aws, layout: Layout) -> None:
    url = (await account.sqs("CreateQueue", QueueName=f"ours-{layout.env}"))["QueueUrl"]
    made = await make(account, replace(layout, queues={"default": url}, bucket=""))
    assert [each.name for each in made[:2]] == [f"ours-{layout.env}-dlq", f"ours-{layout.env}"]
    assert [each.change for each in made[:2]] == [Change.CREATED, Change.UPDATED]


async def test_a_name_too_long_for_sqs_is_refused_before_anything_is_made(
    account: Aws, layout: Layout
) -> None:
    with pytest.raises(InvalidArgument, match="more than 80 characters"):
        await make(account, replace(layout, queues={"default": "", "q" * 70: ""}))
    assert set(changes(await make(account, layout, dry_run=True)).values()) == {Change.CREATED}


async def test_waiting_for_a_table_ends(account: Aws, layout: Layout) -> None:
    with pytest.raises(DeadlineExceeded, match=f"table {layout.jobs_table} is still not active"):
        await make(NeverActive(account), layout, deadline_seconds=0)


class NeverActive(Aws):
    """An account in which no table becomes active: the emulator's do at once."""

    def __init__(self, account: Aws) -> None:
        self._account = account

    async def dynamodb(self, operation: str, **arguments: Any) -> dict[str, Any]:
        reply = await self._account.dynamodb(operation, **arguments)
        if operation == "DescribeTable":
            reply["Table"]["TableStatus"] = "CREATING"
        return reply

    async def sqs(self, operation: str, *, wait_seconds: float = 0, **arguments: Any) -> dict[str, Any]:
        return await self._account.sqs(operation, wait_seconds=wait_seconds, **arguments)


# The rights of an operator


class Recording(Aws):
    """An account that remembers what was called."""

    def __init__(self, account: Aws) -> None:
        self._account = account
        self.calls: set[tuple[str, str]] = set()

    async def dynamodb(self, operation: str, **arguments: Any) -> dict[str, Any]:
        self.calls.add(("dynamodb", operation))
        return await self._account.dynamodb(operation, **arguments)

    async def sqs(self, operation: str, **arguments: Any) -> dict[str, Any]:
        self.calls.add(("sqs", operation))
        return await self._account.sqs(operation, **arguments)

    async def s3(self, operation: str, **arguments: Any) -> dict[str, Any]:
        self.calls.add(("s3", operation))
        return await self._account.s3(operation, **arguments)


async def test_the_policy_of_the_operator_allows_what_provisioning_calls(
    account: Aws, layout: Layout
) -> None:
    recording = Recording(account)
    first, full = replace(layout, bucket=""), replace(layout, streams=True, deletion_protection=True)
    made: list[Resource] = []
    for wanted in (first, full, full):
        ownership = TableOwnership(recording, definitions.owned_table(wanted), wanted.env)
        await ownership.refuse_others()
        made = await make(recording, wanted)
        await ownership.ensure()
    await account.sqs("SetQueueAttributes", QueueUrl=made[1].url, Attributes={"VisibilityTimeout": "7"})
    await make(recording, full)
    statements = json.loads(OPERATOR_POLICY.read_text())["Statement"]
    allowed = {action for statement in statements for action in statement["Action"]}
    assert allowed == {f"{service}:{RIGHTS.get(name, name)}" for service, name in recording.calls}
    assert {statement["Effect"] for statement in statements} == {"Allow"}


def unlike(
    table: dict[str, Any],
    *,
    key: str = "job_id",
    kind: str = "S",
    index_key: str = "list_key",
    projection: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the same table with another key, or with another index `listing`."""
    text = json.dumps(table).replace('"job_id"', f'"{key}"').replace('"list_key"', f'"{index_key}"')
    changed: dict[str, Any] = json.loads(text)
    changed["AttributeDefinitions"][0]["AttributeType"] = kind
    if projection:
        changed["GlobalSecondaryIndexes"][0]["Projection"] = projection
    return changed


async def queue_attributes(account: Aws, name: str) -> dict[str, str]:
    url = (await account.sqs("GetQueueUrl", QueueName=name))["QueueUrl"]
    reply = await account.sqs("GetQueueAttributes", QueueUrl=url, AttributeNames=["All"])
    return dict(reply["Attributes"])


async def described(account: Aws, table: str) -> dict[str, Any]:
    return dict((await account.dynamodb("DescribeTable", TableName=table))["Table"])


async def time_to_live(account: Aws, table: str) -> tuple[str, str]:
    reply = await account.dynamodb("DescribeTimeToLive", TableName=table)
    found = reply["TimeToLiveDescription"]
    return found["TimeToLiveStatus"], found.get("AttributeName", "")


async def recovery(account: Aws, table: str) -> str:
    reply = await account.dynamodb("DescribeContinuousBackups", TableName=table)
    found = reply["ContinuousBackupsDescription"]["PointInTimeRecoveryDescription"]
    return str(found["PointInTimeRecoveryStatus"])


async def lifecycle_rules(account: Aws, bucket: str) -> list[dict[str, Any]]:
    return list((await account.s3("GetBucketLifecycleConfiguration", Bucket=bucket))["Rules"])


def keys_of(owner: dict[str, Any]) -> list[tuple[str, str]]:
    return [(key["AttributeName"], key["KeyType"]) for key in owner["KeySchema"]]


async def test_the_credentials_of_another_account_are_refused_before_anything_is_made(
    layout: Layout, emulator: EmulatorProcess, tmp_path: Path
) -> None:
    flags = {
        "store.aws.env": layout.env,
        "store.aws.region": REGION,
        "store.aws.endpoint_url": emulator.url,
        "store.aws.access_key_id": ACCESS_KEY,
        "store.aws.secret_access_key": SECRET_KEY,
    }
    other = {**flags, "store.aws.account_id": "999999999999"}
    with pytest.raises(FailedPrecondition, match="are of account 123456789012"):
        await provision_aws(load_settings(flags=other, environ={}, cwd=tmp_path).settings)
    own = {**flags, "store.aws.account_id": "123456789012"}
    made = await provision_aws(load_settings(flags=own, environ={}, cwd=tmp_path).settings)
    assert {each.change for each in made} == {Change.CREATED}
