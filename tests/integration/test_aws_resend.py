"""Messages for jobs that wait: nobody is forgotten, and nobody is sent for again and again."""

from __future__ import annotations

from typing import Any

import pytest
import structlog

from airunner import telemetry
from airunner.domain.job import JobState
from airunner.stores.aws.upkeep import resend
from airunner.testing.conformance.stores.backend import QUEUE
from airunner.testing.factories import make_request
from tests.doubles.aws.faults import FaultKind
from tests.support.aws import client
from tests.support.metering import Metered

pytest_plugins = ("tests.support.metering",)

HOUR = 3600
DAY = 24 * HOUR
LATER = 6 * HOUR + 1
ALL_TRIES = 4


async def lose_messages(metered: Metered, count: int | None = None) -> None:
    """Let messages of the queue vanish, all of them or so many."""
    await metered.settle()
    url = metered.store._messages.url(QUEUE)
    async with client("sqs", metered.aws.url) as sqs:
        if count is None:
            await sqs.purge_queue(QueueUrl=url)
            return
        for _ in range(count):
            answer = await sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=1)
            (message,) = answer["Messages"]
            await sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])


async def row_of(metered: Metered, job_id: str) -> dict[str, Any]:
    return (await metered.store._rows.read_many([job_id]))[job_id]


async def look(metered: Metered, seconds: float) -> dict[str, int]:
    """Let time pass, then look after all jobs; return what that asked but for the looks themselves."""
    await metered.begin()
    await metered.api.advance(seconds)
    calls = await metered.calls()
    return {name: count for name, count in calls.items() if name not in ("Query", "BatchGetItem")}


async def test_a_job_that_merely_waits_is_not_sent_again(metered: Metered) -> None:
    jobs = await metered.api.enqueue_many(3)
    for _ in range(2):
        assert await look(metered, LATER) == {"GetQueueAttributes": 1, "UpdateItem": 3}
    assert await look(metered, HOUR) == {}
    held = await metered.api.dequeue(max_jobs=10)
    assert sorted(one.job.job_id for one in held) == sorted(jobs)
    assert await metered.api.dequeue() == []


async def test_a_job_of_a_paused_queue_is_not_sent_again(metered: Metered) -> None:
    job_id = await metered.api.enqueue()
    await metered.api.jobs.set_paused(QUEUE, paused=True)
    await lose_messages(metered)
    assert await look(metered, LATER) == {"UpdateItem": 1}
    await metered.api.jobs.set_paused(QUEUE, paused=False)
    assert (await look(metered, LATER))["SendMessage"] == 1
    assert (await metered.api.claim()).job.job_id == job_id


@pytest.mark.slow
async def test_lost_messages_are_sent_in_tens_with_one_write_for_each_job(metered: Metered) -> None:
    jobs = await metered.api.enqueue_many(24)
    await lose_messages(metered)
    calls = await look(metered, LATER)
    assert calls["UpdateItem"] == 24
    assert calls["GetQueueAttributes"] == 1
    # Jobs of one shard go together.
    assert calls["SendMessageBatch"] + calls.get("SendMessage", 0) <= 24 / 10 + 2
    held = [one for _ in range(6) for one in await metered.api.dequeue(max_jobs=10)]
    assert sorted(one.job.job_id for one in held) == sorted(jobs)


async def test_only_as_many_are_sent_as_are_missing(metered: Metered) -> None:
    await metered.api.enqueue_many(5)
    # Jobs that are due in a long time have no message yet, and need none.
    await metered.api.jobs.enqueue_jobs([make_request(delay_seconds=30 * DAY) for _ in range(4)])
    await lose_messages(metered, 2)
    sent = []
    send = metered.store._messages.send

    async def overheard(queue: str, wakes: Any) -> list[bool]:
        sent.extend(wakes)
        return await send(queue, wakes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metered.store._messages, "send", overheard)
        assert (await look(metered, LATER))["UpdateItem"] == 5
    assert len(sent) == 2
    assert await look(metered, 60) == {}


async def test_a_job_whose_send_failed_is_sent_after_a_minute_whatever_the_queue_has(
    metered: Metered,
) -> None:
    metered.aws.faults.next("SendMessage", FaultKind.THROTTLE, times=ALL_TRIES)
    job_id = await metered.api.enqueue()
    assert await look(metered, 59) == {}
    # It fails once more: the next look comes in a minute again.
    metered.aws.faults.next("SendMessage", FaultKind.THROTTLE, times=ALL_TRIES)
    assert await look(metered, 1) == {"SendMessage": ALL_TRIES, "UpdateItem": 1}
    assert await look(metered, 59) == {}
    assert await look(metered, 1) == {"SendMessage": 1, "UpdateItem": 1}
    assert (await metered.api.claim()).job.job_id == job_id


async def test_a_message_that_sqs_soon_forgets_is_sent_anew(metered: Metered) -> None:
    job_id = await metered.api.enqueue()
    await metered.settle()
    sent_at = metered.api.clock.now()
    await look(metered, LATER)
    # Its first look does not make the message any younger.
    assert (await row_of(metered, job_id))["sent_at"] == {"N": str(sent_at)}
    assert "SendMessage" not in await look(metered, 6 * DAY)
    assert (await look(metered, 7 * DAY))["SendMessage"] == 1
    assert (await row_of(metered, job_id))["sent_at"] == {"N": str(metered.api.clock.now())}


@pytest.mark.slow
async def test_a_job_with_a_long_delay_is_sent_when_it_is_due(metered: Metered) -> None:
    await metered.api.enqueue(make_request(delay_seconds=10 * HOUR))
    assert await look(metered, 10 * HOUR - 1) == {}
    assert await look(metered, 1) == {"SendMessage": 1, "UpdateItem": 1}
    assert await look(metered, LATER) == {"GetQueueAttributes": 1, "UpdateItem": 1}


@pytest.mark.slow
async def test_who_cannot_be_judged_is_looked_at_in_a_minute(metered: Metered) -> None:
    await metered.api.enqueue_many(2)
    metered.aws.faults.next("GetQueueAttributes", FaultKind.SERVER_ERROR, times=2 * ALL_TRIES)
    calls = await look(metered, LATER)
    assert calls["UpdateItem"] == 2
    assert "SendMessage" not in calls
    metered.aws.faults.clear()
    assert await look(metered, 60) == {"GetQueueAttributes": 1, "UpdateItem": 2}


@pytest.mark.slow
async def test_a_deep_queue_is_not_counted(metered: Metered, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resend, "_DEEP", 2)
    await metered.api.enqueue_many(4)
    await lose_messages(metered, 2)
    assert await look(metered, LATER) == {"GetQueueAttributes": 1, "UpdateItem": 4}
    monkeypatch.setattr(resend, "_DEEP", 3)
    calls = await look(metered, LATER)
    assert calls.get("SendMessage", 0) + calls.get("SendMessageBatch", 0) > 0


async def test_a_holder_that_comes_back_and_dies_again_is_missed_soon(metered: Metered) -> None:
    held = await metered.api.new_claim()
    await metered.api.lapse(60)
    # By now it was sent for, and the next look is hours away. Its holder revives; nobody else has come.
    await metered.api.beat(held)
    await lose_messages(metered)
    await metered.api.lapse(60)
    (again,) = await metered.api.dequeue()
    assert (again.job.job_id, again.job.attempt) == (held.job.job_id, 2)


async def test_a_job_that_is_given_back_is_sent_for_once(metered: Metered) -> None:
    held = await metered.api.new_claim()
    await metered.api.release(held)
    await lose_messages(metered)
    assert await look(metered, 60) == {"SendMessage": 1, "UpdateItem": 1}
    assert await look(metered, LATER) == {"GetQueueAttributes": 1, "UpdateItem": 1}
    assert (await metered.api.job(held)).state is JobState.SCHEDULED


async def test_a_failed_write_is_of_one_job_and_named(
    metered: Metered, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, *good = await metered.api.enqueue_many(4)
    await lose_messages(metered)
    update = metered.store._rows.update

    async def fails(job_id: str, *arguments: Any) -> Any:
        if job_id == bad:
            raise RuntimeError("a surprise")
        return await update(job_id, *arguments)

    monkeypatch.setattr(metered.store._rows, "update", fails)
    counted: list[float] = []
    monkeypatch.setattr(telemetry.maintenance_jobs_skipped, "add", counted.append)
    with structlog.testing.capture_logs() as logs:
        calls = await look(metered, LATER)
        await look(metered, 60)
    assert calls["UpdateItem"] == len(good)
    assert counted == [1, 1]
    named = [entry["job_id"] for entry in logs if entry["event"] == "maintenance.job_skipped"]
    assert named == [bad]


async def test_an_entry_that_the_index_has_twice_is_one_job(
    metered: Metered, monkeypatch: pytest.MonkeyPatch
) -> None:
    await metered.api.enqueue_many(2)
    dynamodb = metered.store._aws.dynamodb

    async def doubled(operation: str, **arguments: Any) -> dict[str, Any]:
        answer = await dynamodb(operation, **arguments)
        return answer | {"Items": answer["Items"] * 2} if "Items" in answer else answer

    monkeypatch.setattr(metered.store._aws, "dynamodb", doubled)
    assert await look(metered, LATER) == {"GetQueueAttributes": 1, "UpdateItem": 2}
