"""The production store where calls fail one at a time, replicas race, and AWS is as it may be."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from airunner import telemetry
from airunner.aws.calls import Aws, CancellationReason, Refused, TransactionCancelled
from airunner.domain.answers import Enqueued
from airunner.domain.errors import DeadlineExceeded, FailedPrecondition, JobNotFound, Unavailable
from airunner.domain.event import Position
from airunner.domain.job import JobParams, JobState
from airunner.domain.listing import JobQuery
from airunner.domain.retry import RetryPolicy
from airunner.stores.aws import store as store_module
from airunner.stores.aws.store import AwsStore
from airunner.stores.aws.upkeep.reconcile import PASS_MS
from airunner.stores.records import Demand, EventQuery, Retention
from airunner.testing.clock import ManualClock
from airunner.testing.conditions import until
from airunner.testing.conformance.stores.backend import QUEUE, Api
from airunner.testing.factories import make_batch, make_request, make_services, make_success
from tests.doubles.aws.faults import Fault, FaultKind
from tests.doubles.aws.strict import StrictAws, StrictProxy
from tests.support.aws import client
from tests.support.aws_stores import BorrowLayout, make_store, options_of
from tests.support.consumers import turns
from tests.support.scraping import Change

# More than a row holds itself.
LARGE = "x" * 5_000
ALL_TRIES = 4
EXACT = RetryPolicy(first_seconds=0.05, jitter=0.0, attempts=ALL_TRIES)


class PausesNoted(ManualClock):
    """A clock whose pauses are over at once, and are remembered."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.taken.append(seconds)


class Pair:
    """A replica whose calls may go wrong, and another one that is well."""

    def __init__(self, aws: StrictProxy, store: AwsStore, api: Api, other: Api) -> None:
        self.aws = aws
        self.store = store
        self.api = api
        self.other = other

    async def add(self, count: int = 1) -> list[str]:
        """Let the other replica add jobs, to the last call of it."""
        added = await self.other.enqueue_many(count)
        other = self.other.services.store
        assert isinstance(other, AwsStore)
        await other._background_tasks.finish()
        return added


@pytest.fixture
async def pair(aws: StrictProxy, strict_aws: StrictAws, borrow_layout: BorrowLayout) -> AsyncIterator[Pair]:
    clock, layout = ManualClock(), await borrow_layout()
    async with strict_aws.proxy() as well:
        stores = [make_store(proxy.url, layout, clock) for proxy in (aws, well)]
        async with make_services(stores[0], clock) as first, make_services(stores[1], clock) as second:
            apis = [
                Api(jobs=services.jobs, events=services.events, clock=clock, services=services)
                for services in (first, second)
            ]
            yield Pair(aws, stores[0], *apis)


async def test_every_read_has_a_deadline(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    (job_id,) = await pair.add()
    store = pair.store
    reads: list[Callable[[], Awaitable[Any]]] = [
        lambda: store.get_job(job_id),
        lambda: store.get_life(job_id),
        lambda: store.list_jobs(JobQuery(queue=QUEUE)),
        lambda: store.list_queues(limit=100),
        lambda: store.read_events(EventQuery(job_id=job_id, after=Position(1, 0))),
        lambda: store.find_key("nobody"),
        store.list_keys,
        lambda: store.read_marks([job_id]),
        lambda: store.link_payloads(job_id, 60),
    ]
    for read in reads:
        await read()
    monkeypatch.setattr(store_module, "READ_SECONDS", 0.05)
    pair.aws.faults.add(Fault(kind=FaultKind.DELAY))
    for read in reads:
        with pytest.raises(DeadlineExceeded):
            await asyncio.wait_for(read(), 30)
    monkeypatch.undo()
    pair.aws.faults.clear()
    assert (await store.get_job(job_id)).job_id == job_id


async def test_an_extension_that_is_late_does_not_hide_what_was_released(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []
    sqs, show_again = pair.store._aws.sqs, pair.store._messages.show_again

    async def overheard(operation: str, **arguments: Any) -> dict[str, Any]:
        begun.append(operation)
        return await sqs(operation, **arguments)

    async def shown(*arguments: Any) -> None:
        begun.append("show again")
        await show_again(*arguments)

    await pair.add()
    pair.aws.faults.next("ChangeMessageVisibilityBatch", FaultKind.DELAY)
    (held,) = await pair.api.dequeue()
    await until(lambda: pair.aws.counts.calls["ChangeMessageVisibilityBatch"] == 1)
    monkeypatch.setattr(pair.store._aws, "sqs", overheard)
    monkeypatch.setattr(pair.store._messages, "show_again", shown)
    releasing = asyncio.create_task(pair.api.release(held))
    await until(lambda: bool(begun))
    await turns()
    # The row is written, and the message is left alone while the extension is on its way.
    assert begun == ["show again"]
    assert (await pair.other.job(held)).state is JobState.SCHEDULED
    pair.aws.faults.release()
    await releasing
    await pair.store._background_tasks.finish()
    assert begun == ["show again", "ChangeMessageVisibilityBatch"]
    (again,) = await pair.other.dequeue()
    assert again.job.attempt == 2


async def test_jobs_that_were_claimed_are_handed_out_though_another_claim_failed(pair: Pair) -> None:
    added = await pair.add(3)
    # All but the last try of each, and the last one of one.
    pair.aws.faults.next("UpdateItem", FaultKind.THROTTLE, times=3 * (ALL_TRIES - 1) + 1)
    held = await pair.api.dequeue(max_jobs=3)
    running = {job_id for job_id in added if (await pair.other.jobs.get_job(job_id)).attempt}
    assert {one.job.job_id for one in held} == running
    assert len(held) in {1, 2}


async def test_who_comes_back_at_once_is_served_again(pair: Pair) -> None:
    async def take_two() -> list[str]:
        demands = [Demand(queues=(QUEUE,), max_jobs=1, visibility_seconds=60) for _ in range(2)]
        return [job.job_id for demand in demands for job in await pair.store.dequeue_jobs(demand)]

    taking = asyncio.create_task(take_two())
    added = await pair.add()
    await until(lambda: pair.aws.counts.calls["UpdateItem"] == 1, limit_seconds=20)
    added += await pair.add()
    async with asyncio.timeout(20):
        assert await taking == added


async def test_what_is_being_claimed_at_the_close_is_still_answered(pair: Pair) -> None:
    demand = Demand(queues=(QUEUE,), max_jobs=1, visibility_seconds=60)
    pair.aws.faults.next("UpdateItem", FaultKind.DELAY)
    claim = asyncio.create_task(pair.store.dequeue_jobs(demand))
    (job_id,) = await pair.add()
    await until(lambda: pair.aws.counts.calls["UpdateItem"] == 1, limit_seconds=20)
    closing = asyncio.create_task(pair.store._receiver.close())
    await until(lambda: pair.store._receiver._closed)
    pair.aws.faults.release()
    assert [job.job_id for job in await claim] == [job_id]
    await closing


async def test_the_end_that_loses_does_not_write_over_the_result_of_the_other(pair: Pair) -> None:
    held = await pair.api.new_claim()
    # So that the one remembers the job as running when the other has ended it.
    await pair.api.publish(held, make_batch(1, 1))
    result = make_success(output_json=f'"{LARGE}"')
    await pair.other.complete(held, result)
    with pytest.raises(FailedPrecondition):
        await pair.api.complete(held, make_success(output_json=f'"other {LARGE}"'))
    for api in (pair.api, pair.other):
        assert (await api.job(held)).result == result


async def test_a_publish_that_is_late_removes_nothing_that_was_acknowledged_since(pair: Pair) -> None:
    held = await pair.other.new_claim()
    pair.aws.faults.next("PutItem", FaultKind.DELAY)
    late = asyncio.create_task(pair.api.publish(held, make_batch(1, 2)))
    await until(lambda: pair.aws.counts.calls["PutItem"] == 1)
    # Its worker gave it up, and went on elsewhere.
    await pair.other.publish(held, make_batch(1, 2))
    assert (await pair.other.publish(held, make_batch(3, 4))).next_sequence == 5
    pair.aws.faults.release()
    assert (await late).next_sequence == 5
    assert await pair.other.stored(held.job.job_id) == [(1, sequence) for sequence in range(1, 5)]


async def test_leftovers_that_are_published_again_while_they_are_removed_stay(pair: Pair) -> None:
    held = await pair.other.new_claim()
    pair.aws.faults.next("UpdateItem", FaultKind.SERVER_ERROR, times=ALL_TRIES)
    with pytest.raises(Unavailable):
        await pair.api.publish(held, make_batch(1, 2), make_batch(3, 4))
    pair.aws.faults.next("DeleteItem", FaultKind.DELAY)
    removing = asyncio.create_task(pair.api.publish(held, make_batch(1, 2)))
    await until(lambda: pair.aws.counts.calls["DeleteItem"] == 1)
    assert (await pair.other.publish(held, make_batch(1, 2), make_batch(3, 4))).next_sequence == 5
    pair.aws.faults.release()
    assert (await removing).next_sequence == 5
    assert await pair.other.stored(held.job.job_id) == [(1, sequence) for sequence in range(1, 5)]


async def test_a_wait_goes_on_through_receives_that_find_nothing(pair: Pair) -> None:
    pair.aws.faults.next("ReceiveMessage", FaultKind.FALSE_EMPTY, times=3)
    (job_id,) = await pair.add()
    (held,) = await pair.api.dequeue(wait_seconds=20)
    assert held.job.job_id == job_id
    assert pair.aws.counts.calls["ReceiveMessage"] == 4


async def test_upkeep_by_an_index_that_is_behind_harms_nothing(pair: Pair) -> None:
    held = await pair.api.new_claim()
    pair.aws.faults.add(Fault(kind=FaultKind.INDEX_LAG))
    await pair.api.lapse(60)
    (again,) = await pair.api.dequeue()
    await pair.api.lapse(30)
    await pair.api.complete(again)
    for _ in range(2):
        await pair.api.advance(100)
    job = await pair.api.job(held)
    assert (job.state, job.attempt) == (JobState.COMPLETED, 2)
    assert await pair.api.dequeue() == []
    pair.aws.faults.clear()
    await pair.api.advance(100)
    assert await pair.api.job(held) == job


async def test_a_job_that_the_index_does_not_show_yet_is_looked_at_once_it_does(pair: Pair) -> None:
    pair.aws.faults.add(Fault(kind=FaultKind.INDEX_LAG))
    pair.aws.faults.next("SendMessage", FaultKind.THROTTLE, times=ALL_TRIES)
    job_id = await pair.api.enqueue()
    await pair.api.lapse(0)
    assert await pair.api.dequeue() == []
    pair.aws.faults.clear()
    await pair.api.advance(1)
    assert (await pair.api.claim()).job.job_id == job_id


async def test_a_request_that_is_made_again_while_its_job_is_purged_makes_another_job(pair: Pair) -> None:
    request = make_request()
    await pair.other.complete(await pair.other.new_claim(request))
    pair.api.clock.advance(7 * 24 * 3600 - 1)
    pair.aws.counts.reset()
    pair.aws.faults.next("GetItem", FaultKind.DELAY)
    again = asyncio.create_task(pair.api.enqueue(request))
    await until(lambda: pair.aws.counts.calls["GetItem"] == 1, limit_seconds=20)
    pair.api.clock.advance(1)
    await pair.other.services.maintenance.run_once()
    pair.aws.faults.release()
    assert (await pair.other.jobs.get_job(await again)).state is JobState.SCHEDULED


async def test_what_the_tables_leave_undone_is_done_after_pauses(
    aws: StrictProxy, borrow_layout: BorrowLayout
) -> None:
    pauses, clock = PausesNoted(), ManualClock()
    layout = await borrow_layout()
    connection = Aws(options_of(aws.url), clock=pauses, policy=EXACT)
    async with make_services(
        AwsStore(connection, layout, clock, short_poll_seconds=0, watches_parts=False), clock
    ) as services:
        api = Api(jobs=services.jobs, events=services.events, clock=clock, services=services)
        await api.enqueue_many(5)
        aws.counts.reset()
        aws.faults.next("BatchGetItem", FaultKind.UNPROCESSED, times=2)
        held = await api.dequeue(max_jobs=5)
        assert len(held) == 5
        assert pauses.taken == [0.05, 0.1][: aws.counts.calls["BatchGetItem"] - 1] != []
        # Leftovers of a publish that was never acknowledged, cut otherwise than the next one.
        aws.faults.next("UpdateItem", FaultKind.SERVER_ERROR, times=ALL_TRIES)
        with pytest.raises(Unavailable):
            await api.publish(held[0], *(make_batch(first, first) for first in range(1, 21)))
        pauses.taken.clear()
        aws.faults.next("DeleteItem", FaultKind.THROTTLE, times=2)
        await api.publish(held[0], make_batch(1, 2), make_batch(3, 20))
        assert len(pauses.taken) == 2
        pauses.taken.clear()
        aws.faults.next("BatchWriteItem", FaultKind.UNPROCESSED, times=2)
        keys = [{"job_id": {"S": "none"}, "sequence": {"N": str(number)}} for number in range(20)]
        await connection.batch_write(layout.events_table, [{"DeleteRequest": {"Key": key}} for key in keys])
        assert pauses.taken == [0.05, 0.1][: aws.counts.calls["BatchWriteItem"] - 1] != []
    async with client("dynamodb", aws.url) as dynamodb:
        left = await dynamodb.scan(TableName=layout.events_table)
    assert sorted(int(item["sequence"]["N"]) for item in left["Items"]) == [1, 3]


async def test_an_entry_that_no_transaction_takes_is_refused_and_the_others_are_added(
    aws: StrictProxy, borrow_layout: BorrowLayout
) -> None:
    class Fussy(Aws):
        async def dynamodb(self, operation: str, **arguments: Any) -> dict[str, Any]:
            items = [action["Put"]["Item"] for action in arguments.get("TransactItems", ())]
            if any(item.get("queue") == {"S": "other"} for item in items):
                codes = [
                    "ValidationError" if item.get("queue") == {"S": "other"} else "None" for item in items
                ]
                raise TransactionCancelled([CancellationReason(code) for code in codes])
            return await super().dynamodb(operation, **arguments)

    clock, layout = ManualClock(), await borrow_layout()
    store = AwsStore(Fussy(options_of(aws.url)), layout, clock, short_poll_seconds=0, watches_parts=False)
    async with make_services(store, clock) as services:
        requests = [make_request(queue) for queue in (QUEUE, "other", QUEUE)]
        first, refused, last = await services.jobs.enqueue_jobs(requests)
        assert isinstance(first, Enqueued)
        assert isinstance(last, Enqueued)
        assert isinstance(refused, Refused)
        assert refused.code == "ValidationError"
        assert aws.counts.calls["TransactWriteItems"] == 1


async def test_a_pass_goes_round_all_shards_from_one_that_is_drawn_anew(
    aws: StrictProxy, borrow_layout: BorrowLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    class Overheard(Aws):
        async def dynamodb(self, operation: str, **arguments: Any) -> dict[str, Any]:
            if operation == "Query":
                asked.append(arguments["ExpressionAttributeValues"][":key"]["S"])
            return await super().dynamodb(operation, **arguments)

    clock = ManualClock()
    layout = replace(await borrow_layout(), listing_shards=4)
    store = AwsStore(Overheard(options_of(aws.url)), layout, clock, short_poll_seconds=0, watches_parts=False)
    async with make_services(store, clock) as services:
        monkeypatch.setattr(secrets, "randbelow", lambda shards: shards - 1)
        await services.maintenance.run_once()
    purges = [key for key in asked if key.startswith("purge#")]
    assert purges == ["purge#3", "purge#0", "purge#1", "purge#2"]
    assert f"open#{QUEUE}#3" in asked


async def test_a_pass_ends_in_time_and_the_next_ones_do_the_rest(
    aws: StrictProxy, borrow_layout: BorrowLayout
) -> None:
    real_clock, looks = ManualClock(), []

    class SlowAws(Aws):
        async def dynamodb(self, operation: str, **arguments: Any) -> dict[str, Any]:
            if "check_at <= :until" in arguments.get("KeyConditionExpression", ""):
                real_clock.advance(PASS_MS / 1000 / 2.5)
                looks.append(arguments)
            return await super().dynamodb(operation, **arguments)

    clock, lent = ManualClock(), await borrow_layout()
    layout = replace(lent, queues={QUEUE: lent.queues[QUEUE]}, listing_shards=4)
    store = AwsStore(SlowAws(options_of(aws.url)), layout, clock, short_poll_seconds=0, watches_parts=False)
    store._reconciler._real_clock = real_clock
    async with make_services(store, clock) as services:
        api = Api(jobs=services.jobs, events=services.events, clock=clock, services=services)
        await api.enqueue_many(8)
        for held in await api.dequeue(max_jobs=8):
            await api.complete(held)
        await store.maintain(Retention(), clock.now())
        clock.advance(8 * 24 * 3600)
        purged, passes = 0, 0
        while purged < 8:
            looks.clear()
            upkeep = await store.maintain(Retention(), clock.now())
            purged, passes = purged + upkeep.purged_jobs, passes + 1
            assert len(looks) == 3
            # One that got nothing done is not repeated at once.
            assert upkeep.has_more == bool(upkeep.purged_jobs)
        assert passes > 1


async def test_a_job_whose_bucket_is_gone_holds_up_no_purge_of_others(
    aws: StrictProxy, borrow_layout: BorrowLayout
) -> None:
    skipped, clock = Change(telemetry.maintenance_jobs_skipped), ManualClock()
    lent = await borrow_layout(bucket=True)
    layout = replace(lent, queues={QUEUE: lent.queues[QUEUE]}, listing_shards=1)
    async with make_services(make_store(aws.url, layout, clock), clock) as services:
        api = Api(jobs=services.jobs, events=services.events, clock=clock, services=services)
        large = await api.enqueue(make_request(params=JobParams(command="make", args=("x" * 400_000,))))
        small = await api.enqueue_many(3)
        for held in await api.dequeue(max_jobs=4):
            await api.complete(held)
    clock.advance(8 * 24 * 3600)
    store = make_store(aws.url, replace(layout, bucket="nowhere"), clock)
    async with make_services(store, clock) as services:
        with capture_logs() as logs:
            await services.maintenance.run_once()
            await services.maintenance.run_once()
        named = [entry["job_id"] for entry in logs if entry["event"] == "maintenance.job_skipped"]
        assert (named, skipped()) == ([large], 2)
        for job_id in small:
            with pytest.raises(JobNotFound):
                await store.get_life(job_id)
        assert (await store.get_life(large)).state.terminal
