"""The limits of DynamoDB that emulators do not hold callers to; pure functions of a call."""

from __future__ import annotations

import base64
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from tests.doubles.aws.calls import Refusal
from tests.doubles.aws.tables.expressions import assigned_values, expression_refusal
from tests.doubles.aws.tables.schemas import TableSchema, Write, identity, writes_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.doubles.aws.calls import Call
    from tests.doubles.aws.tables.schemas import Item

BATCH_WRITE_LIMIT: Final = 25
BATCH_GET_LIMIT: Final = 100
TRANSACTION_LIMIT: Final = 100
TRANSACTION_BYTES: Final = 4 << 20
ITEM_BYTES: Final = 400 << 10

_KEY_BYTES: Final = (2048, 1024)
_READS: Final = frozenset({"GetItem", "Query", "Scan"})


def dynamodb_refusal(call: Call, schemas: Mapping[str, TableSchema]) -> Refusal | None:
    """Return why DynamoDB refuses a call on items, or None if the emulator may judge the rest."""
    writes = writes_of(call)
    refusals = chain(
        _of_numbers(call),
        _of_expressions(call, writes),
        (refusal for write in writes for refusal in _of_write(write, schemas.get(write.table))),
        _of_sameness(call, writes, schemas),
        _of_consistency(call, schemas),
    )
    return next(refusals, None)


def item_bytes(item: Item) -> int:
    """Return the size of an item as DynamoDB counts it: names and values."""
    return sum(len(name.encode()) + _value_bytes(value) for name, value in item.items())


def _of_numbers(call: Call) -> Iterator[Refusal]:
    if call.operation == "BatchWriteItem":
        if sum(map(len, call.body["RequestItems"].values())) > BATCH_WRITE_LIMIT:
            yield _invalid("Too many items requested for the BatchWriteItem call")
    elif call.operation == "BatchGetItem":
        if sum(len(asked["Keys"]) for asked in call.body["RequestItems"].values()) > BATCH_GET_LIMIT:
            yield _invalid("Too many items requested for the BatchGetItem call")
    elif "TransactItems" in call.body:
        if not 1 <= len(call.body["TransactItems"]) <= TRANSACTION_LIMIT:
            yield _invalid("Member must have length less than or equal to 100 and greater than or equal to 1")
        if sum(_write_bytes(write) for write in writes_of(call)) > TRANSACTION_BYTES:
            yield _invalid("Transaction request size exceeded the limit of 4194304 bytes")


def _of_expressions(call: Call, writes: list[Write]) -> Iterator[Refusal]:
    arguments = [write.arguments for write in writes]
    if call.operation in _READS:
        arguments.append(call.body)
    elif call.operation == "BatchGetItem":
        arguments.extend(call.body["RequestItems"].values())
    elif call.operation == "TransactGetItems":
        arguments.extend(action["Get"] for action in call.body["TransactItems"])
    for one in arguments:
        if refusal := expression_refusal(one):
            yield refusal


def _of_write(write: Write, schema: TableSchema | None) -> Iterator[Refusal]:
    item = write.arguments.get("Item")
    if item is not None and item_bytes(item) > ITEM_BYTES:
        yield _invalid("Item size has exceeded the maximum allowed size")
    given = item if item is not None else dict(assigned_values(write.arguments))
    for value in given.values():
        if any(kind in value and not value[kind] for kind in ("SS", "NS", "BS")):
            yield _invalid("One or more parameter values were invalid: a set may not be empty")
    if schema is not None:
        yield from _of_key(write.key(schema) or {}, schema)
        yield from _of_index_keys(given, schema)


def _of_key(key: Item, schema: TableSchema) -> Iterator[Refusal]:
    for name, limit in zip(schema.key, _KEY_BYTES, strict=False):
        text = key.get(name, {}).get("S")
        if text == "":
            yield _invalid(
                "One or more parameter values are not valid. The AttributeValue for a key attribute cannot"
                f" contain an empty string value. Key: {name}"
            )
        if text and len(text.encode()) > limit:
            yield _invalid(
                f"One or more parameter values were invalid: Size of key {name} is over {limit} bytes"
            )


def _of_index_keys(given: Item, schema: TableSchema) -> Iterator[Refusal]:
    for index_name, index in schema.indexes.items():
        for name in index.key:
            if name not in given:
                continue
            (kind, value), *_ = given[name].items()
            if kind != schema.types[name]:
                yield _invalid(
                    f"One or more parameter values were invalid: Type mismatch for Index Key {name}"
                    f" Expected: {schema.types[name]} Actual: {kind} IndexName: {index_name}"
                )
            elif value == "":
                yield _invalid(
                    "One or more parameter values are not valid. A value specified for a secondary index key"
                    " is not supported. The AttributeValue for a key attribute cannot contain an empty string"
                    f" value. IndexName: {index_name}, IndexKey: {name}"
                )


def _of_sameness(call: Call, writes: list[Write], schemas: Mapping[str, TableSchema]) -> Iterator[Refusal]:
    keys = [
        identity(write.table, key)
        for write in writes
        if write.table in schemas and (key := write.key(schemas[write.table])) is not None
    ]
    if call.operation == "BatchGetItem":
        keys = [
            identity(table, key) for table, one in call.body["RequestItems"].items() for key in one["Keys"]
        ]
    if len(set(keys)) < len(keys):
        is_transaction = call.operation == "TransactWriteItems"
        yield _invalid(
            "Transaction request cannot include multiple operations on one item"
            if is_transaction
            else "Provided list of item keys contains duplicates"
        )


def _of_consistency(call: Call, schemas: Mapping[str, TableSchema]) -> Iterator[Refusal]:
    if call.body.get("ConsistentRead") and call.body.get("IndexName") in _indexes(call, schemas):
        yield _invalid("Consistent reads are not supported on global secondary indexes")


def _indexes(call: Call, schemas: Mapping[str, TableSchema]) -> Mapping[str, Any]:
    schema = schemas.get(call.body.get("TableName", ""))
    return {} if schema is None else schema.indexes


def _write_bytes(write: Write) -> int:
    given: Item = write.arguments.get("Item") or write.arguments.get("ExpressionAttributeValues") or {}
    return item_bytes(given) + item_bytes(write.arguments.get("Key", {}))


def _value_bytes(value: dict[str, Any]) -> int:
    (kind, content), *_ = value.items()
    match kind:
        case "S":
            return len(content.encode())
        case "B":
            # The SDK takes bytes, the wire has them as text.
            return len(content) if isinstance(content, bytes) else len(base64.b64decode(content))
        case "N":
            return len(content) // 2 + 2
        case "L":
            return 3 + sum(1 + _value_bytes(one) for one in content)
        case "M":
            return 3 + len(content) + item_bytes(content)
        case "SS" | "NS" | "BS":
            return sum(_value_bytes({kind[0]: one}) for one in content)
    return 1


def _invalid(message: str) -> Refusal:
    return Refusal(code="ValidationException", message=message)
