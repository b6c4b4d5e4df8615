"""A table of DynamoDB and its indexes in memory."""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tests.doubles.aws.model.evaluation import holds, projected
from tests.doubles.aws.tables.key_conditions import comparable
from tests.doubles.aws.tables.rules import item_bytes
from tests.doubles.aws.tables.schemas import Item, TableSchema

Key = tuple[Any, ...]
_Entry = tuple[Any, Key]
"""Where an item stands in its partition: its sort key, then its primary key."""

_PAGE_BYTES: Final = 1 << 20


class Table:
    """Items by their keys. Writes are judged by the caller; an index shows them at once."""

    def __init__(self, creation: Mapping[str, Any]) -> None:
        self.name: str = creation["TableName"]
        self.schema = TableSchema.described(dict(creation))
        self._items: dict[Key, Item] = {}
        self._partitions: dict[str, dict[str, list[_Entry]]] = defaultdict(lambda: defaultdict(list))

    def get(self, key: Item) -> Item | None:
        """Return the item of a key."""
        return self._items.get(self._key(key))

    def write(self, key: Item, after: Item | None) -> None:
        """Put an item in the place of the one with the same key, or delete that."""
        primary = self._key(key)
        before = self._items.pop(primary, None)
        if after is not None:
            self._items[primary] = after
        for name, parts in self._indexed():
            old, new = _position(before, parts), _position(after, parts)
            if old == new:
                continue
            if old:
                entries = self._partitions[name][old[0]]
                del entries[bisect.bisect_left(entries, (old[1], primary))]
            if new:
                bisect.insort(self._partitions[name][new[0]], (new[1], primary))

    def query(self, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
        """Return the answer to a query, and how many bytes were read for it."""
        name = arguments.get("IndexName", "")
        found: list[Item] = []
        size = count = 0
        position: Item | None = None
        for item in self._candidates(name, arguments):
            if not holds(arguments, item, "KeyConditionExpression"):
                if count:
                    break
                continue
            if count == arguments.get("Limit") or size > _PAGE_BYTES:
                # The last item that was looked at is where the next page begins.
                assert position is not None
                names = {*self.schema.key, *(self.schema.indexes[name].key if name else ())}
                last = {part: position[part] for part in names}
                return _page(arguments, found, count, last), size
            count, size, position = count + 1, size + item_bytes(item), item
            if holds(arguments, item, "FilterExpression"):
                found.append(projected(arguments, item))
        return _page(arguments, found, count, None), size

    def _candidates(self, index: str, arguments: Mapping[str, Any]) -> Iterator[Item]:
        """Yield the items of a partition in their order, as the index holds them, after a position."""
        parts = self.schema.indexes[index].key if index else self.schema.key
        entries = self._partitions[index][partition_of(parts[0], arguments)]
        start = arguments.get("ExclusiveStartKey")
        backwards = arguments.get("ScanIndexForward") is False
        if start:
            at = _position(start, parts)
            assert at is not None
            entry = (at[1], self._key(start))
            entries = (
                entries[: bisect.bisect_left(entries, entry)]
                if backwards
                else entries[bisect.bisect_right(entries, entry) :]
            )
        for _, primary in reversed(entries) if backwards else entries:
            item = self._items[primary]
            yield self.schema.indexes[index].projected(item) if index else item

    def _indexed(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        yield "", self.schema.key
        for name, index in self.schema.indexes.items():
            yield name, index.key

    def _key(self, item: Item) -> Key:
        return tuple(comparable(item[name]) for name in self.schema.key)


def _page(arguments: Mapping[str, Any], found: list[Item], count: int, last: Item | None) -> dict[str, Any]:
    items = {} if arguments.get("Select") == "COUNT" else {"Items": found}
    position = {"LastEvaluatedKey": last} if last else {}
    return {**items, "Count": len(found), "ScannedCount": count, **position}


def partition_of(name: str, arguments: Mapping[str, Any]) -> str:
    """Return the partition that a query is about: the first comparison names it."""
    first = arguments["KeyConditionExpression"].replace("=", " = ").split()
    names = arguments.get("ExpressionAttributeNames") or {}
    assert (names.get(first[0], first[0]), first[1]) == (name, "=")
    return str(next(iter(arguments["ExpressionAttributeValues"][first[2]].values())))


def _position(item: Item | None, parts: tuple[str, ...]) -> tuple[str, Any] | None:
    """Return the partition and the sort key of an item; None if the index does not hold it."""
    if item is None or any(part not in item for part in parts):
        return None
    partition = str(next(iter(item[parts[0]].values())))
    return partition, comparable(item[parts[1]]) if len(parts) > 1 else b""
