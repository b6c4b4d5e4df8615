"""The rules of the strict double that an emulator may also know: here without one."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.doubles.aws.calls import Call, read_call
from tests.doubles.aws.sqs_rules import sqs_refusal
from tests.doubles.aws.tables.rules import dynamodb_refusal, item_bytes
from tests.doubles.aws.tables.schemas import Index, TableSchema
from tests.doubles.aws.tables.tokens import RequestTokens
from tests.doubles.aws.wire import AwsAnswer, AwsRequest

SCHEMA = TableSchema(
    key=("id",),
    indexes={"by_place": Index(key=("place",), projection=None)},
    types={"id": "S", "place": "N"},
)
UPDATE = {"TableName": "t", "Key": {"id": {"S": "a"}}}
X = {":x": {"S": "x"}}


def call(target: str, body: dict[str, Any]) -> Call:
    request = AwsRequest(
        method="POST", path="/", headers={"x-amz-target": target}, body=json.dumps(body).encode()
    )
    return read_call(request)


def put(item_id: str = "a", **attributes: Any) -> dict[str, Any]:
    return {"TableName": "t", "Item": {"id": {"S": item_id}, **attributes}}


@pytest.mark.parametrize(
    ("operation", "body", "why"),
    [
        ("PutItem", put(text={"S": "x" * 409_597}), "Item size"),
        ("PutItem", put(words={"SS": []}), "may not be empty"),
        ("PutItem", put(place={"S": "1"}), "Type mismatch"),
        ("PutItem", put(""), "empty string value"),
        ("PutItem", put("x" * 2049), "2048"),
        ("PutItem", put() | {"ConditionExpression": "note = :x", "ExpressionAttributeValues": {}}, "empty"),
        ("PutItem", put() | {"ExpressionAttributeValues": X}, "when using expressions"),
        ("PutItem", put() | {"ConditionExpression": "attribute_exists(state)"}, "keyword: state"),
        (
            "PutItem",
            put() | {"ConditionExpression": "attribute_exists(id)" + " " * 4096},
            "size has exceeded",
        ),
        (
            "PutItem",
            put() | {"ConditionExpression": "attribute_exists(id)", "ExpressionAttributeValues": X},
            "keys: {:x}",
        ),
        (
            "Query",
            {
                "TableName": "t",
                "KeyConditionExpression": "id = :x",
                "ExpressionAttributeValues": X,
                "ExpressionAttributeNames": {"#n": "note"},
            },
            "keys: {#n}",
        ),
        (
            "UpdateItem",
            UPDATE | {"UpdateExpression": "SET place = :x", "ExpressionAttributeValues": X},
            "Type mismatch",
        ),
        (
            "UpdateItem",
            UPDATE
            | {"UpdateExpression": "SET place = if_not_exists(place, :x)", "ExpressionAttributeValues": X},
            "Type mismatch",
        ),
        ("TransactWriteItems", {"TransactItems": [{"Put": put(str(n))} for n in range(101)]}, "equal to 100"),
        ("TransactWriteItems", {"TransactItems": [{"Put": put()}] * 2}, "multiple operations on one item"),
        ("BatchWriteItem", {"RequestItems": {"t": [{"PutRequest": put()}] * 2}}, "duplicates"),
        ("BatchGetItem", {"RequestItems": {"t": {"Keys": [UPDATE["Key"]] * 2}}}, "duplicates"),
        ("Query", {"TableName": "t", "IndexName": "by_place", "ConsistentRead": True}, "Consistent reads"),
    ],
)
def test_dynamodb_refuses(operation: str, body: dict[str, Any], why: str) -> None:
    refusal = dynamodb_refusal(call(f"DynamoDB_20120810.{operation}", body), {"t": SCHEMA})
    assert refusal is not None
    assert why in refusal.message


@pytest.mark.parametrize(
    ("operation", "body"),
    [
        ("PutItem", put(text={"S": "x" * (409_600 - len("idatext"))})),
        ("PutItem", put("x" * 2048, place={"N": "1"})),
        ("PutItem", put() | {"ConditionExpression": "size(id) < :x", "ExpressionAttributeValues": X}),
        ("TransactWriteItems", {"TransactItems": [{"Put": put(str(n))} for n in range(100)]}),
        ("Query", {"TableName": "t", "ConsistentRead": True}),
    ],
)
def test_dynamodb_accepts(operation: str, body: dict[str, Any]) -> None:
    assert dynamodb_refusal(call(f"DynamoDB_20120810.{operation}", body), {"t": SCHEMA}) is None


@pytest.mark.parametrize(
    ("operation", "body", "code"),
    [
        ("ReceiveMessage", {"MaxNumberOfMessages": 11}, "InvalidParameterValue"),
        ("ReceiveMessage", {"WaitTimeSeconds": 21}, "InvalidParameterValue"),
        ("SendMessage", {"MessageBody": "x" * ((1 << 20) + 1)}, "InvalidParameterValue"),
        ("SendMessage", {"MessageBody": "\x00"}, "InvalidMessageContents"),
        ("SendMessage", {"DelaySeconds": 901}, "InvalidParameterValue"),
        ("ChangeMessageVisibility", {"VisibilityTimeout": 43_201}, "InvalidParameterValue"),
        ("SendMessageBatch", {"Entries": []}, "EmptyBatchRequest"),
        (
            "SendMessageBatch",
            {"Entries": [{"Id": str(n)} for n in range(11)]},
            "TooManyEntriesInBatchRequest",
        ),
        (
            "SendMessageBatch",
            {"Entries": [{"Id": str(n), "MessageBody": "x" * 600_000} for n in range(2)]},
            "BatchRequestTooLong",
        ),
        ("DeleteMessageBatch", {"Entries": [{"Id": "a"}, {"Id": "a"}]}, "BatchEntryIdsNotDistinct"),
        ("DeleteMessageBatch", {"Entries": [{"Id": "a b"}]}, "InvalidBatchEntryId"),
    ],
)
def test_sqs_refuses(operation: str, body: dict[str, Any], code: str) -> None:
    refusal = sqs_refusal(call(f"AmazonSQS.{operation}", body))
    assert refusal is not None
    assert refusal.code == code


@pytest.mark.parametrize(
    ("value", "size"),
    [
        ({"S": "h\u00e9"}, 3),
        ({"B": "AAAA"}, 3),
        ({"N": "1234"}, 4),
        ({"BOOL": False}, 1),
        ({"L": [{"S": "ab"}]}, 3 + 1 + 2),
        ({"M": {"key": {"S": "ab"}}}, 3 + 1 + 3 + 2),
        ({"SS": ["a", "bc"]}, 3),
    ],
)
def test_sizes_are_counted_as_dynamodb_counts(value: dict[str, Any], size: int) -> None:
    assert item_bytes({"name": value}) == len("name") + size


async def test_a_transaction_in_progress_is_not_begun_again() -> None:
    transaction = call(
        "DynamoDB_20120810.TransactWriteItems", {"TransactItems": [], "ClientRequestToken": "one"}
    )
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def perform(_: Call) -> AwsAnswer:
        begun.set()
        await may_end.wait()
        return AwsAnswer(body=b"{}")

    tokens = RequestTokens(lambda: 0)
    first = asyncio.create_task(tokens.perform(transaction, perform))
    await begun.wait()
    begun.clear()
    second = await tokens.perform(transaction, perform)
    assert (second.status, b"TransactionInProgressException" in second.body) == (400, True)
    may_end.set()
    answer = await first
    assert await tokens.perform(transaction, perform) is answer
    assert not begun.is_set()
