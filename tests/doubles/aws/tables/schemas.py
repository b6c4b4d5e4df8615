"""What the rules must know of a table, and the writes of a call in one shape."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.doubles.aws.calls import Call

Item = dict[str, dict[str, Any]]
"""Attribute values as DynamoDB writes them: {"job_id": {"S": "..."}}."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """A global secondary index: its key, and what of an item it holds; None is all."""

    key: tuple[str, ...]
    projection: frozenset[str] | None

    @classmethod
    def described(cls, description: dict[str, Any], table_key: tuple[str, ...]) -> Self:
        """Read what DescribeTable says of an index of a table with this key."""
        key = _names(description["KeySchema"])
        projection = description["Projection"]
        if projection["ProjectionType"] == "ALL":
            return cls(key=key, projection=None)
        return cls(key=key, projection=frozenset({*key, *table_key, *projection.get("NonKeyAttributes", ())}))

    def projected(self, item: Item) -> Item:
        """Return what the index holds of an item."""
        wanted = self.projection
        return {name: value for name, value in item.items() if wanted is None or name in wanted}


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSchema:
    """Keys of a table and of its indexes, partition key first, with the types of their attributes."""

    key: tuple[str, ...]
    indexes: Mapping[str, Index]
    types: Mapping[str, str]

    @classmethod
    def described(cls, description: dict[str, Any]) -> Self:
        """Read what DescribeTable says."""
        key = _names(description["KeySchema"])
        indexes = description.get("GlobalSecondaryIndexes") or []
        return cls(
            key=key,
            indexes={index["IndexName"]: Index.described(index, key) for index in indexes},
            types={one["AttributeName"]: one["AttributeType"] for one in description["AttributeDefinitions"]},
        )

    def key_of(self, item: Item) -> Item | None:
        """Return the key of an item, if the item holds all of it."""
        return {name: item[name] for name in self.key} if all(name in item for name in self.key) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One put, update, delete or condition check, alone or as part of a batch or transaction."""

    kind: str
    table: str
    arguments: dict[str, Any]
    """Where the item or the key is, and the expressions."""

    def key(self, schema: TableSchema) -> Item | None:
        """Return the key of the item that it is about."""
        key: Item | None = self.arguments.get("Key")
        return schema.key_of(self.arguments["Item"]) if key is None else key


def identity(table: str, key: Item) -> str:
    """Return a text that two keys share only if they are the same item."""
    return f"{table} {json.dumps(key, sort_keys=True)}"


def tables_of(call: Call) -> set[str]:
    """Return the tables that a call on items names."""
    if "RequestItems" in call.body:
        return set(call.body["RequestItems"])
    if "TransactItems" in call.body:
        return {next(iter(action.values()))["TableName"] for action in call.body["TransactItems"]}
    return {call.body["TableName"]} if "TableName" in call.body else set()


def writes_of(call: Call) -> list[Write]:
    """Return the writes of a call, in its order."""
    if call.operation in {"PutItem", "UpdateItem", "DeleteItem"}:
        kind = call.operation.removesuffix("Item")
        return [Write(kind=kind, table=call.body["TableName"], arguments=call.body)]
    if call.operation == "BatchWriteItem":
        return [
            Write(kind=name.removesuffix("Request"), table=table, arguments=arguments)
            for table, requests in call.body["RequestItems"].items()
            for request in requests
            for name, arguments in request.items()
        ]
    if call.operation == "TransactWriteItems":
        return [
            Write(kind=kind, table=arguments["TableName"], arguments=arguments)
            for action in call.body["TransactItems"]
            for kind, arguments in action.items()
        ]
    return []


def _names(schema: list[dict[str, str]]) -> tuple[str, ...]:
    ordered = sorted(schema, key=lambda part: part["KeyType"] != "HASH")
    return tuple(part["AttributeName"] for part in ordered)
