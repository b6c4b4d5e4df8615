"""The strict double where a test asks: tables that change late, objects that nobody may list."""

from __future__ import annotations

from typing import Any

from tests.doubles.aws.strict import StrictProxy
from tests.support.aws import client
from tests.support.aws_samples import Table, refused

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
