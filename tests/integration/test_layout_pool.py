"""Tables, queues and buckets that tests use one after the other: each finds them empty and as they were."""

from __future__ import annotations

from typing import Any

import pytest

from airunner.stores.aws.layout import TTL_ATTRIBUTE, Layout
from tests.doubles.aws.emulator import EmulatorProcess
from tests.support.aws import client
from tests.support.aws_stores import LayoutPool

KEY = {"job_id": {"S": "a"}}


@pytest.fixture
def pool(emulator: EmulatorProcess) -> LayoutPool:
    return LayoutPool(emulator)


async def test_nothing_is_left_of_what_a_test_wrote(pool: LayoutPool, emulator: EmulatorProcess) -> None:
    layout = await pool.borrow()
    await _write(emulator.url, layout)
    pool.give_back(layout)
    assert await pool.borrow() == layout
    emulator.advance(3600)  # what was in flight or delayed would be there now
    async with client("dynamodb", emulator.url) as dynamodb, client("s3", emulator.url) as s3:
        for table in (layout.jobs_table, layout.events_table):
            assert (await dynamodb.scan(TableName=table))["Items"] == []
        assert "Contents" not in await s3.list_objects_v2(Bucket=layout.bucket)
    async with client("sqs", emulator.url) as sqs:
        for url in layout.queues.values():
            assert "Messages" not in await sqs.receive_message(QueueUrl=url)
        counted = await sqs.get_queue_attributes(
            QueueUrl=layout.queues["builds"], AttributeNames=["ApproximateNumberOfMessages"]
        )
        assert counted["Attributes"] == {"ApproximateNumberOfMessages": "0"}


async def test_the_one_that_rests_longest_is_lent_next(pool: LayoutPool) -> None:
    first, second = await pool.borrow(), await pool.borrow()
    assert first.env != second.env
    for layout in (second, first):
        pool.give_back(layout)
    assert [await pool.borrow(), await pool.borrow()] == [second, first]


@pytest.mark.parametrize(
    ("operation", "options"),
    [
        ("set_queue_attributes", {"Attributes": {"VisibilityTimeout": "7"}}),
        ("tag_queue", {"Tags": {"some": "tag"}}),
        ("delete_queue", {}),
    ],
)
async def test_a_queue_that_a_test_changed_is_not_lent_again(
    pool: LayoutPool, emulator: EmulatorProcess, operation: str, options: dict[str, Any]
) -> None:
    layout = await pool.borrow()
    async with client("sqs", emulator.url) as sqs:
        await getattr(sqs, operation)(QueueUrl=layout.queues["builds"], **options)
    await _is_not_lent_again(pool, layout)


async def test_what_a_test_added_to_is_not_lent_again(pool: LayoutPool, emulator: EmulatorProcess) -> None:
    layout = await pool.borrow()
    async with client("sqs", emulator.url) as sqs:
        await sqs.create_queue(QueueName=f"{layout.queue_name('builds')}-more")
    await _is_not_lent_again(pool, layout)


@pytest.mark.parametrize(
    ("operation", "options"),
    [
        (
            "update_time_to_live",
            {"TimeToLiveSpecification": {"Enabled": True, "AttributeName": TTL_ATTRIBUTE}},
        ),
        ("delete_table", {}),
    ],
)
async def test_a_table_that_a_test_changed_is_not_lent_again(
    pool: LayoutPool, emulator: EmulatorProcess, operation: str, options: dict[str, Any]
) -> None:
    layout = await pool.borrow()
    async with client("dynamodb", emulator.url) as dynamodb:
        await getattr(dynamodb, operation)(TableName=layout.jobs_table, **options)
    await _is_not_lent_again(pool, layout)


async def test_while_somebody_is_connected_another_is_made(
    pool: LayoutPool, emulator: EmulatorProcess
) -> None:
    layout = await pool.borrow()
    pool.give_back(layout)
    async with client("sqs", emulator.url) as sqs:
        await sqs.list_queues()
        assert (await pool.borrow()).env != layout.env


async def _is_not_lent_again(pool: LayoutPool, layout: Layout) -> None:
    pool.give_back(layout)
    assert (await pool.borrow()).env != layout.env


async def _write(url: str, layout: Layout) -> None:
    """Put something into everything: messages that wait, are in flight, delayed and deleted too."""
    queue = layout.queues["builds"]
    async with client("dynamodb", url) as dynamodb, client("s3", url) as s3, client("sqs", url) as sqs:
        await dynamodb.put_item(TableName=layout.jobs_table, Item=KEY)
        event = {**KEY, "sequence": {"N": "1"}}
        await dynamodb.put_item(TableName=layout.events_table, Item=event)
        await s3.put_object(Bucket=layout.bucket, Key="a", Body=b"b")
        for body in ("deleted", "in flight"):
            await sqs.send_message(QueueUrl=queue, MessageBody=body)
            (message,) = (await sqs.receive_message(QueueUrl=queue))["Messages"]
            if body == "deleted":
                await sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
        await sqs.send_message(QueueUrl=queue, MessageBody="delayed", DelaySeconds=900)
        for waiting in layout.queues.values():
            await sqs.send_message(QueueUrl=waiting, MessageBody="waits")
