"""The model of AWS in this process: expressions as DynamoDB evaluates them, buckets, and virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from airunner.testing.clock import ManualClock
from tests.doubles.aws.model.evaluation import holds, projected, updated
from tests.doubles.aws.model.tables import Table
from tests.doubles.aws.model.virtual_time import VirtualClock, run_in_virtual_time
from tests.doubles.aws.tables.throughput import Charge, PartitionKey, Throughput

ITEM: dict[str, dict[str, Any]] = {"id": {"S": "a"}, "rank": {"N": "10"}, "map": {"M": {"1": {"N": "5"}}}}
VALUES = {":id": {"S": "a"}, ":nine": {"N": "9"}, ":ten": {"N": "10"}, ":text": {"S": "9"}}
NAMES = {"#map": "map", "#1": "1"}
KEY = PartitionKey("jobs", "a")


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("attribute_exists(id) AND id = :id", True),
        ("attribute_not_exists(id) OR id = :id", True),
        ("attribute_not_exists(id)", False),
        ("attribute_not_exists(other) AND NOT id <> :id", True),
        ("rank > :nine", True),
        ("rank > :text", False),
        ("rank BETWEEN :nine AND :ten AND (id = :id OR id = :text)", True),
        ("begins_with(id, :id) AND #map.#1 < :nine", True),
        ("other < :nine OR other = :id", False),
    ],
)
def test_conditions_are_those_of_dynamodb(condition: str, expected: bool) -> None:
    assert holds(_arguments(ConditionExpression=condition), ITEM) == expected


@pytest.mark.parametrize(
    ("update", "changed"),
    [
        ("SET id = :text REMOVE rank", {"id": {"S": "9"}, "rank": None}),
        ("SET rank = rank - :nine, other = if_not_exists(other, :ten)", {"rank": 1, "other": 10}),
        ("ADD rank :nine, other :ten", {"rank": 19, "other": 10}),
        ("SET #map.#1 = :ten", {"map": {"M": {"1": {"N": "10"}}}}),
    ],
)
def test_updates_leave_the_old_item_as_it_was(update: str, changed: dict[str, Any]) -> None:
    expected = {
        **ITEM,
        **{name: {"N": str(new)} if isinstance(new, int) else new for name, new in changed.items()},
    }
    after = updated(_arguments(UpdateExpression=update), ITEM)
    assert after == {name: value for name, value in expected.items() if value}
    assert ITEM["map"] == {"M": {"1": {"N": "5"}}}


def test_a_projection_is_of_what_there_is() -> None:
    assert projected(_arguments(ProjectionExpression="id, #map, other"), ITEM) == {
        "id": ITEM["id"],
        "map": ITEM["map"],
    }


def test_an_index_is_read_in_pages_and_in_its_order() -> None:
    table = _table()
    for number in (3, 1, 2):
        item = {"id": {"S": str(number)}, "group_key": {"S": "g"}, "rank": {"N": str(number)}}
        table.write(item, item)
    query: dict[str, Any] = {
        "IndexName": "by_group",
        "KeyConditionExpression": "group_key = :group AND #rank >= :least",
        "ExpressionAttributeNames": {"#rank": "rank"},
        "ExpressionAttributeValues": {":group": {"S": "g"}, ":least": {"N": "2"}},
        "Limit": 1,
    }
    first, _ = table.query(query)
    second, _ = table.query({**query, "ExclusiveStartKey": first["LastEvaluatedKey"]})
    assert [page["Items"][0]["id"]["S"] for page in (first, second)] == ["2", "3"]
    backwards, _ = table.query({**query, "ScanIndexForward": False})
    assert backwards["Items"][0]["id"]["S"] == "3"
    counted, _ = table.query({**query, "Select": "COUNT", "Limit": 9})
    assert counted == {"Count": 2, "ScannedCount": 2}
    table.write({"id": {"S": "3"}}, None)
    assert table.query({**query, "Limit": 9})[0]["Count"] == 1


def test_a_bucket_fills_with_time_and_pays_its_debts_first() -> None:
    clock = ManualClock()
    throughput = Throughput(lambda: clock.now() / 1000, scale=1 / 1000)  # a write a second
    assert throughput.take([Charge(KEY, "write", 2)])
    clock.advance(1)
    assert not throughput.take([Charge(KEY, "write", 1)])
    assert throughput.take([Charge(KEY, "read", 1)])
    clock.advance(0.5)
    assert throughput.take([Charge(KEY, "write", 1)])
    clock.advance(3600)
    assert throughput.take([Charge(KEY, "write", 1)])
    assert not throughput.take([Charge(KEY, "write", 1), Charge(PartitionKey("jobs", "b"), "write", 1)])
    assert throughput.taken[KEY, "write"] == 4
    assert throughput.refused == {(KEY, "write"): 2}


def test_virtual_time_passes_without_waiting() -> None:
    async def main(clock: VirtualClock) -> int:
        began = clock.now()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3600):
                await clock.sleep(100_000)
        return clock.now() - began

    assert run_in_virtual_time(main) == 3_600_000


def _arguments(**expressions: str) -> dict[str, Any]:
    return {**expressions, "ExpressionAttributeNames": NAMES, "ExpressionAttributeValues": VALUES}


def _table() -> Table:
    keys = [("id", "S"), ("group_key", "S"), ("rank", "N")]
    return Table(
        {
            "TableName": "t",
            "KeySchema": [{"AttributeName": "id", "KeyType": "HASH"}],
            "AttributeDefinitions": [{"AttributeName": name, "AttributeType": kind} for name, kind in keys],
            "GlobalSecondaryIndexes": [
                {
                    "IndexName": "by_group",
                    "KeySchema": [
                        {"AttributeName": "group_key", "KeyType": "HASH"},
                        {"AttributeName": "rank", "KeyType": "RANGE"},
                    ],
                    "Projection": {"ProjectionType": "ALL"},
                }
            ],
        }
    )
