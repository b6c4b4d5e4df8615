"""The stream of the events table: it rings on other replicas, follows shards, and may fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, cast

import pytest

from airunner.aws.calls import Aws
from airunner.domain.errors import FailedPrecondition, Unavailable
from airunner.domain.event import Event
from airunner.domain.requests import StreamRequest
from airunner.services.composition import ServiceRules
from airunner.stores.aws.layout import Layout
from airunner.stores.aws.replicas.change_stream import EventStream
from airunner.testing.clock import ManualClock
from airunner.testing.conditions import until
from airunner.testing.conformance.stores.backend import Api
from airunner.testing.factories import NEVER_SECONDS, make_batch, make_services, make_success
from tests.doubles.aws.faults import ANY, Fault, FaultKind
from tests.doubles.aws.strict import StrictAws, StrictProxy
from tests.support.aws_stores import make_resources, make_store, options_of

pytest_plugins = ("tests.support.aws",)

RULES = ServiceRules(maintenance_interval_seconds=NEVER_SECONDS)


@asynccontextmanager
async def _replica(proxy: StrictProxy, layout: Layout) -> AsyncIterator[Api]:
    """A server's services. Its clock stands still: whatever it does by itself, the test does for it."""
    clock = ManualClock()
    async with make_services(make_store(proxy.url, layout, clock), clock, RULES) as services:
        yield Api(jobs=services.jobs, events=services.events, clock=clock, services=services)


@asynccontextmanager
async def _watched(api: Api, job_id: str) -> AsyncIterator[list[Event]]:
    seen: list[Event] = []
    watching = asyncio.create_task(api.watch(StreamRequest(job_id=job_id), seen))
    await until(lambda: job_id in api.services.notifier.jobs)
    try:
        yield seen
    finally:
        watching.cancel()


async def _follow(api: Api) -> None:
    assert api.services.change_feed
    await api.services.change_feed.run_once()


async def test_a_line_published_through_one_rings_on_the_other_without_a_poll(
    strict_aws: StrictAws, aws_env: str
) -> None:
    async with strict_aws.proxy() as way_a, strict_aws.proxy() as way_b:
        layout = await make_resources(way_a.url, aws_env, streams=True)
        async with _replica(way_a, layout) as a, _replica(way_b, layout) as b:
            way_b.counts.reset()
            held = await a.new_claim()
            way_b.counts.reset()
            async with _watched(b, held.job.job_id) as seen:
                await _follow(b)
                await until(lambda: way_b.counts.calls["GetItem"] == 1)
                await a.publish(held, make_batch(1, 3))
                await _follow(b)
                await until(lambda: len(seen) == 3)
                await a.complete(held, make_success(final_sequence=4), make_batch(4, 4))
                await _follow(b)
                await until(lambda: len(seen) == 4)
            assert not way_b.counts.calls["BatchGetItem"]


async def test_a_job_rings_once_more_since_its_row_is_written_after_its_events(
    strict_aws: StrictAws, aws_env: str
) -> None:
    async with strict_aws.proxy() as way_a, strict_aws.proxy() as way_b:
        layout = await make_resources(way_a.url, aws_env, streams=True)
        async with _replica(way_a, layout) as a, _replica(way_b, layout) as b:
            held = await a.new_claim()
            async with _watched(b, held.job.job_id) as seen:
                await _follow(b)
                # That the queue is used, that the message was sent, the claim.
                await until(lambda: way_a.counts.calls["UpdateItem"] == 3)
                way_a.faults.next("UpdateItem", FaultKind.DELAY)
                publishing = asyncio.create_task(a.publish(held, make_batch(1, 3)))
                await until(lambda: way_a.counts.calls["UpdateItem"] == 4)
                reads = way_b.counts.calls["GetItem"]
                await _follow(b)
                await until(lambda: way_b.counts.calls["GetItem"] > reads)
                way_a.faults.release()
                await publishing
                assert not seen
                await _follow(b)
                await until(lambda: len(seen) == 3)


async def test_a_stream_that_fails_leaves_polling_at_work(strict_aws: StrictAws, aws_env: str) -> None:
    async with strict_aws.proxy() as way_a, strict_aws.proxy() as way_b:
        layout = await make_resources(way_a.url, aws_env, streams=True)
        async with _replica(way_a, layout) as a, _replica(way_b, layout) as b:
            held = await a.new_claim()
            for operation in ("DescribeStream", "GetShardIterator", "GetRecords"):
                way_b.faults.add(Fault(operation=operation, kind=FaultKind.SERVER_ERROR))
            async with _watched(b, held.job.job_id) as seen:
                # By itself: the read fails, the next one waits longer, and polling goes on.
                await until(lambda: b.clock.waiting >= 3)
                b.clock.advance(0.25)
                await until(lambda: way_b.counts.calls["DescribeStream"] == 4)
                await a.publish(held, make_batch(1, 3))
                await _follow_nothing(b)
                assert b.services.replica_news
                await b.services.replica_news.run_once()
                await until(lambda: len(seen) == 3)


async def _follow_nothing(api: Api) -> None:
    with pytest.raises(Unavailable):
        await _follow(api)


async def test_nobody_who_listens_costs_no_read_of_the_stream(strict_aws: StrictAws, aws_env: str) -> None:
    async with strict_aws.proxy() as way:
        layout = await make_resources(way.url, aws_env, streams=True)
        async with _replica(way, layout) as api:
            way.counts.reset()
            await _follow(api)
            assert not way.counts.calls


async def test_without_the_setting_nobody_follows(aws: StrictProxy, aws_env: str) -> None:
    async with _replica(aws, await make_resources(aws.url, aws_env)) as api:
        assert api.services.change_feed is None
        assert api.services.replica_news


async def test_a_table_without_a_stream_is_said(aws: StrictProxy, aws_env: str) -> None:
    layout = replace(await make_resources(aws.url, aws_env), streams=True)
    async with Aws(replace(options_of(aws.url), clients=("dynamodb", "streams"))) as account:
        with pytest.raises(FailedPrecondition, match=f"table {aws_env}_events has no stream"):
            await EventStream(account, layout, ManualClock()).read()


async def test_after_a_failure_the_stream_is_taken_up_again(aws: StrictProxy, aws_env: str) -> None:
    layout = await make_resources(aws.url, aws_env, streams=True)
    async with Aws(replace(options_of(aws.url), clients=("dynamodb", "streams"), attempts=1)) as account:
        stream = EventStream(account, layout, ManualClock())
        assert await stream.read() == set()
        aws.faults.next(ANY, FaultKind.RESET)
        with pytest.raises(Unavailable):
            await stream.read()
        assert await stream.read() == set()
        await _put(account, layout, "a")
        assert await stream.read() == {"a"}
        assert await stream.read() == {"a"}
        assert await stream.read() == set()


class Shards:
    """A stream with shards of its own making, which the emulator has not: scripted answers, by operation."""

    def __init__(self) -> None:
        self.shards: list[dict[str, Any]] = []
        self.records: dict[str, list[str]] = {}
        self.ended: set[str] = set()
        self.begun: list[tuple[str, str]] = []
        self.reads = 0

    def split(self, parent: str, *children: str) -> None:
        """Let a shard end, and others go on in its place."""
        self.ended.add(parent)
        for shard in self.shards:
            if shard["ShardId"] == parent:
                shard["SequenceNumberRange"]["EndingSequenceNumber"] = "9"
        self.open(*children)

    def open(self, *names: str) -> None:
        """Have open shards."""
        self.shards += [{"ShardId": name, "SequenceNumberRange": {}} for name in names]

    async def dynamodb(self, _: str, **__: Any) -> dict[str, Any]:
        return {"Table": {"LatestStreamArn": "arn"}}

    async def streams(self, operation: str, **arguments: Any) -> dict[str, Any]:
        if operation == "DescribeStream":
            # One in a page.
            names = [shard["ShardId"] for shard in self.shards]
            place = names.index(arguments["ExclusiveStartShardId"]) + 1 if len(arguments) > 1 else 0
            last = {"LastEvaluatedShardId": names[place]} if place + 1 < len(names) else {}
            return {"StreamDescription": {"Shards": self.shards[place : place + 1], **last}}
        if operation == "GetShardIterator":
            self.begun.append((arguments["ShardId"], arguments["ShardIteratorType"]))
            return {"ShardIterator": arguments["ShardId"]}
        shard = arguments["ShardIterator"]
        page = self.records.get(shard, [])[: arguments["Limit"]]
        self.records[shard] = self.records.get(shard, [])[len(page) :]
        self.reads += 1
        records = [
            {"eventName": name, "dynamodb": {"Keys": {"job_id": {"S": job_id}}}}
            for job_id in page
            for name in [("REMOVE" if job_id.startswith("purged") else "INSERT")]
        ]
        return {"Records": records, **({} if shard in self.ended else {"NextShardIterator": shard})}


@pytest.fixture
def shards() -> Shards:
    """A mock, since no emulator splits shards."""
    return Shards()


@pytest.fixture
def stream(shards: Shards, clock: ManualClock) -> EventStream:
    return EventStream(cast("Aws", shards), Layout(), clock)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


async def test_every_open_shard_is_followed_from_now_on(shards: Shards, stream: EventStream) -> None:
    shards.open("old", "left", "right")
    shards.split("old")
    await stream.read()
    assert sorted(shards.begun) == [("left", "LATEST"), ("right", "LATEST")]
    shards.records = {"left": ["a", "purged"], "right": ["b"]}
    assert await stream.read() == {"a", "b"}


async def test_what_follows_a_shard_is_read_from_its_beginning(shards: Shards, stream: EventStream) -> None:
    shards.open("other", "one")
    await stream.read()
    shards.records = {"one": ["a"], "two": ["b"], "three": ["c"]}
    shards.split("one", "two", "three")
    assert await stream.read() == {"a"}
    assert await stream.read() == {"a", "b", "c"}
    assert sorted(shards.begun[2:]) == [("three", "TRIM_HORIZON"), ("two", "TRIM_HORIZON")]


async def test_a_shard_is_read_until_a_page_is_not_full(shards: Shards, stream: EventStream) -> None:
    shards.open("one")
    await stream.read()
    shards.reads = 0
    shards.records = {"one": [f"job {number}" for number in range(2_500)]}
    assert len(await stream.read()) == 2_500
    assert shards.reads == 3
    # What is more than that waits: who writes faster than we read must not keep us for ever.
    shards.records = {"one": [f"other {number}" for number in range(7_000)]}
    shards.reads = 0
    assert len(await stream.read()) == 2_500 + 5_000
    assert shards.reads == 5


async def test_a_shard_that_appears_late_is_found(
    shards: Shards, stream: EventStream, clock: ManualClock
) -> None:
    shards.open("one", "other")
    await stream.read()
    shards.split("one")
    await stream.read()
    await stream.read()
    shards.open("late")
    for _ in range(3):
        clock.advance(30)
        await stream.read()
    assert shards.begun[2:] == [("late", "TRIM_HORIZON")]


async def test_a_long_pause_is_not_caught_up_with(
    shards: Shards, stream: EventStream, clock: ManualClock
) -> None:
    shards.open("one")
    await stream.read()
    clock.advance(61)
    await stream.read()
    assert shards.begun == [("one", "LATEST")] * 2


async def _put(account: Aws, layout: Layout, job_id: str) -> None:
    item = {"job_id": {"S": job_id}, "sequence": {"N": "1"}}
    await account.dynamodb("PutItem", TableName=layout.events_table, Item=item)
