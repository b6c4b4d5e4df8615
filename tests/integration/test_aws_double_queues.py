"""The strict double's SQS: receive counts and dead letters, and what queues refuse for a while."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from airunner.aws.calls import Aws
from airunner.stores.aws.layout import MAX_RECEIVE_COUNT
from airunner.testing.conditions import until
from tests.doubles.aws.emulator import EmulatorProcess
from tests.doubles.aws.faults import Fault, FaultKind
from tests.doubles.aws.strict import StrictProxy
from tests.support.aws import client
from tests.support.aws_queues import make_queues
from tests.support.aws_samples import Queue, refused
from tests.support.aws_stores import BorrowLayout, options_of

pytest_plugins = ("tests.support.aws_samples",)

RECEIVES = 3


@pytest.fixture
async def aws_pair(aws: StrictProxy, aws_env: str) -> AsyncIterator[tuple[Queue, Queue]]:
    """A queue whose messages are put aside after three receives, and where they are put."""
    async with Aws(options_of(aws.url)) as account, client("sqs", aws.url) as sqs:
        dead_url, url = await make_queues(account, aws_env, RECEIVES)
        aws.counts.reset()
        yield Queue(url=url, sqs=sqs), Queue(url=dead_url, sqs=sqs)


# Receive counts


async def test_every_receive_brings_a_message_nearer_to_the_dead_letters(
    aws_pair: tuple[Queue, Queue],
) -> None:
    queue, dead_letters = aws_pair
    await queue.send("a")
    for count in range(1, RECEIVES + 1):
        (message,) = await queue.receive(AttributeNames=["ApproximateReceiveCount"])
        assert message["Attributes"]["ApproximateReceiveCount"] == str(count)
        await queue.change(message, 0)
    assert await dead_letters.receive() == []
    assert await queue.receive() == []
    assert [message["Body"] for message in await dead_letters.receive()] == ["a"]


async def test_a_receive_that_was_given_up_counts_too(
    aws: StrictProxy, aws_pair: tuple[Queue, Queue], emulator: EmulatorProcess
) -> None:
    queue, _ = aws_pair
    receive = asyncio.create_task(queue.receive(WaitTimeSeconds=20, VisibilityTimeout=30))
    await until(lambda: aws.counts.calls["ReceiveMessage"] == 1)
    receive.cancel()
    with suppress(asyncio.CancelledError):
        await receive
    await queue.send("a")
    while await queue.count("ApproximateNumberOfMessagesNotVisible") == 0:
        await asyncio.sleep(0)
    assert await queue.receive() == []
    emulator.advance(31)
    (message,) = await queue.receive(AttributeNames=["ApproximateReceiveCount"])
    assert message["Attributes"]["ApproximateReceiveCount"] == "2"


async def test_the_queues_of_a_store_put_messages_aside_as_in_production(
    aws: StrictProxy, borrow_layout: BorrowLayout
) -> None:
    layout = await borrow_layout()
    async with client("sqs", aws.url) as sqs:
        for queue, url in layout.queues.items():
            found = await sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["RedrivePolicy"])
            policy = json.loads(found["Attributes"]["RedrivePolicy"])
            assert int(policy["maxReceiveCount"]) == MAX_RECEIVE_COUNT
            if queue == "builds":
                target = policy["deadLetterTargetArn"].rpartition(":")[2]
                assert target == layout.dead_letter_name(queue)


async def test_a_receive_that_does_not_wait_may_miss_what_is_there(
    aws: StrictProxy, aws_queue: Queue
) -> None:
    aws.faults.add(Fault(operation="ReceiveMessage", kind=FaultKind.SHORT_POLL_MISS))
    await aws_queue.send("a")
    assert await aws_queue.receive() == []
    assert await aws_queue.receive(WaitTimeSeconds=0) == []
    assert len(await aws_queue.receive(WaitTimeSeconds=1)) == 1


# Twelve hours


async def test_the_twelve_hours_of_a_receive_begin_with_it(
    emulator: EmulatorProcess, aws_queue: Queue
) -> None:
    await aws_queue.send("a", "b")
    emulator.advance(40_000)
    old, other = await aws_queue.receive(2)
    await aws_queue.change(old, 43_000)
    with refused("InvalidParameterValue", "beyond the limit"):
        await aws_queue.change(old, 43_200)
    emulator.advance(20)
    entries = [
        {"Id": name, "ReceiptHandle": one["ReceiptHandle"], "VisibilityTimeout": seconds}
        for name, one, seconds in (("1", old, 43_190), ("2", other, 43_170))
    ]
    answer = await aws_queue.sqs.change_message_visibility_batch(QueueUrl=aws_queue.url, Entries=entries)
    assert [(one["Id"], one["Code"]) for one in answer["Failed"]] == [("1", "InvalidParameterValue")]
    assert [one["Id"] for one in answer["Successful"]] == ["2"]
    emulator.advance(43_100)
    (again,) = await aws_queue.receive()
    assert again["Body"] == "a"
    await aws_queue.change(again, 43_000)  # a new receive has its own twelve hours


# Encryption


async def test_a_queue_has_one_kind_of_encryption(aws_queue: Queue) -> None:
    async def attributes(**wanted: str) -> dict[str, str]:
        if wanted:
            await aws_queue.sqs.set_queue_attributes(QueueUrl=aws_queue.url, Attributes=wanted)
        found = await aws_queue.sqs.get_queue_attributes(
            QueueUrl=aws_queue.url, AttributeNames=["KmsMasterKeyId", "SqsManagedSseEnabled"]
        )
        return dict(found["Attributes"])

    await attributes(SqsManagedSseEnabled="true")
    moved = await attributes(KmsMasterKeyId="alias/ours")
    assert moved == {"KmsMasterKeyId": "alias/ours", "SqsManagedSseEnabled": "false"}
    with refused("InvalidAttributeValue", "one type of server-side encryption"):
        await attributes(SqsManagedSseEnabled="true")
    with refused("InvalidAttributeValue", "one type of server-side encryption"):
        await attributes(SqsManagedSseEnabled="true", KmsMasterKeyId="alias/other")
    assert await attributes() == moved
    back = await attributes(SqsManagedSseEnabled="true", KmsMasterKeyId="")
    assert back["SqsManagedSseEnabled"] == "true"


# By the clock, where a test asks


async def test_a_new_queue_is_not_there_at_once(
    aws: StrictProxy, aws_env: str, emulator: EmulatorProcess
) -> None:
    aws.conditions.new_queue_seconds = 1
    async with client("sqs", aws.url) as sqs:
        url = (await sqs.create_queue(QueueName=aws_env))["QueueUrl"]
        with refused("AWS.SimpleQueueService.NonExistentQueue"):
            await sqs.get_queue_url(QueueName=aws_env)
        with refused("AWS.SimpleQueueService.NonExistentQueue"):
            await sqs.get_queue_attributes(QueueUrl=url)
        emulator.advance(1)
        assert (await sqs.get_queue_url(QueueName=aws_env))["QueueUrl"] == url


async def test_the_name_of_a_deleted_queue_is_free_after_a_minute(
    aws: StrictProxy, aws_env: str, emulator: EmulatorProcess
) -> None:
    aws.conditions.deleted_queue_seconds = 60
    async with client("sqs", aws.url) as sqs:
        url = (await sqs.create_queue(QueueName=aws_env))["QueueUrl"]
        await sqs.delete_queue(QueueUrl=url)
        with refused("AWS.SimpleQueueService.QueueDeletedRecently"):
            await sqs.create_queue(QueueName=aws_env)
        emulator.advance(60)
        await sqs.create_queue(QueueName=aws_env)


async def test_so_many_messages_are_in_flight_and_no_more(
    aws: StrictProxy, aws_queue: Queue, emulator: EmulatorProcess
) -> None:
    aws.conditions.in_flight_limit = 3
    await aws_queue.send(*"abcde")
    held = [*await aws_queue.receive(2), *await aws_queue.receive(10, WaitTimeSeconds=1)]
    assert len(held) == 3
    assert await aws_queue.receive(WaitTimeSeconds=1) == []
    with refused("OverLimit"):
        await aws_queue.receive()
    await aws_queue.delete(held[0])
    assert len(await aws_queue.receive(10)) == 1
    emulator.advance(31)
    assert len(await aws_queue.receive(10)) == 3
