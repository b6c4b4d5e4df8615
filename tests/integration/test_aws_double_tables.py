"""The strict double where a test asks: tables that change late, objects that nobody may list."""

from __future__ import annotations

from typing import Any

import pytest

from airunner.testing.clock import ManualClock
from tests.doubles.aws.strict import StrictProxy
from tests.doubles.aws.tables.throughput import Throughput
from tests.support.aws import client
from tests.support.aws_samples import Table, item, refused

pytest_plugins = ("tests.support.aws_samples",)


async def test_a_table_says_late_that_it_is_being_changed(aws: StrictProxy, aws_table: Table) -> None:
    aws.conditions.looks_after_update = ("ACTIVE", "UPDATING", "UPDATING")
    change = {"TableName": aws_table.name, "DeletionProtectionEnabled": False}

    async def status() -> Any:
        described = await aws_table.dynamodb.describe_table(TableName=aws_table.name)
        return described["Table"]["TableStatus"]

    await aws_table.dynamodb.update_table(**change)
    assert [await status(), await status()] == ["ACTIVE", "UPDATING"]
    with refused("ResourceInUseException"):
        await aws_table.dynamodb.update_table(**change)
    assert await status() == "ACTIVE"
    await aws_table.dynamodb.update_table(**change)


async def test_the_backups_of_a_new_table_are_turned_on_later(aws: StrictProxy, aws_table: Table) -> None:
    aws.conditions.backups_refused = 1
    wanted = {
        "TableName": aws_table.name,
        "PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": True},
    }
    with refused("ContinuousBackupsUnavailableException"):
        await aws_table.dynamodb.update_continuous_backups(**wanted)
    await aws_table.dynamodb.update_continuous_backups(**wanted)


async def test_who_may_not_list_is_not_told_that_an_object_is_missing(aws: StrictProxy, aws_env: str) -> None:
    bucket = f"bucket-{aws_env}"
    async with client("s3", aws.url) as s3:
        await s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
        await s3.put_object(Bucket=bucket, Key="there", Body=b"x")
        with refused("NoSuchKey"):
            await s3.get_object(Bucket=bucket, Key="missing")
        aws.conditions.may_list_objects = False
        with refused("AccessDenied"):
            await s3.get_object(Bucket=bucket, Key="missing")
        with refused("403"):
            await s3.head_object(Bucket=bucket, Key="missing")
        with refused("NoSuchBucket"):
            await s3.get_object(Bucket=f"{bucket}-other", Key="missing")
        assert await (await s3.get_object(Bucket=bucket, Key="there"))["Body"].read() == b"x"


# What partition keys can take


@pytest.fixture
def clock(aws: StrictProxy) -> ManualClock:
    """The clock by which keys get their units: two writes and six reads a second."""
    clock = ManualClock()
    aws.conditions.throughput = Throughput(lambda: clock.now() / 1000, scale=1 / 500)
    return clock


async def test_a_partition_key_takes_so_many_writes_a_second(aws_table: Table, clock: ManualClock) -> None:
    for _ in range(2):
        await aws_table.put("a")
    with refused("ProvisionedThroughputExceededException"):
        await aws_table.put("a", note={"S": "new"})
    await aws_table.put("b")
    assert await aws_table.get("a") == item("a")
    clock.advance(0.5)
    await aws_table.put("a", note={"S": "new"})
    with refused("ProvisionedThroughputExceededException"):
        await aws_table.put("a")


async def test_a_large_item_and_a_transaction_take_more(aws_table: Table, clock: ManualClock) -> None:
    large = {"S": "x" * 3_000}
    await aws_table.put("a", text=large)
    clock.advance(0.5)
    with refused("ProvisionedThroughputExceededException"):
        await aws_table.put("a")
    clock.advance(1)
    put = {"Put": {"TableName": aws_table.name, "Item": item("b")}}
    await aws_table.dynamodb.transact_write_items(TransactItems=[put])
    with refused("TransactionCanceledException") as raised:
        await aws_table.dynamodb.transact_write_items(TransactItems=[put])
    reasons = raised.value.response["CancellationReasons"]
    assert [reason["Code"] for reason in reasons] == ["ProvisionedThroughputExceeded"]


async def test_a_key_of_an_index_holds_up_the_writes_of_its_table(
    aws_table: Table, clock: ManualClock
) -> None:
    async def move(item_id: str, rank: int) -> None:
        await aws_table.dynamodb.update_item(
            TableName=aws_table.name,
            Key=item(item_id),
            UpdateExpression="SET group_key = :group, #rank = :rank",
            ExpressionAttributeNames={"#rank": "rank"},
            ExpressionAttributeValues={":group": {"S": "g"}, ":rank": {"N": str(rank)}},
        )

    await move("a", 1)
    await move("b", 1)
    with refused("ProvisionedThroughputExceededException"):
        await move("c", 1)
    await aws_table.put("c")  # which the index does not hold
    clock.advance(1)
    await move("a", 2)  # out of its old place and into the new one
    with refused("ProvisionedThroughputExceededException"):
        await move("c", 1)


async def test_a_partition_key_takes_so_many_reads_a_second(aws_table: Table, clock: ManualClock) -> None:
    await aws_table.put("a", group_key={"S": "g"}, rank={"N": "1"})
    for _ in range(6):
        await aws_table.get("a")
    with refused("ProvisionedThroughputExceededException"):
        await aws_table.get("a")
    for _ in range(12):
        assert await aws_table.group("g") == ["a"]
    with refused("ProvisionedThroughputExceededException"):
        await aws_table.group("g")
    clock.advance(1)
    asked = {aws_table.name: {"Keys": [item("a")]}}
    await aws_table.dynamodb.batch_get_item(RequestItems=asked)
