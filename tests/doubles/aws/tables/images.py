"""What items were before recent writes: the memory of indexes and replicas that lag behind."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.doubles.aws.tables.key_conditions import KeyCondition, comparable
from tests.doubles.aws.tables.schemas import identity, writes_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from tests.doubles.aws.calls import Call
    from tests.doubles.aws.faults import Fault
    from tests.doubles.aws.tables.schemas import Item, TableSchema
    from tests.doubles.aws.wire import AwsAnswer


@dataclass(frozen=True, slots=True, kw_only=True)
class _Image:
    serial: int
    table: str
    item: Item | None
    """As it was before the write; None if it did not exist."""


class Images:
    """Old images of items, written down before each write while lags are wanted.

    A lagging reader sees an item as it was before the first write that it does not know of.
    """

    def __init__(self) -> None:
        self._serial = 0
        self._images: dict[str, list[_Image]] = {}

    def count_request(self) -> None:
        """Let one request pass: the measure of how far back a lag reaches."""
        self._serial += 1

    def catch_up(self) -> None:
        """Let every reader know of every write so far."""
        self._images.clear()

    async def capture(
        self, call: Call, schemas: Mapping[str, TableSchema], send: Callable[[Call], Awaitable[AwsAnswer]]
    ) -> None:
        """Write down what the items are that a call is about to write."""
        for write in writes_of(call):
            key = write.key(schemas[write.table]) if write.table in schemas else None
            if key is None or write.kind == "ConditionCheck":
                continue
            asked = {"TableName": write.table, "Key": key, "ConsistentRead": True}
            before = json.loads((await send(call.beside("GetItem", asked))).body).get("Item")
            image = _Image(serial=self._serial, table=write.table, item=before)
            self._images.setdefault(identity(write.table, key), []).append(image)

    def late_get(self, answer: dict[str, Any], call: Call, fault: Fault) -> dict[str, Any]:
        """Return the answer of GetItem as a lagging reader gets it."""
        image = self._before(identity(call.body["TableName"], call.body["Key"]), fault)
        if image is None:
            return answer
        rest = {name: one for name, one in answer.items() if name != "Item"}
        return rest | {"Item": image.item} if image.item is not None else rest

    def late_items(
        self, items: Iterable[Item], table: str, fault: Fault, schema: TableSchema
    ) -> list[tuple[Item, Item]]:
        """Return the items that a lagging reader finds among those of an answer: as now, and as they were."""
        found = []
        for item in items:
            key = schema.key_of(item)
            image = None if key is None else self._before(identity(table, key), fault)
            if image is None:
                found.append((item, item))
            elif image.item is not None:
                found.append((item, image.item))
        return found

    def late_index(
        self, answer: dict[str, Any], call: Call, fault: Fault, schema: TableSchema
    ) -> dict[str, Any]:
        """Return the answer of a Query on an index that lags: also with what has left its place meanwhile.

        What has left is shown where the answer is the only page and nothing is filtered or chosen from it.
        """
        table, index = call.body["TableName"], schema.indexes[call.body["IndexName"]]
        condition = KeyCondition(call.body)
        late = self.late_items(answer["Items"], table, fault, schema)
        items = [index.projected(was) if was is not now else now for now, was in late if condition.holds(was)]
        gone = self._gone(table, fault, answer["Items"], schema)
        ghosts = [index.projected(was) for was in gone if condition.holds(was)]
        if not _is_partial(call, answer) and len(items) + len(ghosts) <= call.body.get("Limit", sys.maxsize):
            items += ghosts
        is_descending = call.body.get("ScanIndexForward") is False
        items.sort(key=lambda item: comparable(item[index.key[-1]]), reverse=is_descending)
        return answer | {"Items": items, "Count": len(items), "ScannedCount": len(items)}

    def _gone(self, table: str, fault: Fault, here: list[Item], schema: TableSchema) -> list[Item]:
        """Return what was there before the writes that a reader does not know of, unless it is `here`."""
        known = {identity(table, key) for item in here if (key := schema.key_of(item)) is not None}
        images = (self._before(one, fault) for one in self._images if one not in known)
        return [image.item for image in images if image and image.table == table and image.item is not None]

    def _before(self, item: str, fault: Fault) -> _Image | None:
        """Return what was before the first write that the reader does not know of; None if it knows all."""
        oldest = 0 if fault.requests is None else self._serial - fault.requests
        return next((image for image in self._images.get(item, ()) if image.serial >= oldest), None)


def _is_partial(call: Call, answer: dict[str, Any]) -> bool:
    asked = ("ExclusiveStartKey", "FilterExpression", "ProjectionExpression")
    return "LastEvaluatedKey" in answer or any(name in call.body for name in asked)
