"""The strict double: the emulator under it, what it counts and what it refuses, seen through the SDK."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.aws.dynalite import DynaliteProcess
from tests.doubles.aws.emulator import EmulatorFailed, EmulatorProcess
from tests.doubles.aws.strict import StrictAws, StrictProxy
from tests.support.aws import client
from tests.support.aws_samples import Queue, Table, item, refused
from tests.support.child_processes import wait_until_gone

pytest_plugins = ("tests.support.aws_samples",)

# aiohttp has doubts about bodies of more than 1 MiB.
LARGE_BODIES = pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")


# The emulator


def test_the_emulator_ends_with_its_parent() -> None:
    program = (
        "import os; from tests.doubles.aws.emulator import EmulatorProcess;"
        "print(EmulatorProcess().start().pid, flush=True); os.kill(os.getpid(), 9)"
    )
    parent = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, timeout=60, check=False)
    wait_until_gone(int(parent.stdout))


async def test_the_emulator_forgets_when_reset_and_is_gone_when_stopped() -> None:
    emulator = EmulatorProcess().start()
    pid = emulator.pid
    async with client("sqs", emulator.url) as sqs:
        await sqs.create_queue(QueueName="a")
        emulator.advance(5)
        emulator.reset()
        assert "QueueUrls" not in await sqs.list_queues()
        assert emulator.ahead_seconds == 0
    emulator.stop()
    emulator.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_the_clock_of_the_queues_can_be_moved(emulator: EmulatorProcess, aws_queue: Queue) -> None:
    await aws_queue.send("a")
    assert len(await aws_queue.receive()) == 1
    emulator.advance(29)
    assert await aws_queue.receive() == []
    emulator.advance(2)
    assert len(await aws_queue.receive()) == 1


async def test_dynalite_gives_a_second_opinion(dynalite: DynaliteProcess) -> None:
    async with StrictAws(dynalite.url).proxy() as proxy, client("dynamodb", proxy.url) as dynamodb:
        await dynamodb.create_table(
            TableName="opinions",
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
        aws_table = Table(name="opinions", dynamodb=dynamodb)
        await aws_table.put("a")
        assert await aws_table.get("a") == item("a")
        with refused("ValidationException"):  # which the proxy leaves to the emulator
            await dynamodb.put_item(TableName="opinions", Item=item("a", amount={"N": "not a number"}))


def test_a_missing_node_is_said_to_be_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EmulatorFailed, match="need Node with npm, which is not installed"):
        DynaliteProcess(tmp_path).start()


# Passing on and counting


async def test_objects_pass_in_both_directions(aws: StrictProxy, aws_env: str) -> None:
    content = os.urandom(500_000)
    async with client("s3", aws.url) as s3:
        await s3.create_bucket(
            Bucket=f"bucket-{aws_env}", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"}
        )
        await s3.put_object(Bucket=f"bucket-{aws_env}", Key="jobs/1/params", Body=content)
        head = await s3.head_object(Bucket=f"bucket-{aws_env}", Key="jobs/1/params")
        got = await s3.get_object(Bucket=f"bucket-{aws_env}", Key="jobs/1/params")
        assert head["ContentLength"] == 500_000
        assert await got["Body"].read() == content
    assert aws.counts.calls == {"PutBucket": 1, "PutObject": 1, "HeadObject": 1, "GetObject": 1}


async def test_calls_and_items_are_counted(aws: StrictProxy, aws_table: Table) -> None:
    for number in range(3):
        await aws_table.put(f"i{number}", group_key={"S": "g"}, rank={"N": str(number)})
    assert await aws_table.group("g") == ["i0", "i1", "i2"]
    await aws_table.get("nothing")
    assert aws.counts.calls == {"PutItem": 3, "Query": 1, "GetItem": 1}
    assert (aws.counts.items_read, aws.counts.items_written) == (3, 3)
    aws.counts.reset()
    assert (aws.counts.calls.total(), aws.counts.items_read, aws.counts.items_written) == (0, 0, 0)


async def test_one_connection_serves_many_calls(aws_table: Table, aws: StrictProxy) -> None:
    for number in range(5):
        await aws_table.put(str(number))
    assert len(aws._connections) == 1


# What DynamoDB refuses


async def test_a_batch_of_26_writes_is_refused(aws_table: Table) -> None:
    def batch(count: int) -> dict[str, Any]:
        return {aws_table.name: [{"PutRequest": {"Item": item(str(number))}} for number in range(count)]}

    with refused("ValidationException", "Too many items"):
        await aws_table.dynamodb.batch_write_item(RequestItems=batch(26))
    assert await aws_table.get("0") is None
    await aws_table.dynamodb.batch_write_item(RequestItems=batch(25))


async def test_a_batch_of_101_reads_is_refused(aws_table: Table) -> None:
    def batch(count: int) -> dict[str, Any]:
        return {aws_table.name: {"Keys": [item(str(number)) for number in range(count)]}}

    with refused("ValidationException", "Too many items"):
        await aws_table.dynamodb.batch_get_item(RequestItems=batch(101))
    await aws_table.dynamodb.batch_get_item(RequestItems=batch(100))


@LARGE_BODIES
@pytest.mark.parametrize(
    ("count", "padding", "why"), [(101, 0, "length less than or equal to 100"), (13, 350_000, "4194304")]
)
async def test_a_transaction_that_is_too_large_is_refused(
    aws_table: Table, count: int, padding: int, why: str
) -> None:
    actions = [
        {"Put": {"TableName": aws_table.name, "Item": item(str(number), text={"S": "x" * padding})}}
        for number in range(count)
    ]
    with refused("ValidationException", why):
        await aws_table.dynamodb.transact_write_items(TransactItems=actions)
    assert await aws_table.get("0") is None
    await aws_table.dynamodb.transact_write_items(TransactItems=actions[: count - 2])


async def test_two_actions_on_one_item_are_refused(aws_table: Table) -> None:
    put = {"Put": {"TableName": aws_table.name, "Item": item("a")}}
    delete = {"Delete": {"TableName": aws_table.name, "Key": item("a")}}
    with refused("ValidationException", "multiple operations on one item"):
        await aws_table.dynamodb.transact_write_items(TransactItems=[put, delete])
    asked = {"Keys": [item("a"), item("a")]}
    with refused("ValidationException", "duplicates"):
        await aws_table.dynamodb.batch_get_item(RequestItems={aws_table.name: asked})


async def test_an_item_over_400_kib_is_refused(aws_table: Table) -> None:
    too_long = {"S": "x" * 400 * 1024}
    with refused("ValidationException", "Item size"):
        await aws_table.put("a", text=too_long)
    put = {"Put": {"TableName": aws_table.name, "Item": item("a", text=too_long)}}
    with refused("ValidationException", "Item size"):
        await aws_table.dynamodb.transact_write_items(TransactItems=[put])


async def test_a_repeated_transaction_has_no_second_effect(
    emulator: EmulatorProcess, aws_table: Table
) -> None:
    async def add(token: str, amount: str) -> None:
        update = {
            "TableName": aws_table.name,
            "Key": item("a"),
            "UpdateExpression": "ADD amount :more",
            "ExpressionAttributeValues": {":more": {"N": amount}},
        }
        await aws_table.dynamodb.transact_write_items(
            TransactItems=[{"Update": update}], ClientRequestToken=token
        )

    async def amount() -> str:
        found = await aws_table.get("a")
        assert found is not None
        return str(found["amount"]["N"])

    await add("one", "1")
    await add("one", "1")
    assert await amount() == "1"
    with refused("IdempotentParameterMismatchException"):
        await add("one", "2")
    await add("two", "1")
    assert await amount() == "2"
    emulator.advance(601)
    await add("one", "1")
    assert await amount() == "3"


async def test_a_cancelled_transaction_leaves_everything_as_it_was(aws_table: Table) -> None:
    before = {"amount": {"N": "1"}, "words": {"L": [{"S": "x"}]}, "map": {"M": {"rung": {"N": "1"}}}}
    await aws_table.put("a", **before)
    change = {
        "TableName": aws_table.name,
        "Key": item("a"),
        "UpdateExpression": "ADD amount :one SET #words = list_append(#words, :more), #map.rung = :two",
        "ExpressionAttributeNames": {"#words": "words", "#map": "map"},
        "ExpressionAttributeValues": {":one": {"N": "1"}, ":two": {"N": "2"}, ":more": {"L": [{"S": "y"}]}},
    }
    check = {"TableName": aws_table.name, "Key": item("c"), "ConditionExpression": "attribute_exists(id)"}
    put = {"TableName": aws_table.name, "Item": item("b")}
    with refused("TransactionCanceledException"):
        await aws_table.dynamodb.transact_write_items(
            TransactItems=[{"Update": change}, {"Put": put}, {"ConditionCheck": check}]
        )
    assert await aws_table.get("a") == item("a", **before)
    assert await aws_table.get("b") is None


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (
            {"ExpressionAttributeValues": {":v": {"S": "x"}, ":w": {"S": "x"}}},
            "unused in expressions: keys: {:w}",
        ),
        (
            {
                "ExpressionAttributeValues": {":v": {"S": "x"}},
                "ExpressionAttributeNames": {"#n": "note"},
            },
            "unused in expressions: keys: {#n}",
        ),
    ],
)
async def test_what_no_expression_uses_is_refused(
    aws_table: Table, arguments: dict[str, Any], why: str
) -> None:
    with refused("ValidationException", why):
        await aws_table.dynamodb.update_item(
            TableName=aws_table.name, Key=item("a"), UpdateExpression="SET note = :v", **arguments
        )


@pytest.mark.parametrize("expression", ["SET state = :v", "SET note = :v REMOVE ttl"])
async def test_reserved_words_are_refused(aws_table: Table, expression: str) -> None:
    with refused("ValidationException", "reserved keyword"):
        await aws_table.dynamodb.update_item(
            TableName=aws_table.name,
            Key=item("a"),
            UpdateExpression=expression,
            ExpressionAttributeValues={":v": {"S": "x"}},
        )


async def test_functions_and_syntax_are_no_reserved_words(aws_table: Table) -> None:
    await aws_table.put("a", note={"S": "x"})
    await aws_table.dynamodb.update_item(
        TableName=aws_table.name,
        Key=item("a"),
        UpdateExpression="SET #s = :v ADD amount :one REMOVE remark",
        ConditionExpression="size(note) BETWEEN :one AND :one AND NOT contains(note, :v) OR note IN (:v)",
        ExpressionAttributeNames={"#s": "state"},
        ExpressionAttributeValues={":v": {"S": "y"}, ":one": {"N": "1"}},
    )


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [("rank", {"S": "1"}, "Type mismatch for Index Key rank"), ("group_key", {"S": ""}, "empty string")],
)
async def test_a_wrong_index_key_is_refused(
    aws_table: Table, name: str, value: dict[str, str], why: str
) -> None:
    with refused("ValidationException", why):
        await aws_table.put("a", **{name: value})
    with refused("ValidationException", why):
        await aws_table.dynamodb.update_item(
            TableName=aws_table.name,
            Key=item("a"),
            UpdateExpression="SET remark = :other, #name = :value",
            ExpressionAttributeNames={"#name": name},
            ExpressionAttributeValues={":value": value, ":other": {"S": ""}},
        )


async def test_an_empty_or_overlong_key_is_refused(aws_table: Table) -> None:
    with refused("ValidationException", "empty string value"):
        await aws_table.put("")
    with refused("ValidationException", "2048"):
        await aws_table.put("x" * 2049)


async def test_a_consistent_read_of_an_index_is_refused(aws_table: Table) -> None:
    with refused("ValidationException", "Consistent reads are not supported"):
        await aws_table.group("g", ConsistentRead=True)


# What SQS refuses


async def test_deleting_with_a_stale_receipt_has_no_effect(
    emulator: EmulatorProcess, aws_queue: Queue
) -> None:
    await aws_queue.send("a")
    (first,) = await aws_queue.receive()
    emulator.advance(31)
    (second,) = await aws_queue.receive()
    await aws_queue.delete(first)
    emulator.advance(31)
    (third,) = await aws_queue.receive()
    batch = [
        {"Id": name, "ReceiptHandle": one["ReceiptHandle"]} for name, one in (("1", second), ("2", third))
    ]
    answer = await aws_queue.sqs.delete_message_batch(QueueUrl=aws_queue.url, Entries=batch)
    assert {one["Id"] for one in answer["Successful"]} == {"1", "2"}
    emulator.advance(31)
    assert await aws_queue.receive() == []


async def test_a_message_that_is_not_in_flight_cannot_be_extended(
    emulator: EmulatorProcess, aws_queue: Queue
) -> None:
    await aws_queue.send("a")
    (first,) = await aws_queue.receive()
    await aws_queue.change(first, 60)
    emulator.advance(59)
    await aws_queue.change(first, 60)
    emulator.advance(61)
    with refused("AWS.SimpleQueueService.MessageNotInflight"):
        await aws_queue.change(first, 60)
    entries = [{"Id": "1", "ReceiptHandle": first["ReceiptHandle"], "VisibilityTimeout": 60}]
    answer = await aws_queue.sqs.change_message_visibility_batch(QueueUrl=aws_queue.url, Entries=entries)
    assert [one["Code"] for one in answer["Failed"]] == ["MessageNotInflight"]
    (second,) = await aws_queue.receive()
    with refused("InvalidParameterValue", "expired"):
        await aws_queue.change(first, 60)
    await aws_queue.delete(second)
    with refused("InvalidParameterValue", "does not exist"):
        await aws_queue.change(second, 60)


@LARGE_BODIES
@pytest.mark.parametrize(
    ("bodies", "code"),
    [
        (["x"] * 11, "TooManyEntriesInBatchRequest"),
        (["x" * 600_000] * 2, "BatchRequestTooLong"),
        ([], "EmptyBatchRequest"),
    ],
)
async def test_a_batch_of_the_wrong_size_is_refused(aws_queue: Queue, bodies: list[str], code: str) -> None:
    entries = [{"Id": str(number), "MessageBody": body} for number, body in enumerate(bodies)]
    with refused(f"AWS.SimpleQueueService.{code}"):
        await aws_queue.sqs.send_message_batch(QueueUrl=aws_queue.url, Entries=entries)
    assert await aws_queue.receive() == []


async def test_times_beyond_the_limits_are_refused(aws_queue: Queue) -> None:
    with refused("InvalidParameterValue", "DelaySeconds"):
        await aws_queue.sqs.send_message(QueueUrl=aws_queue.url, MessageBody="x", DelaySeconds=901)
    await aws_queue.send("a")
    with refused("InvalidParameterValue", "VisibilityTimeout"):
        await aws_queue.receive(VisibilityTimeout=43_201)
    (message,) = await aws_queue.receive()
    with refused("InvalidParameterValue", "VisibilityTimeout"):
        await aws_queue.change(message, 43_201)
    entries = [{"Id": "1", "MessageBody": "x", "DelaySeconds": 901}, {"Id": "2", "MessageBody": "x"}]
    answer = await aws_queue.sqs.send_message_batch(QueueUrl=aws_queue.url, Entries=entries)
    assert [one["Id"] for one in answer["Failed"]] == ["1"]
    assert [one["Id"] for one in answer["Successful"]] == ["2"]


async def test_no_receive_holds_a_message_for_more_than_twelve_hours(
    emulator: EmulatorProcess, aws_queue: Queue
) -> None:
    await aws_queue.send("a")
    (message,) = await aws_queue.receive()
    await aws_queue.change(message, 43_000)
    emulator.advance(40_000)
    with refused("InvalidParameterValue", "beyond the limit"):
        await aws_queue.change(message, 3_300)
    await aws_queue.change(message, 3_100)


@pytest.mark.parametrize(
    "attributes",
    [
        {str(number): {"DataType": "String", "StringValue": "x"} for number in range(11)},
        {"a": {"DataType": "String", "StringValue": ""}},
    ],
)
async def test_attributes_that_sqs_does_not_take_are_refused(
    aws_queue: Queue, attributes: dict[str, Any]
) -> None:
    with refused("InvalidParameterValue"):
        await aws_queue.sqs.send_message(
            QueueUrl=aws_queue.url, MessageBody="x", MessageAttributes=attributes
        )
    assert await aws_queue.receive() == []


@LARGE_BODIES
async def test_attributes_count_as_part_of_a_message(aws_queue: Queue) -> None:
    body = "x" * (1024 * 1024 - 20)
    attributes = {"reason": {"DataType": "String", "StringValue": "x" * 20}}
    with refused("InvalidParameterValue", "shorter"):
        await aws_queue.sqs.send_message(
            QueueUrl=aws_queue.url, MessageBody=body, MessageAttributes=attributes
        )
    await aws_queue.send(body)
