"""What each operation of the production store asks of AWS, call by call: this is what it costs."""

from __future__ import annotations

import pytest

from airunner.domain.answers import Enqueued
from airunner.domain.batching import Batcher
from airunner.domain.event import StreamType
from airunner.domain.execution import BatchingConfig
from airunner.domain.job import JobParams, JobState
from airunner.domain.requests import StreamRequest
from airunner.testing.factories import make_batch, make_request, make_success
from tests.support.metering import Metered

pytest_plugins = ("tests.support.metering",)

LINES = 10_000
BATCH = 50


async def test_a_job_is_one_transaction_one_message_and_the_mark_that_it_was_sent(metered: Metered) -> None:
    await metered.api.enqueue()
    assert await metered.calls() == {"TransactWriteItems": 1, "SendMessage": 1, "UpdateItem": 1}


async def test_a_hundred_jobs_are_two_transactions_and_ten_sends(metered: Metered) -> None:
    await metered.api.jobs.enqueue_jobs([make_request() for _ in range(100)])
    assert await metered.calls() == {"TransactWriteItems": 2, "SendMessageBatch": 10, "UpdateItem": 100}


@pytest.mark.parametrize(
    ("count", "size", "transactions"), [(1, 5_000, 1), (40, 5_000, 2), (20, 340_000, 10)]
)
async def test_parameters_that_a_row_does_not_hold_come_in_its_transaction(
    metered: Metered, count: int, size: int, transactions: int
) -> None:
    params = JobParams(command="make", args=("x" * size,))
    outcomes = await metered.api.jobs.enqueue_jobs([make_request(params=params) for _ in range(count)])
    assert all(isinstance(outcome, Enqueued) for outcome in outcomes)
    calls = await metered.calls()
    assert (calls["TransactWriteItems"], "PutItem" in calls) == (transactions, False)
    assert metered.items_written == 3 * count + calls["UpdateItem"]


async def test_a_repeated_enqueue_reads_the_job_and_sends_again(metered: Metered) -> None:
    request = make_request()
    await metered.api.enqueue(request)
    await metered.begin()
    await metered.api.enqueue(request)
    assert await metered.calls() == {"TransactWriteItems": 1, "GetItem": 1, "SendMessage": 1}


async def test_ten_jobs_are_claimed_with_one_receive_and_one_read(metered: Metered) -> None:
    await metered.api.jobs.enqueue_jobs([make_request() for _ in range(10)])
    await metered.begin()
    assert len(await metered.api.dequeue(max_jobs=10)) == 10
    assert await metered.calls() == {
        "ReceiveMessage": 1,
        "BatchGetItem": 1,
        "UpdateItem": 10,
        "ChangeMessageVisibilityBatch": 1,
    }


async def test_an_empty_queue_costs_one_receive(metered: Metered) -> None:
    assert await metered.api.dequeue(max_jobs=10) == []
    assert await metered.calls() == {"ReceiveMessage": 1}


async def test_a_batch_is_one_item_and_one_write_of_the_row(metered: Metered) -> None:
    held = await metered.api.new_claim()
    await metered.begin()
    for first in range(1, 5 * BATCH, BATCH):
        await metered.api.publish(held, make_batch(first, first + BATCH - 1))
    assert await metered.calls() == {"PutItem": 5, "UpdateItem": 5}


async def test_a_publish_that_is_repeated_costs_a_read(metered: Metered) -> None:
    held = await metered.api.new_claim()
    await metered.api.publish(held, make_batch(1, BATCH))
    await metered.begin()
    await metered.api.publish(held, make_batch(1, BATCH))
    assert await metered.calls() == {"GetItem": 1}


async def test_a_beat_is_one_write_of_the_row_and_one_of_the_message(metered: Metered) -> None:
    held = await metered.api.new_claim()
    await metered.begin()
    await metered.api.beat(held)
    assert await metered.calls() == {"UpdateItem": 1, "ChangeMessageVisibilityBatch": 1}


async def test_an_end_with_last_events_is_one_item_one_row_and_one_message(metered: Metered) -> None:
    held = await metered.api.new_claim()
    await metered.begin()
    await metered.api.complete(held, make_success(final_sequence=3), make_batch(1, 3))
    # The second write lets the request expire.
    assert await metered.calls() == {"PutItem": 1, "UpdateItem": 2, "DeleteMessageBatch": 1}


async def test_a_release_is_one_row_and_one_message(metered: Metered) -> None:
    held = await metered.api.new_claim()
    await metered.begin()
    await metered.api.release(held)
    assert await metered.calls() == {"UpdateItem": 1, "ChangeMessageVisibilityBatch": 1}


async def test_ten_thousand_lines_that_nobody_watches_are_two_hundred_items(metered: Metered) -> None:
    held = await metered.api.new_claim()
    batcher, now = Batcher(BatchingConfig()), metered.api.clock.now()
    await metered.begin()
    flushes = batcher.add_output([b"line %d\n" % number for number in range(LINES)], StreamType.STDOUT, now)
    for flush in [*flushes, *batcher.close(now)]:
        await metered.api.publish(held, *flush.events)
    calls = await metered.calls()
    assert calls.keys() == {"PutItem", "UpdateItem"}
    assert calls["PutItem"] <= 205
    assert metered.items_written == calls["PutItem"] + calls["UpdateItem"]
    assert len(await metered.api.stored(held.job.job_id)) == LINES


async def test_a_replay_reads_only_what_comes_after(metered: Metered) -> None:
    held = await metered.api.new_claim()
    batches = [make_batch(first, first + BATCH - 1) for first in range(1, LINES, BATCH)]
    for start in range(0, len(batches), 20):
        await metered.api.publish(held, *batches[start : start + 20])
    assert await metered.api.complete(held) is JobState.COMPLETED
    await metered.begin()
    request = StreamRequest(job_id=held.job.job_id, from_sequence=9_000, follow=False)
    events = await metered.api.read(request)
    calls = await metered.calls()
    assert [event.sequence for event in events] == list(range(9_000, LINES + 1))
    assert metered.items_read - calls["GetItem"] <= 22
