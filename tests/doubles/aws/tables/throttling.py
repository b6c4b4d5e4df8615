"""Calls of DynamoDB against what their partition keys can take."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.doubles.aws.calls import Refusal, refused
from tests.doubles.aws.model.evaluation import holds, updated
from tests.doubles.aws.model.tables import partition_of
from tests.doubles.aws.tables.rules import item_bytes
from tests.doubles.aws.tables.schemas import writes_of
from tests.doubles.aws.tables.throughput import Charge, PartitionKey, read_charge, write_charges

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    from tests.doubles.aws.calls import Call
    from tests.doubles.aws.tables.schemas import Item, TableSchema, Write
    from tests.doubles.aws.tables.throughput import Throughput
    from tests.doubles.aws.wire import AwsAnswer

    Send = Callable[[Call], Awaitable[AwsAnswer]]

_CODE = "ProvisionedThroughputExceeded"
_MESSAGE = "The level of configured provisioned throughput for one or more partitions was exceeded."


async def perform_within(
    throughput: Throughput,
    call: Call,
    schemas: Mapping[str, TableSchema],
    send: Send,
    perform: Callable[[], Awaitable[AwsAnswer]],
) -> AwsAnswer:
    """Perform a call and charge its partition keys, or refuse it if one of them has nothing left.

    What a read costs is known when it is done: it needs a bucket that is not empty, and may leave a debt.
    """
    charges = [charge for write in writes_of(call) for charge in await _of_write(write, call, schemas, send)]
    keys = list(_keys_read(call, schemas))
    if not throughput.take([*charges, *(Charge(key, "read", 0) for key in keys)]):
        return _throttled(call)
    answer = await perform()
    if keys and answer.status == 200:
        body = json.loads(answer.body)
        throughput.owe(_of_reads(call, body, keys))
    return answer


async def _of_write(write: Write, call: Call, schemas: Mapping[str, TableSchema], send: Send) -> list[Charge]:
    schema = schemas[write.table]
    key = write.key(schema)
    if key is None or write.kind == "ConditionCheck":
        return []
    arguments = {"TableName": write.table, "Key": key, "ConsistentRead": True}
    answer = await send(call.beside("GetItem", arguments))
    before: Item | None = json.loads(answer.body).get("Item")
    after = _after(write, before, key) if holds(write.arguments, before or {}) else before
    factor = 2 if call.operation == "TransactWriteItems" else 1
    return list(write_charges(write.table, schema, before, after, factor=factor))


def _after(write: Write, before: Item | None, key: Item) -> Item | None:
    if write.kind == "Put":
        item: Item = write.arguments["Item"]
        return item
    return updated(write.arguments, before or key) if write.kind == "Update" else None


def _keys_read(call: Call, schemas: Mapping[str, TableSchema]) -> Iterator[PartitionKey]:
    if call.operation == "GetItem":
        table = call.body["TableName"]
        yield _partition_key(table, schemas[table], call.body["Key"])
    elif call.operation == "BatchGetItem":
        for table, request in call.body["RequestItems"].items():
            for key in request["Keys"]:
                yield _partition_key(table, schemas[table], key)
    elif call.operation == "Query":
        table, index = call.body["TableName"], call.body.get("IndexName", "")
        parts = schemas[table].indexes[index].key if index else schemas[table].key
        yield PartitionKey(table, partition_of(parts[0], call.body), index)


def _of_reads(call: Call, body: dict[str, Any], keys: list[PartitionKey]) -> Iterator[Charge]:
    """Yield what a read cost; items of a batch are taken for equally large."""
    consistent = bool(call.body.get("ConsistentRead"))
    if call.operation == "BatchGetItem":
        consistent = any(request.get("ConsistentRead") for request in call.body["RequestItems"].values())
    items = body.get("Items") or [item for found in body.get("Responses", {}).values() for item in found]
    items = [body["Item"]] if "Item" in body else items
    for key in keys:
        yield read_charge(key, sum(map(item_bytes, items)) // len(keys), consistent=consistent)


def _partition_key(table: str, schema: TableSchema, key: Item) -> PartitionKey:
    return PartitionKey(table, str(next(iter(key[schema.key[0]].values()))))


def _throttled(call: Call) -> AwsAnswer:
    if call.operation != "TransactWriteItems":
        return refused(call, Refusal(code=f"{_CODE}Exception", message=_MESSAGE))
    reasons = [{"Code": _CODE, "Message": _MESSAGE}] * len(writes_of(call))
    answer = refused(call, Refusal(code="TransactionCanceledException", message="Transaction cancelled"))
    return answer.with_json(json.loads(answer.body) | {"CancellationReasons": reasons})
