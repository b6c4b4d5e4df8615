"""Taking part of a batch away, and saying in the answer that it was not done."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from tests.doubles.aws.calls import Call
    from tests.doubles.aws.wire import AwsAnswer


def some_of(entries: Sequence[int], chance: random.Random) -> set[int]:
    """Choose at least one and not all, hence none of a single one: AWS throttles rather than refuse all."""
    return set(chance.sample(entries, chance.randint(1, len(entries) - 1))) if len(entries) > 1 else set()


def split_items(call: Call, chance: random.Random) -> tuple[Call, dict[str, Any]]:
    """Return what is left of BatchWriteItem or BatchGetItem, and what the answer shall call unprocessed."""
    arguments = call.body["RequestItems"]
    lists = {table: _entries(one) for table, one in arguments.items()}
    flat = [(table, entry) for table, entries in lists.items() for entry in entries]
    withheld = some_of(range(len(flat)), chance)
    kept: dict[str, list[Any]] = {}
    left: dict[str, list[Any]] = {}
    for number, (table, entry) in enumerate(flat):
        (left if number in withheld else kept).setdefault(table, []).append(entry)
    body = call.body | {
        "RequestItems": {table: _with_entries(arguments[table], kept[table]) for table in kept}
    }
    return call.with_body(body), {table: _with_entries(arguments[table], left[table]) for table in left}


def name_unprocessed(call: Call, answer: AwsAnswer, left: dict[str, Any]) -> AwsAnswer:
    """Add to a successful answer what was taken out of its request."""
    field = "UnprocessedItems" if call.operation == "BatchWriteItem" else "UnprocessedKeys"
    return answer.with_json(json.loads(answer.body) | {field: left}) if answer.status == 200 else answer


def _entries(arguments: Any) -> list[Any]:
    entries: list[Any] = arguments["Keys"] if isinstance(arguments, dict) else arguments
    return entries


def _with_entries(arguments: Any, entries: list[Any]) -> Any:
    return arguments | {"Keys": entries} if isinstance(arguments, dict) else entries
