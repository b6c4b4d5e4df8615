"""What it costs to know how many jobs a queue has: a bounded number of calls, and none for a while."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from airunner.aws.calls import Aws
from airunner.domain.answers import Enqueued
from airunner.domain.errors import AirunnerError, ResourceExhausted, Unavailable
from airunner.domain.job import JobState
from airunner.stores.aws.store import AwsStore
from airunner.stores.aws.upkeep.open_jobs import TRUSTED_MS
from airunner.testing.clock import ManualClock
from airunner.testing.conformance.stores.backend import QUEUE, Api
from airunner.testing.factories import make_new_job, make_services
from tests.doubles.aws.faults import FaultKind
from tests.doubles.aws.strict import StrictProxy
from tests.support.aws_stores import BorrowLayout, options_of
from tests.support.metering import Metered

pytest_plugins = ("tests.support.metering",)

SHARDS = 2
TRUSTED_SECONDS = TRUSTED_MS / 1000


class SmallPages(Aws):
    """An index whose pages have two entries; what it was asked for stays in sight."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.queries: list[dict[str, Any]] = []

    async def dynamodb(self, operation: str, **arguments: Any) -> dict[str, Any]:
        if operation == "Query":
            self.queries.append(arguments)
            if arguments.get("Select") == "COUNT":
                arguments = arguments | {"Limit": 2}
        return await super().dynamodb(operation, **arguments)


@pytest.fixture
async def small_pages(aws: StrictProxy, borrow_layout: BorrowLayout) -> AsyncIterator[tuple[SmallPages, Api]]:
    connection, clock = SmallPages(options_of(aws.url)), ManualClock()
    store = AwsStore(connection, await borrow_layout(), clock, short_poll_seconds=0, watches_parts=False)
    async with make_services(store, clock) as services:
        yield connection, Api(jobs=services.jobs, events=services.events, clock=clock, services=services)


async def enqueue(api: Api, max_queued: int) -> Enqueued | AirunnerError:
    new = make_new_job(queue=QUEUE, now=api.clock.now())
    (outcome,) = await api.services.store.enqueue_jobs([new], max_queued=max_queued)
    return outcome


async def test_a_limit_is_counted_once_in_five_seconds(metered: Metered) -> None:
    await metered.api.enqueue_many(3)
    await metered.begin()
    for _ in range(4):
        assert isinstance(await enqueue(metered.api, 10), Enqueued)
    assert (await metered.calls())["Query"] == SHARDS
    # Index entries are counted where they are.
    assert metered.items_read == 3
    metered.api.clock.advance(TRUSTED_SECONDS)
    assert isinstance(await enqueue(metered.api, 10), Enqueued)
    assert (await metered.calls())["Query"] == 2 * SHARDS


async def test_a_queue_that_is_full_is_not_counted_for_each_refusal(metered: Metered) -> None:
    for _ in range(3):
        assert isinstance(await enqueue(metered.api, 3), Enqueued)
    await metered.begin()
    for _ in range(5):
        assert isinstance(await enqueue(metered.api, 3), ResourceExhausted)
    assert "Query" not in await metered.calls()
    # What this server takes away itself, it knows at once.
    await metered.api.claim()
    assert isinstance(await enqueue(metered.api, 3), Enqueued)
    assert isinstance(await enqueue(metered.api, 3), ResourceExhausted)
    assert "Query" not in await metered.calls()


async def test_calls_that_come_together_share_one_count(metered: Metered) -> None:
    await asyncio.gather(*(enqueue(metered.api, 100) for _ in range(5)))
    assert (await metered.calls())["Query"] == SHARDS


async def test_a_count_that_failed_is_made_again(metered: Metered) -> None:
    metered.aws.faults.next("Query", FaultKind.SERVER_ERROR, times=2 * 4)
    with pytest.raises(Unavailable):
        await enqueue(metered.api, 3)
    metered.aws.faults.clear()
    assert isinstance(await enqueue(metered.api, 3), Enqueued)


async def test_counting_stops_at_the_limit(small_pages: tuple[SmallPages, Api]) -> None:
    aws, api = small_pages
    await api.enqueue_many(24)
    aws.queries.clear()
    assert isinstance(await enqueue(api, 4), ResourceExhausted)
    assert len(aws.queries) == SHARDS
    # A higher limit is another question.
    assert isinstance(await enqueue(api, 8), ResourceExhausted)
    assert len(aws.queries) == 3 * SHARDS


async def test_a_queue_is_counted_by_pages_of_numbers_as_far_as_five(
    small_pages: tuple[SmallPages, Api],
) -> None:
    aws, api = small_pages
    await api.enqueue_many(80)
    aws.queries.clear()
    (stats,) = await api.jobs.list_queues()
    assert stats.scheduled == 2 * 5 * SHARDS
    counts = [query for query in aws.queries if query.get("Select") == "COUNT"]
    assert len(counts) == 5 * SHARDS
    # Beside them, a few entries of each shard for the oldest job.
    assert len(aws.queries) == 6 * SHARDS
    assert {query["Limit"] for query in aws.queries if query not in counts} == {100}


async def test_an_overview_is_counted_once_and_follows_what_this_server_does(metered: Metered) -> None:
    made_at = metered.api.clock.now()
    await metered.api.enqueue_many(2)

    async def shown() -> tuple[int, int, int]:
        (stats,) = await metered.api.jobs.list_queues()
        return stats.scheduled, stats.running, stats.oldest_scheduled_at

    assert await shown() == (2, 0, made_at)
    await metered.begin()
    first, second = await metered.api.dequeue(max_jobs=2)
    assert await shown() == (0, 2, 0)
    await metered.api.complete(first)
    assert await metered.api.release(second) is JobState.SCHEDULED
    assert "Query" not in await metered.calls()
    # Where there was none before, the oldest is looked for.
    assert await shown() == (1, 0, made_at)
    assert (await metered.calls())["Query"] == SHARDS
    metered.api.clock.advance(TRUSTED_SECONDS)
    assert await shown() == (1, 0, made_at)


async def test_a_job_that_is_given_back_may_be_the_oldest_again(metered: Metered) -> None:
    api = metered.api
    made_at = api.clock.now()
    older = await api.new_claim()
    api.clock.advance(1)
    await api.enqueue()
    (stats,) = await api.jobs.list_queues()
    assert stats.oldest_scheduled_at == made_at + 1000
    await api.release(older)
    (stats,) = await api.jobs.list_queues()
    assert (stats.scheduled, stats.oldest_scheduled_at) == (2, made_at)


@pytest.mark.slow
async def test_a_count_that_cost_much_is_trusted_for_longer(
    small_pages: tuple[SmallPages, Api], monkeypatch: pytest.MonkeyPatch
) -> None:
    aws, api = small_pages
    monkeypatch.setattr("airunner.stores.aws.upkeep.open_jobs._ENTRY_UNITS", 100)
    await api.enqueue_many(8)
    await api.jobs.list_queues()
    aws.queries.clear()
    api.clock.advance(7)
    await api.jobs.list_queues()
    assert aws.queries == []
    api.clock.advance(1)
    await api.jobs.list_queues()
    assert aws.queries != []
