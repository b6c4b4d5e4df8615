"""Taking part of a batch away, and saying in the answer that it was not done."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from airunner.testing.aws.calls import Call
    from airunner.testing.aws.wire import Answer


def some_of(entries: Sequence[int], chance: random.Random) -> set[int]:
    """Choose at least one and not all, hence none of a single one: AWS throttles rather than refuse all."""
    return set(chance.sample(entries, chance.randint(1, len(entries) - 1))) if len(entries) > 1 else set()


def split_items(call: Call, chance: random.Random) -> tuple[Call, dict[str, Any]]:
    """Return what is left of BatchWriteItem or BatchGetItem, and what the answer shall call unprocessed."""
    asked = call.body["RequestItems"]
    lists = {table: _entries(one) for table, one in asked.items()}
    flat = [(table, entry) for table, entries in lists.items() for entry in entries]
    withheld = some_of(range(len(flat)), chance)
    kept: dict[str, list[Any]] = {}
    left: dict[str, list[Any]] = {}
    for number, (table, entry) in enumerate(flat):
        (left if number in withheld else kept).setdefault(table, []).append(entry)
    body = call.body | {"RequestItems": {table: _with_entries(asked[table], kept[table]) for table in kept}}
    return call.with_body(body), {table: _with_entries(asked[table], left[table]) for table in left}


def name_unprocessed(call: Call, answer: Answer, left: dict[str, Any]) -> Answer:
    """Add to a successful answer what was taken out of its request."""
    field = "UnprocessedItems" if call.operation == "BatchWriteItem" else "UnprocessedKeys"
    return answer.with_json(json.loads(answer.body) | {field: left}) if answer.status == 200 else answer


def _entries(asked: Any) -> list[Any]:
    entries: list[Any] = asked["Keys"] if isinstance(asked, dict) else asked
    return entries


def _with_entries(asked: Any, entries: list[Any]) -> Any:
    return asked | {"Keys": entries} if isinstance(asked, dict) else entries
