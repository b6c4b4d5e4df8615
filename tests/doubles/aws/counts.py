"""What a client asked of AWS: calls per operation, and items read and written."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.doubles.aws.calls import Call

_ONE_ITEM = frozenset({"PutItem", "UpdateItem", "DeleteItem"})


class Counts:
    """Calls count when they arrive, items when the answer says that they were read or written."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        """By operation, `PutItem`; of S3 by method and object, `PutObject`."""
        self.of_queues: set[tuple[str, str]] = set()
        """The operations of SQS, each with the name of its queue."""
        self.items_read = 0
        """What GetItem, BatchGetItem, Query, Scan and TransactGetItems returned."""
        self.entries_read = 0
        """Those of them that are entries of an index."""
        self.items_written = 0
        """What single, batched and transactional writes put, changed or deleted."""

    def reset(self) -> None:
        """Begin again at nought."""
        self.calls.clear()
        self.of_queues.clear()
        self.items_read = self.entries_read = self.items_written = 0

    def arrived(self, call: Call) -> None:
        """Count a call, whatever becomes of it."""
        self.calls[call.operation] += 1
        if call.service == "sqs":
            queue = call.body.get("QueueName") or call.body.get("QueueUrl", "").rpartition("/")[2]
            self.of_queues.add((call.operation, queue))

    def answered(self, call: Call, answer: dict[str, Any]) -> None:
        """Count the items of a call that succeeded."""
        read = _read(call.operation, answer)
        self.items_read += read
        self.entries_read += read if "IndexName" in call.body else 0
        self.items_written += _written(call, answer)


def _read(operation: str, answer: dict[str, Any]) -> int:
    if operation in {"Query", "Scan"}:
        return int(answer.get("ScannedCount", 0))
    if operation == "GetItem":
        return int("Item" in answer)
    if operation == "BatchGetItem":
        return sum(len(items) for items in answer.get("Responses", {}).values())
    return len(answer.get("Responses", ())) if operation == "TransactGetItems" else 0


def _written(call: Call, answer: dict[str, Any]) -> int:
    if call.operation == "TransactWriteItems":
        return sum("ConditionCheck" not in action for action in call.body["TransactItems"])
    if call.operation == "BatchWriteItem":
        asked, left = call.body["RequestItems"], answer.get("UnprocessedItems", {})
        return sum(map(len, asked.values())) - sum(map(len, left.values()))
    return int(call.operation in _ONE_ITEM)
