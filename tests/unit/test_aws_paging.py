"""Pages that are followed to their end, and lists that are split into calls."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from airunner.aws.calls import Aws, AwsOptions
from airunner.aws.paging import Pages, read_items
from airunner.domain.errors import Unavailable


class Numbers:
    """Answers with the numbers up to nine, three to a page; position 3 has an empty page."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self.failures = 0

    async def query(self, operation: str, **arguments: Any) -> dict[str, Any]:
        assert operation == "Query"
        self.calls.append(arguments)
        if self.failures:
            self.failures -= 1
            raise Unavailable
        start = arguments.get("ExclusiveStartKey", 0)
        items = [] if start == 3 else [start, start + 1, start + 2]
        return {"Items": items, **({"LastEvaluatedKey": start + 3} if start < 6 else {})}


async def test_pages_are_followed_to_the_last_one_and_through_empty_ones() -> None:
    numbers = Numbers()
    pages = [page["Items"] async for page in Pages(numbers.query, "Query", TableName="t")]
    assert pages == [[0, 1, 2], [], [6, 7, 8]]
    assert numbers.calls == [
        {"TableName": "t"},
        {"TableName": "t", "ExclusiveStartKey": 3},
        {"TableName": "t", "ExclusiveStartKey": 6},
    ]


async def test_the_position_is_that_of_the_next_page() -> None:
    pages = Pages(Numbers().query, "Query")
    assert pages.next_position is None
    assert [pages.next_position async for _ in pages] == [3, 6, None]


async def test_after_an_error_the_same_page_is_asked_for_again() -> None:
    numbers = Numbers()
    pages = Pages(numbers.query, "Query")
    await anext(pages)
    numbers.failures = 1
    with pytest.raises(Unavailable):
        await anext(pages)
    assert [page["Items"] async for page in pages] == [[], [6, 7, 8]]


async def test_after_the_last_page_nothing_is_asked() -> None:
    numbers = Numbers()
    pages = Pages(numbers.query, "Query")
    async for _ in pages:
        pass
    assert [page async for page in pages] == []
    assert len(numbers.calls) == 3


async def test_no_more_pages_than_were_wanted() -> None:
    numbers = Numbers()
    pages = Pages(numbers.query, "Query", max_pages=2, TableName="t")
    assert [page["Items"] async for page in pages] == [[0, 1, 2], []]
    assert pages.next_position == 6
    assert numbers.calls == [{"TableName": "t"}, {"TableName": "t", "ExclusiveStartKey": 3}]


class Batches(Aws):
    """Notes what batches are made."""

    def __init__(self) -> None:
        super().__init__(AwsOptions(region="eu-west-1"))
        self.sizes: list[int] = []

    async def dynamodb(self, operation: str, **arguments: Any) -> dict[str, Any]:
        request = arguments["RequestItems"]["t"]
        self.sizes.append(len(request["Keys"]))
        return {"Responses": {"t": request["Keys"]}}


async def test_keys_are_read_in_hundreds() -> None:
    keys = [{"job_id": {"S": str(number)}} for number in range(201)]
    aws = Batches()
    assert await read_items(aws, "t", keys, ConsistentRead=True) == keys
    assert aws.sizes == [100, 100, 1]


class SlowBatches(Batches):
    """Answers once as many reads are under way as can be."""

    def __init__(self) -> None:
        super().__init__()
        self.together = asyncio.Barrier(8)

    async def batch_get(
        self, table: str, keys: Sequence[Mapping[str, Any]], **options: Any
    ) -> list[dict[str, Any]]:
        async with asyncio.timeout(10):
            await self.together.wait()
        return await super().batch_get(table, keys, **options)


async def test_many_items_are_read_by_eight_calls_at_a_time() -> None:
    keys = [{"id": {"S": str(number)}} for number in range(1_600)]
    assert await read_items(SlowBatches(), "t", keys) == keys


class FailingBatches(Batches):
    """The second of its reads fails, before the others end."""

    async def batch_get(
        self, table: str, keys: Sequence[Mapping[str, Any]], **options: Any
    ) -> list[dict[str, Any]]:
        if keys[0]["id"]["S"] == "100":
            raise Unavailable
        await asyncio.sleep(0)
        return await super().batch_get(table, keys, **options)


async def test_when_a_read_fails_none_goes_on_behind_it() -> None:
    batches, keys = FailingBatches(), [{"id": {"S": str(number)}} for number in range(300)]
    with pytest.raises(Unavailable):
        await read_items(batches, "t", keys)
    assert batches.sizes == [100, 100]
