"""The faults of the strict double, as a client of the SDK meets them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError, EndpointConnectionError, ReadTimeoutError

from airunner.testing.conditions import until
from tests.doubles.aws.emulator import EmulatorProcess
from tests.doubles.aws.faults import ANY, Fault, FaultKind
from tests.doubles.aws.strict import StrictAws, StrictProxy
from tests.support.aws import client
from tests.support.aws_samples import Queue, Table, item, refused

pytest_plugins = ("tests.support.aws_samples",)

# A connection that is reset on its second call counts as one that could not be opened, with this SDK.
BROKEN = (ConnectionClosedError, EndpointConnectionError)


@pytest.mark.parametrize(
    ("kind", "code"),
    [(FaultKind.THROTTLE, "ThrottlingException"), (FaultKind.SERVER_ERROR, "InternalServerError")],
)
async def test_a_refused_call_is_not_performed(
    aws: StrictProxy, aws_table: Table, kind: FaultKind, code: str
) -> None:
    aws.faults.next("PutItem", kind)
    with refused(code):
        await aws_table.put("a")
    assert await aws_table.get("a") is None
    await aws_table.put("a")


async def test_a_write_meets_another_transaction(aws: StrictProxy, aws_table: Table) -> None:
    aws.faults.add(Fault(kind=FaultKind.CONFLICT))
    with refused("TransactionConflictException"):
        await aws_table.put("a")
    puts = [{"Put": {"TableName": aws_table.name, "Item": item(name)}} for name in "ab"]
    with refused("TransactionCanceledException") as error:
        await aws_table.dynamodb.transact_write_items(TransactItems=puts)
    reasons = error.value.response["CancellationReasons"]
    assert [reason["Code"] for reason in reasons] == ["TransactionConflict", "None"]
    assert await aws_table.get("a") is None


async def test_sqs_and_s3_throttle_in_their_own_words(aws: StrictProxy, aws_queue: Queue) -> None:
    aws.faults.add(Fault(kind=FaultKind.THROTTLE))
    with refused("RequestThrottled"):
        await aws_queue.send("a")
    async with client("s3", aws.url) as s3:
        with refused("SlowDown"):
            await s3.get_object(Bucket="some-bucket", Key="k")


async def test_a_reset_comes_before_the_call_is_performed(aws: StrictProxy, aws_table: Table) -> None:
    aws.faults.next("PutItem", FaultKind.RESET)
    with pytest.raises(BROKEN):
        await aws_table.put("a")
    assert await aws_table.get("a") is None


async def test_a_dropped_answer_comes_after_the_call_was_performed(
    aws: StrictProxy, aws_table: Table
) -> None:
    aws.faults.next("PutItem", FaultKind.EXECUTE_THEN_DROP)
    with pytest.raises(BROKEN):
        await aws_table.put("a")
    assert await aws_table.get("a") is not None


async def test_an_answer_is_held_until_the_client_gives_up(aws: StrictProxy, aws_table: Table) -> None:
    aws.faults.next("PutItem", FaultKind.EXECUTE_THEN_HOLD)
    async with client("dynamodb", aws.url, read_timeout=0.2) as impatient:
        with pytest.raises(ReadTimeoutError):
            await impatient.put_item(TableName=aws_table.name, Item=item("a"))
    assert await aws_table.get("a") is not None


async def test_an_answer_is_held_until_it_is_released(aws: StrictProxy, aws_table: Table) -> None:
    aws.faults.next("PutItem", FaultKind.EXECUTE_THEN_HOLD)
    putting = asyncio.create_task(aws_table.put("a"))
    await until(lambda: aws.counts.calls["PutItem"] == 1)
    assert await _until_there(aws_table, "a")
    assert not putting.done()

    def is_let_go() -> bool:
        # Once may be too early: what is there may still be on its way to where it is held.
        aws.faults.release()
        return putting.done()

    await until(is_let_go)
    await putting


async def test_a_delayed_call_begins_when_it_is_released(aws: StrictProxy, aws_table: Table) -> None:
    aws.faults.next("PutItem", FaultKind.DELAY)
    putting = asyncio.create_task(aws_table.put("a"))
    await until(lambda: aws.counts.calls["PutItem"] == 1)
    assert await aws_table.get("a") is None
    aws.faults.release()
    await putting
    aws.faults.next("PutItem", FaultKind.DELAY, seconds=0.01)
    await aws_table.put("b")


async def test_part_of_a_batch_of_writes_is_left(aws: StrictProxy, aws_table: Table) -> None:
    aws.faults.next("BatchWriteItem", FaultKind.UNPROCESSED)
    wanted = {aws_table.name: [{"PutRequest": {"Item": item(str(number))}} for number in range(10)]}
    answer = await aws_table.dynamodb.batch_write_item(RequestItems=wanted)
    left = answer["UnprocessedItems"][aws_table.name]
    assert 1 <= len(left) <= 9
    assert aws.counts.items_written == 10 - len(left)
    found = (await aws_table.dynamodb.scan(TableName=aws_table.name))["Items"]
    assert len(found) == 10 - len(left)
    answer = await aws_table.dynamodb.batch_write_item(RequestItems={aws_table.name: left})
    assert answer["UnprocessedItems"] == {}


async def test_part_of_a_batch_of_reads_is_left(aws: StrictProxy, aws_table: Table) -> None:
    for number in range(5):
        await aws_table.put(str(number))
    aws.faults.next("BatchGetItem", FaultKind.UNPROCESSED)
    asked = {"Keys": [item(str(number)) for number in range(5)], "ConsistentRead": True}
    answer = await aws_table.dynamodb.batch_get_item(RequestItems={aws_table.name: asked})
    left = answer["UnprocessedKeys"][aws_table.name]
    assert left["ConsistentRead"] is True
    assert 1 <= len(left["Keys"]) <= 4
    assert len(answer["Responses"][aws_table.name]) == 5 - len(left["Keys"])


async def test_part_of_a_batch_of_messages_fails(aws: StrictProxy, aws_queue: Queue) -> None:
    aws.faults.next("SendMessageBatch", FaultKind.UNPROCESSED)
    entries = [{"Id": str(number), "MessageBody": str(number)} for number in range(10)]
    answer = await aws_queue.sqs.send_message_batch(QueueUrl=aws_queue.url, Entries=entries)
    failed = {one["Id"] for one in answer["Failed"]}
    assert 1 <= len(failed) <= 9
    assert {one["Body"] for one in await aws_queue.receive(10)} == {
        str(number) for number in range(10)
    } - failed


async def test_an_index_lags_behind_the_table(aws: StrictProxy, aws_table: Table) -> None:
    await aws_table.put("old", group_key={"S": "g"}, rank={"N": "3"}, note={"S": "before"})
    await aws_table.put("gone", group_key={"S": "g"}, rank={"N": "1"})
    aws.faults.add(Fault(operation="Query", kind=FaultKind.INDEX_LAG))
    await aws_table.put("new", group_key={"S": "g"}, rank={"N": "2"})
    await aws_table.put("old", group_key={"S": "h"}, rank={"N": "3"}, note={"S": "after"})
    await aws_table.dynamodb.delete_item(TableName=aws_table.name, Key=item("gone"))
    assert await aws_table.group("g") == ["gone", "old"]
    assert await aws_table.group("g", ScanIndexForward=False) == ["old", "gone"]
    assert await aws_table.group("h") == []
    assert await aws_table.get("new") is not None
    aws.faults.release()
    assert await aws_table.group("g") == ["new"]
    assert await aws_table.group("h") == ["old"]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("#group = :group AND #rank < :low", ["1"]),
        ("#group = :group AND #rank <= :low", ["1", "2"]),
        ("#group = :group AND #rank > :low", ["3", "10"]),
        ("#group = :group AND #rank BETWEEN :low AND :high", ["2", "3"]),
    ],
)
async def test_a_lagging_index_shows_only_what_was_asked_for(
    aws: StrictProxy, aws_table: Table, condition: str, expected: list[str]
) -> None:
    ranks = ("1", "2", "3", "10")
    for rank in ranks:
        await aws_table.put(rank, group_key={"S": "g"}, rank={"N": rank})
    aws.faults.add(Fault(operation="Query", kind=FaultKind.INDEX_LAG))
    for rank in ranks:
        await aws_table.dynamodb.delete_item(TableName=aws_table.name, Key=item(rank))
    values = {":group": {"S": "g"}, ":low": {"N": "2"}, ":high": {"N": "3"}}
    answer = await aws_table.dynamodb.query(
        TableName=aws_table.name,
        IndexName="by_group",
        KeyConditionExpression=condition,
        ExpressionAttributeNames={"#group": "group_key", "#rank": "rank"},
        ExpressionAttributeValues={name: value for name, value in values.items() if name in condition},
    )
    assert [one["id"]["S"] for one in answer["Items"]] == expected


async def test_an_index_lags_by_a_number_of_calls(aws: StrictProxy, aws_table: Table) -> None:
    aws.faults.add(Fault(operation="Query", kind=FaultKind.INDEX_LAG, requests=2))
    await aws_table.put("a", group_key={"S": "g"}, rank={"N": "1"})
    assert [await aws_table.group("g") for _ in range(3)] == [[], [], ["a"]]


async def test_a_read_that_does_not_ask_for_consistency_is_stale(aws: StrictProxy, aws_table: Table) -> None:
    await aws_table.put("a", note={"S": "before"})
    aws.faults.add(Fault(kind=FaultKind.STALE_READ))
    await aws_table.put("a", note={"S": "after"})
    await aws_table.put("b", note={"S": "new"})
    assert await aws_table.get("a", consistent=False) == item("a", note={"S": "before"})
    assert await aws_table.get("b", consistent=False) is None
    assert await aws_table.get("a") == item("a", note={"S": "after"})
    asked = {"Keys": [item("a"), item("b")]}
    answer = await aws_table.dynamodb.batch_get_item(RequestItems={aws_table.name: asked})
    assert answer["Responses"][aws_table.name] == [item("a", note={"S": "before"})]


async def test_a_receive_finds_nothing_though_there_is(aws: StrictProxy, aws_queue: Queue) -> None:
    await aws_queue.send("a")
    aws.faults.next("ReceiveMessage", FaultKind.FALSE_EMPTY)
    assert await aws_queue.receive(WaitTimeSeconds=20) == []
    assert len(await aws_queue.receive()) == 1


async def test_a_message_is_delivered_again_though_it_was_deleted(aws: StrictProxy, aws_queue: Queue) -> None:
    await aws_queue.send("a")
    aws.faults.next("ReceiveMessage", FaultKind.DUPLICATE)
    (first,) = await aws_queue.receive()
    await aws_queue.delete(first)
    (again,) = await aws_queue.receive()
    assert again["MessageId"] == first["MessageId"]
    assert again["ReceiptHandle"] != first["ReceiptHandle"]
    await aws_queue.delete(again)
    assert await aws_queue.receive() == []


async def test_the_receipt_of_a_second_delivery_counts(
    emulator: EmulatorProcess, aws: StrictProxy, aws_queue: Queue
) -> None:
    await aws_queue.send("a")
    aws.faults.next("ReceiveMessage", FaultKind.DUPLICATE)
    (first,) = await aws_queue.receive()
    (again,) = await aws_queue.receive()
    await aws_queue.delete(first)
    await aws_queue.change(again, 10)
    emulator.advance(11)
    (third,) = await aws_queue.receive()
    await aws_queue.delete(third)
    emulator.advance(31)
    assert await aws_queue.receive() == []


async def test_messages_come_in_another_order_and_none_is_lost(aws: StrictProxy, aws_queue: Queue) -> None:
    await aws_queue.send(*"abcdef")
    aws.faults.add(Fault(operation="ReceiveMessage", kind=FaultKind.REORDER))
    received = [body["Body"] for _ in range(6) for body in await aws_queue.receive()]
    assert received != list("abcdef")
    assert sorted(received) == list("abcdef")


# Deaths and chance


async def test_a_replica_dies_at_a_numbered_call_and_others_live_on(
    strict_aws: StrictAws, aws: StrictProxy, aws_table: Table
) -> None:
    aws.faults.die_after(2)
    await aws_table.put("1")
    for name in ("2", "3"):
        with pytest.raises(BROKEN):
            await aws_table.put(name)
    assert aws.faults.is_dead
    async with strict_aws.proxy() as other, client("dynamodb", other.url) as dynamodb:
        found = (await dynamodb.scan(TableName=aws_table.name))["Items"]
    assert found == [item("1")]
    aws.faults.revive()
    await aws_table.put("2")


async def test_a_replica_dies_after_its_last_call_was_performed(aws: StrictProxy, aws_table: Table) -> None:
    aws.faults.die_after(1, executed=True)
    for name in ("1", "2"):
        with pytest.raises(BROKEN):
            await aws_table.put(name)
    aws.faults.revive()
    assert (await aws_table.dynamodb.scan(TableName=aws_table.name))["Items"] == [item("1")]


async def test_one_seed_gives_one_story(strict_aws: StrictAws, aws_table: Table) -> None:
    async def story(seed: int) -> list[bool]:
        async with strict_aws.proxy(seed) as proxy, client("dynamodb", proxy.url) as dynamodb:
            proxy.faults.add(Fault(operation=ANY, kind=FaultKind.THROTTLE, probability=0.5))
            calls = [dynamodb.get_item(TableName=aws_table.name, Key=item("a")) for _ in range(20)]
            return [isinstance(await _outcome(call), ClientError) for call in calls]

    first = await story(7)
    assert await story(7) == first
    assert 0 < sum(first) < 20
    assert await story(8) != first


async def test_nothing_goes_wrong_once_the_faults_are_cleared(aws: StrictProxy, aws_table: Table) -> None:
    aws.faults.add(Fault(kind=FaultKind.RESET))
    aws.faults.die_after(1)
    aws.faults.next("PutItem", FaultKind.THROTTLE, times=9)
    aws.faults.clear()
    await aws_table.put("a")


async def _outcome(call: Any) -> Any:
    try:
        return await call
    except ClientError as error:
        return error


async def _until_there(aws_table: Table, item_id: str) -> bool:
    async with asyncio.timeout(30):
        while await aws_table.get(item_id) is None:
            pass
    return True
