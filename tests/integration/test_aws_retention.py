"""What an ended job leaves behind: it expires by itself, and is gone for everybody once it is purged."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from airunner.domain.answers import DequeuedJob
from airunner.domain.errors import NotFound, Unavailable
from airunner.domain.event import Position
from airunner.domain.job import JobParams, JobState
from airunner.domain.listing import JobQuery
from airunner.stores.aws.layout import sentinel_key
from airunner.stores.aws.wakeups import Wake
from airunner.stores.records import EventQuery, Retention
from airunner.testing.conformance.stores.backend import QUEUE
from airunner.testing.factories import make_batch, make_request, make_success
from tests.support.metering import Metered

pytest_plugins = ("tests.support.metering",)

DAY = 24 * 3600
KEPT, GRACE = 7 * DAY, 2 * DAY
# More than a row holds itself.
LARGE = "x" * 5_000


async def ended(metered: Metered, request: Any = None) -> DequeuedJob:
    """A job that ended with parameters, a result and output, and all that follows its end."""
    held = await metered.api.new_claim(request or large_request())
    result = make_success(final_sequence=3, output_json=f'"{LARGE}"')
    await metered.api.complete(held, result, make_batch(1, 3))
    await metered.settle()
    return held


def large_request() -> Any:
    return make_request(params=JobParams(command="make", args=(LARGE,)))


async def items_of(metered: Metered, held: DequeuedJob) -> dict[str, dict[str, Any]]:
    """The items of a job that are in the table, by their kinds."""
    rows = metered.store._rows
    job = (await rows.read_many([held.job.job_id]))[held.job.job_id]
    request = sentinel_key(held.job.principal, held.job.request_id)
    keys = {"request": request, "params": job["params_place"]["S"], "result": job["result_place"]["S"]}
    items = await rows.read_many(list(keys.values()))
    return {"job": job} | {kind: items[key] for kind, key in keys.items() if key in items}


async def unset(metered: Metered, *keys: str) -> None:
    """Take the time of expiry away: a server of the version before has ended the job, or died over it."""
    for key in keys:
        await metered.store._aws.dynamodb(
            "UpdateItem",
            TableName=metered.store._layout.jobs_table,
            Key={"job_id": {"S": key}},
            UpdateExpression="REMOVE #ttl",
            ExpressionAttributeNames={"#ttl": "ttl"},
        )


async def expiries(metered: Metered, held: DequeuedJob) -> dict[str, int]:
    """When the items of a job expire, in seconds from now."""
    now = metered.api.clock.now() // 1000
    return {kind: int(item["ttl"]["N"]) - now for kind, item in (await items_of(metered, held)).items()}


async def assert_gone(metered: Metered, held: DequeuedJob) -> None:
    """Fail if anybody can still see a job."""
    job_id, store = held.job.job_id, metered.store
    lookups: list[Callable[[], Awaitable[Any]]] = [
        lambda: store.get_job(job_id),
        lambda: store.get_life(job_id),
        lambda: store.read_events(EventQuery(job_id=job_id, after=Position(1, 0))),
        lambda: store.cancel_job(job_id, metered.api.clock.now()),
        lambda: metered.api.complete(held),
        lambda: metered.api.beat(held),
    ]
    for look in lookups:
        with pytest.raises(NotFound):
            await look()
    for query in (JobQuery(queue=QUEUE), JobQuery(queue=QUEUE, state=JobState.COMPLETED)):
        assert job_id not in [job.job_id for job in (await store.list_jobs(query)).jobs]
    assert await store.read_marks([job_id]) == {}
    assert not (await store.link_payloads(job_id, 60)).params_url


async def test_the_end_lets_all_of_a_job_expire(metered: Metered) -> None:
    held = await ended(metered)
    assert await expiries(metered, held) == dict.fromkeys(
        ("job", "request", "params", "result"), KEPT + GRACE
    )


async def test_an_open_job_never_expires(metered: Metered) -> None:
    held = await metered.api.new_claim(large_request())
    await metered.api.release(held, error="later")
    items = await metered.store._rows.read_many([held.job.job_id, f"params#{held.job.job_id}"])
    assert [item for item in items.values() if "ttl" in item] == []
    assert len(items) == 2


@pytest.mark.slow
async def test_a_purge_is_one_write_for_a_job(metered: Metered) -> None:
    await metered.api.advance(KEPT)
    held = [await ended(metered, make_request()) for _ in range(3)]
    await metered.begin()
    await metered.api.advance(KEPT)
    calls = await metered.calls()
    assert calls["UpdateItem"] == len(held)
    assert not calls.keys() & {"DeleteItem", "BatchWriteItem", "PutItem", "GetItem"}


async def test_a_purged_job_is_gone_for_everybody_and_its_request_is_a_new_one(metered: Metered) -> None:
    request = large_request()
    held = await ended(metered, request)
    await metered.api.advance(KEPT - 1)
    assert await metered.api.enqueue(request) == held.job.job_id
    await metered.api.advance(1)
    await assert_gone(metered, held)
    assert set((await expiries(metered, held)).values()) == {GRACE}
    # Nothing of what was the job's own stays in the row.
    assert not (await items_of(metered, held))["job"].keys() & {
        "job_params",
        "result",
        "list_key",
        "check_key",
    }
    await metered.begin()
    again = await metered.api.enqueue(request)
    assert again != held.job.job_id
    assert await metered.calls() == {"TransactWriteItems": 1, "SendMessage": 1, "UpdateItem": 1}
    # The request is the new job's now, and stays.
    (sentinel,) = (
        await metered.store._rows.read_many([sentinel_key("anonymous", request.request_id)])
    ).values()
    assert (sentinel["target"], "ttl" in sentinel) == ({"S": again}, False)
    assert await metered.api.enqueue(request) == again


async def test_an_expired_job_is_gone_though_no_purge_has_come(metered: Metered) -> None:
    request = large_request()
    held = await ended(metered, request)
    metered.api.clock.advance(KEPT + GRACE - 1)
    assert (await metered.api.job(held)).state is JobState.COMPLETED
    metered.api.clock.advance(1)
    await assert_gone(metered, held)
    assert await metered.api.enqueue(request) != held.job.job_id


async def test_what_a_server_of_the_version_before_left_expires_by_the_purge(metered: Metered) -> None:
    held = await ended(metered)
    items = await items_of(metered, held)
    await unset(metered, *(item["job_id"]["S"] for item in items.values()))
    await metered.api.advance(KEPT)
    await assert_gone(metered, held)
    assert await expiries(metered, held) == dict.fromkeys(items, GRACE)


async def test_what_could_not_be_said_at_the_end_is_said_by_the_purge(metered: Metered) -> None:
    request = large_request()
    held = await metered.api.new_claim(request)
    await metered.settle()
    result = make_success(output_json=f'"{LARGE}"')
    update, calls = metered.store._aws.dynamodb, 0

    async def fails_from_the_second(operation: str, **arguments: Any) -> Any:
        nonlocal calls
        calls += operation == "UpdateItem"
        if operation == "UpdateItem" and calls > 1:
            raise Unavailable("away")
        return await update(operation, **arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metered.store._aws, "dynamodb", fails_from_the_second)
        # The answer of the end does not wait for it, and is none the worse.
        assert await metered.api.complete(held, result) is JobState.COMPLETED
        await metered.settle()
    items = await items_of(metered, held)
    assert {kind for kind, item in items.items() if "ttl" in item} == {"job", "result"}
    await metered.api.advance(KEPT)
    assert set((await expiries(metered, held)).values()) == {GRACE}
    assert await metered.api.enqueue(request) != held.job.job_id


@pytest.mark.slow
async def test_a_shorter_retention_holds_for_what_ended_before(metered: Metered) -> None:
    request = large_request()
    held = await ended(metered, request)
    metered.api.clock.advance(2)
    upkeep = await metered.store.maintain(Retention(jobs_ms=1000), metered.api.clock.now())
    # With the first job of the queue.
    assert upkeep.purged_jobs == 2
    await assert_gone(metered, held)
    assert set((await expiries(metered, held)).values()) == {GRACE}
    assert await metered.api.enqueue(request) != held.job.job_id


async def test_a_request_whose_row_is_gone_is_a_new_one(metered: Metered) -> None:
    # DynamoDB deletes what expired in any order, and clocks differ.
    request = large_request()
    held = await ended(metered, request)
    await metered.store._aws.dynamodb(
        "DeleteItem", TableName=metered.store._layout.jobs_table, Key={"job_id": {"S": held.job.job_id}}
    )
    again = await metered.api.enqueue(request)
    assert again != held.job.job_id
    assert await metered.api.enqueue(request) == again


async def test_messages_of_a_purged_job_are_deleted(metered: Metered) -> None:
    held = await ended(metered, make_request())
    await metered.api.advance(KEPT)
    await metered.settle()
    await metered.store._messages.send(QUEUE, [Wake(held.job.job_id, 2)])
    assert await metered.api.dequeue() == []
    assert (await metered.calls())["DeleteMessageBatch"] >= 1
