"""How events of one publish are written: together, and never beside the leftovers of another."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from airunner.domain.errors import Unavailable
from airunner.domain.event import Position
from airunner.stores.records import EventQuery
from airunner.testing.conditions import until
from airunner.testing.factories import NOON, make_batch, make_line
from tests.doubles.aws.faults import FaultKind
from tests.support.metering import Metered

pytest_plugins = ("tests.support.metering",)

ALL_TRIES = 4


async def stored(metered: Metered) -> list[int]:
    """The first sequences of what is in the events table."""
    answer = await metered.store._aws.dynamodb("Scan", TableName=metered.store._layout.events_table)
    return sorted(int(item["sequence"]["N"]) for item in answer["Items"])


async def delete(metered: Metered, job_id: str, sequence: int) -> None:
    await metered.store._aws.dynamodb(
        "DeleteItem",
        TableName=metered.store._layout.events_table,
        Key={"job_id": {"S": job_id}, "sequence": {"N": str(sequence)}},
    )


async def left_over(metered: Metered, held: Any, *events: Any) -> None:
    """Let a publish fail after its events and before its row."""
    metered.aws.faults.next("UpdateItem", FaultKind.SERVER_ERROR, times=ALL_TRIES)
    with pytest.raises(Unavailable):
        await metered.api.publish(held, *events)
    metered.aws.faults.clear()


async def test_events_of_one_publish_are_written_at_the_same_time(metered: Metered) -> None:
    held = await metered.api.new_claim()
    await metered.begin()
    put, free = metered.store._log._put, asyncio.Event()
    waiting: list[str] = []

    async def first_goes_ahead(item: Any, **conditions: Any) -> Any:
        if item["sequence"]["N"] != "1":
            waiting.append(item["sequence"]["N"])
            await free.wait()
        return await put(item, **conditions)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metered.store._log, "_put", first_goes_ahead)
        publishing = asyncio.create_task(metered.api.publish(held, *map(make_line, range(1, 6))))
        await until(lambda: len(waiting) == 4)
        assert await stored(metered) == [1]
        free.set()
        await publishing
    assert (await metered.calls())["PutItem"] == 5
    assert await metered.api.stored(held.job.job_id) == [(1, sequence) for sequence in range(1, 6)]


async def test_a_payload_is_sent_once(metered: Metered) -> None:
    held = await metered.api.new_claim()
    sent: list[dict[str, Any]] = []
    dynamodb = metered.store._aws.dynamodb

    async def overheard(operation: str, **arguments: Any) -> dict[str, Any]:
        if operation == "PutItem":
            sent.append(arguments)
        return await dynamodb(operation, **arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metered.store._aws, "dynamodb", overheard)
        await metered.api.publish(held, make_batch(1, 50))
    (arguments,) = sent
    payload = arguments["Item"]["event_payload"]["B"]
    assert all(value["B"] != payload for value in arguments["ExpressionAttributeValues"].values())


async def test_a_publish_that_is_repeated_after_its_row_failed_writes_the_same(metered: Metered) -> None:
    held = await metered.api.new_claim()
    events = [make_batch(1, 2), make_batch(3, 4), make_batch(5, 6)]
    await left_over(metered, held, *events)
    await metered.begin()
    assert (await metered.api.publish(held, *events)).next_sequence == 7
    assert not (await metered.calls()).keys() & {"BatchWriteItem", "DeleteItem"}
    assert await stored(metered) == [1, 3, 5]


async def test_leftovers_with_a_gap_before_them_do_not_come_between_other_events(metered: Metered) -> None:
    held = await metered.api.new_claim()
    job_id = held.job.job_id
    # Of three events that were written together, the second never came.
    await left_over(metered, held, make_line(1), make_line(2), make_line(3))
    await delete(metered, job_id, 2)
    # The first is published again as it was, and others are cut otherwise.
    assert (await metered.api.publish(held, make_line(1))).next_sequence == 2
    assert await stored(metered) == [1]
    await metered.api.publish(held, make_batch(2, 5))
    assert await stored(metered) == [1, 2]
    assert await metered.api.stored(job_id) == [(1, sequence) for sequence in range(1, 6)]


async def test_leftovers_that_could_not_all_be_removed_do_not_come_between_other_events(
    metered: Metered,
) -> None:
    held = await metered.api.new_claim()
    await left_over(metered, held, make_batch(1, 3), make_batch(4, 6))
    dynamodb = metered.store._aws.dynamodb

    async def without_the_second(operation: str, **arguments: Any) -> dict[str, Any]:
        if operation == "DeleteItem" and arguments["Key"]["sequence"]["N"] == "4":
            raise Unavailable
        return await dynamodb(operation, **arguments)

    cut_otherwise = [make_batch(1, 2), make_batch(3, 5)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metered.store._aws, "dynamodb", without_the_second)
        with pytest.raises(Unavailable):
            await metered.api.publish(held, *cut_otherwise)
    await metered.api.publish(held, *cut_otherwise)
    await metered.api.publish(held, make_batch(6, 8))
    assert await stored(metered) == [1, 3, 6]
    assert await metered.api.stored(held.job.job_id) == [(1, sequence) for sequence in range(1, 9)]


async def test_a_time_is_found_without_reading_all_that_was_published_before_it(metered: Metered) -> None:
    held = await metered.api.new_claim()
    for first in range(1, 41):
        await metered.api.publish(held, make_batch(first, first, at=NOON + first))
    await metered.begin()
    query = EventQuery(job_id=held.job.job_id, after=Position(1, 0), from_timestamp=NOON + 39, limit=2)
    page = await metered.store.read_events(query)
    assert [event.first_sequence for event in page.events] == [39, 40]
    assert (await metered.calls())["Query"] == 2
