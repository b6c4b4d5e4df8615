"""Payloads at the boundaries of row, item and bucket: kept, read, linked, refused and removed."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

import aiohttp
import pytest

from airunner.codec.jobs import decode_params, decode_result, encode_params, encode_result
from airunner.domain.answers import Enqueued
from airunner.domain.errors import (
    AlreadyExists,
    FailedPrecondition,
    InvalidArgument,
    JobNotFound,
    Unavailable,
)
from airunner.domain.event import Position
from airunner.domain.job import JobParams, JobResult, JobState
from airunner.domain.listing import JobQuery
from airunner.domain.requests import CompleteRequest, EnqueueRequest
from airunner.domain.retry import RetryPolicy
from airunner.services.composition import ServiceRules
from airunner.stores.aws.layout import Layout
from airunner.stores.aws.store import AwsStore
from airunner.stores.records import EventQuery, Retention
from airunner.testing.clock import ManualClock
from airunner.testing.conditions import until
from airunner.testing.conformance.stores.backend import QUEUE, Api
from airunner.testing.factories import NEVER_SECONDS, make_batch, make_request, make_services, make_success
from airunner.worker.completion import Completer
from tests.doubles.aws.emulator import EmulatorProcess
from tests.doubles.aws.faults import Fault, FaultKind
from tests.doubles.aws.strict import StrictAws, StrictProxy
from tests.support.aws import client
from tests.support.aws_stores import BorrowLayout, make_store
from tests.support.serving import serve

pytest_plugins = ("tests.support.aws",)

IN_ROW = 4 * 1024
IN_ITEM = 350 * 1024
MOST = 1024 * 1024
DAY_SECONDS = 24 * 3600
RULES = ServiceRules(
    maintenance_interval_seconds=NEVER_SECONDS, retention=Retention(jobs_ms=DAY_SECONDS * 1000)
)


class Deployment:
    """A platform on AWS, and what it left there."""

    def __init__(self, api: Api, layout: Layout, url: str) -> None:
        self.api = api
        self.layout = layout
        self._url = url

    async def kept(self) -> tuple[list[str], list[str]]:
        """Return the keys of payload items and of objects."""
        async with client("dynamodb", self._url) as dynamodb:
            answer = await dynamodb.scan(TableName=self.layout.jobs_table, ProjectionExpression="job_id")
        keys = [item["job_id"]["S"] for item in answer["Items"]]
        items = sorted(key for key in keys if key.startswith(("params#", "result#")))
        if not self.layout.bucket:
            return items, []
        async with client("s3", self._url) as s3:
            listed: dict[str, Any] = await s3.list_objects_v2(Bucket=self.layout.bucket)
        return items, [entry["Key"] for entry in listed.get("Contents", ())]

    async def settled(self) -> None:
        """Wait for what follows the answers."""
        store = self.api.services.store
        assert isinstance(store, AwsStore)
        await store._background_tasks.finish()

    @asynccontextmanager
    async def rival(self, url: str = "") -> AsyncIterator[Api]:
        """Open another server on the same tables and bucket, if wanted by another way."""
        store = make_store(url or self._url, self.layout, self.api.clock)
        async with make_services(store, self.api.clock, RULES) as services:
            yield Api(jobs=services.jobs, events=services.events, clock=self.api.clock, services=services)


@asynccontextmanager
async def _deployment(aws: StrictProxy, layout: Layout) -> AsyncIterator[Deployment]:
    clock = ManualClock()
    async with make_services(make_store(aws.url, layout, clock), clock, RULES) as services:
        api = Api(jobs=services.jobs, events=services.events, clock=clock, services=services)
        yield Deployment(api, layout, aws.url)


@pytest.fixture
async def deployment(aws: StrictProxy, borrow_layout: BorrowLayout) -> AsyncIterator[Deployment]:
    async with _deployment(aws, await borrow_layout(bucket=True)) as opened:
        yield opened


@pytest.fixture
async def bare(aws: StrictProxy, borrow_layout: BorrowLayout) -> AsyncIterator[Deployment]:
    """The same without a bucket."""
    async with _deployment(aws, await borrow_layout()) as opened:
        yield opened


@pytest.mark.parametrize(
    ("size", "in_item", "in_bucket"),
    [
        (IN_ROW, False, False),
        (IN_ROW + 1, True, False),
        (IN_ITEM, True, False),
        (IN_ITEM + 1, False, True),
        (MOST, False, True),
    ],
)
async def test_parameters_are_whole_wherever_their_size_puts_them(
    deployment: Deployment, size: int, in_item: bool, in_bucket: bool
) -> None:
    request = sized(size)
    held = await deployment.api.new_claim(request)
    assert held.job.params == request.params
    assert (await deployment.api.job(held)).params == request.params
    items, objects = await deployment.kept()
    assert items == ([f"params#{held.job.job_id}"] if in_item else [])
    assert objects == ([f"jobs/{held.job.job_id}/params"] if in_bucket else [])


async def test_a_byte_more_than_a_mebibyte_is_refused_and_not_kept(deployment: Deployment) -> None:
    with pytest.raises(InvalidArgument, match="job_params must have at most 1048576 bytes, not 1048577"):
        await deployment.api.enqueue(sized(MOST + 1))
    assert await deployment.kept() == ([], [])


async def test_without_a_bucket_what_fits_no_item_is_refused_and_not_kept(bare: Deployment) -> None:
    assert await bare.api.enqueue(sized(IN_ITEM))
    before = await bare.kept()
    with pytest.raises(InvalidArgument, match=r"need a bucket \(store.s3.bucket\)"):
        await bare.api.enqueue(sized(IN_ITEM + 1))
    assert await bare.kept() == before
    assert len(await bare.api.jobs.list_queues()) == 1


async def test_what_is_in_the_bucket_can_be_read_from_a_link(deployment: Deployment) -> None:
    request = sized(MOST)
    job_id = await deployment.api.enqueue(request)
    assert not (await deployment.api.jobs.get_job(job_id)).params_url
    job = await deployment.api.jobs.get_job(job_id, want_payload_urls=True)
    assert job.params == request.params
    assert not job.result_url
    async with aiohttp.ClientSession() as session, session.get(job.params_url) as answer:
        assert answer.status == 200
        assert decode_params(await answer.read()) == request.params


@pytest.mark.parametrize(
    ("size", "in_item", "in_bucket"),
    [
        (IN_ROW, False, False),
        (IN_ROW + 1, True, False),
        (IN_ITEM, True, False),
        (IN_ITEM + 1, False, True),
    ],
)
async def test_a_result_is_whole_wherever_its_size_puts_it(
    deployment: Deployment, size: int, in_item: bool, in_bucket: bool
) -> None:
    held = await deployment.api.new_claim()
    result = sized_result(size)
    assert await deployment.api.complete(held, result) is JobState.COMPLETED
    assert (await deployment.api.job(held)).result == result
    items, objects = await deployment.kept()
    assert [key.startswith(f"result#{held.job.job_id}#1-") for key in items] == [True] * in_item
    assert [key.startswith(f"jobs/{held.job.job_id}/result-1-") for key in objects] == [True] * in_bucket


async def test_the_largest_result_can_be_read_whole_and_from_a_link(deployment: Deployment) -> None:
    held = await deployment.api.new_claim()
    result = make_success(output_json='"' + "x" * (MOST - 2) + '"')
    await deployment.api.complete(held, result)
    job = await deployment.api.jobs.get_job(held.job.job_id, want_payload_urls=True)
    assert job.result == result
    assert not job.params_url
    async with aiohttp.ClientSession() as session, session.get(job.result_url) as answer:
        assert answer.status == 200
        assert decode_result(await answer.read()) == result
    assert not (await deployment.api.job(held)).result_url


async def test_a_large_end_is_one_object_and_one_row_and_is_not_read_back(
    deployment: Deployment, aws: StrictProxy
) -> None:
    held = await deployment.api.new_claim()
    aws.counts.reset()
    await deployment.api.complete(held, sized_result(MOST))
    await deployment.api.services.store.read_events(EventQuery(job_id=held.job.job_id, after=Position(0, 0)))
    asked = ("PutObject", "GetObject", "PutItem", "UpdateItem")
    assert [aws.counts.calls[operation] for operation in asked] == [1, 0, 0, 2]


async def test_a_large_end_may_be_repeated_but_not_replaced(deployment: Deployment) -> None:
    held = await deployment.api.new_claim()
    result = sized_result(MOST)
    for _ in range(2):
        assert await deployment.api.complete(held, result) is JobState.COMPLETED
    before = await deployment.kept()
    with pytest.raises(FailedPrecondition):
        await deployment.api.complete(held, sized_result(MOST, letter="y"))
    assert await deployment.kept() == before
    assert (await deployment.api.job(held)).result == result


@pytest.mark.parametrize("size", [IN_ITEM, MOST])
async def test_the_end_that_loses_leaves_nothing_behind(deployment: Deployment, size: int) -> None:
    held = await deployment.api.new_claim()
    # So that the one remembers the job as running when the other has ended it.
    await deployment.api.publish(held, make_batch(1, 1))
    async with deployment.rival() as rival:
        result = sized_result(size)
        await rival.complete(held, result)
        before = await deployment.kept()
        with pytest.raises(FailedPrecondition):
            await deployment.api.complete(held, sized_result(size, letter="y"))
    assert await deployment.kept() == before
    assert (await deployment.api.job(held)).result == result


@pytest.mark.parametrize("size", [IN_ITEM, MOST])
async def test_the_same_end_told_to_two_servers_keeps_its_result(deployment: Deployment, size: int) -> None:
    held = await deployment.api.new_claim()
    await deployment.api.publish(held, make_batch(1, 1))
    result = sized_result(size)
    async with deployment.rival() as rival:
        for api in (rival, deployment.api):
            assert await api.complete(held, result) is JobState.COMPLETED
    assert (await deployment.api.job(held)).result == result


async def test_who_loses_to_a_heartbeat_and_dies_leaves_the_other_the_result(
    deployment: Deployment, aws: StrictProxy, strict_aws: StrictAws
) -> None:
    held = await deployment.api.new_claim()
    result = sized_result(MOST)
    async with strict_aws.proxy() as way, deployment.rival(way.url) as rival:
        await rival.publish(held, make_batch(1, 1))
        await deployment.api.beat(held)
        aws.counts.reset()
        aws.faults.next("UpdateItem", FaultKind.DELAY)
        ending = asyncio.create_task(deployment.api.complete(held, result))
        await until(lambda: aws.counts.calls["UpdateItem"] == 1, limit_seconds=20)
        # It puts the same object, is refused for a heartbeat it has not heard of, and does one thing more.
        way.faults.die_after(3, executed=True)
        with pytest.raises(Unavailable):
            await rival.complete(held, result)
        aws.faults.release()
        assert await ending is JobState.COMPLETED
        way.faults.revive()
    assert (await deployment.api.job(held)).result == result


async def test_without_a_bucket_a_result_that_fits_no_item_is_refused_and_not_kept(bare: Deployment) -> None:
    held = await bare.api.new_claim()
    with pytest.raises(InvalidArgument, match=r"need a bucket \(store.s3.bucket\)"):
        await bare.api.complete(held, sized_result(IN_ITEM + 1))
    assert await bare.kept() == ([], [])
    assert await bare.api.complete(held, sized_result(IN_ITEM)) is JobState.COMPLETED


async def test_a_worker_whose_result_fits_nowhere_ends_its_job_with_the_reason_and_a_whole_log(
    bare: Deployment,
) -> None:
    held = await bare.api.new_claim()
    result = replace(sized_result(IN_ITEM + 1), final_sequence=50)
    end = CompleteRequest(task_token=held.task_token, result=result, events=[make_batch(1, 50)])
    completer = Completer(bare.api.jobs, bare.api.clock, RetryPolicy(first_seconds=0))
    await completer.complete([end])
    job = await bare.api.job(held)
    assert job.state is JobState.FAILED
    assert job.result is not None
    assert job.result.error_message.startswith("the server refused the result: more than 358400 bytes")
    assert len(await bare.api.stored(held.job.job_id)) == 50


async def test_the_command_line_shows_links(deployment: Deployment) -> None:
    job_id = await deployment.api.enqueue(sized(MOST))
    async with serve(deployment.api.services) as url:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "airunner.cli", "get", job_id, "--json", "--server", url),
            stdout=asyncio.subprocess.PIPE,
        )
        said, _ = await process.communicate()
    document = json.loads(said)
    assert document["params_url"].startswith("http")
    assert document["params_url"].partition("?")[0].endswith(f"/jobs/{job_id}/params")
    assert document["result_url"] == ""


async def test_the_command_line_shows_the_link_of_a_result(deployment: Deployment) -> None:
    held = await deployment.api.new_claim()
    await deployment.api.complete(held, sized_result(MOST))
    async with serve(deployment.api.services) as url:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "airunner.cli", "get", held.job.job_id, "--json", "--server", url),
            stdout=asyncio.subprocess.PIPE,
        )
        said, _ = await process.communicate()
    address = json.loads(said)["result_url"].partition("?")[0]
    assert f"/jobs/{held.job.job_id}/result-1-" in address


async def test_what_is_in_the_tables_has_no_link(deployment: Deployment) -> None:
    job_id = await deployment.api.enqueue(sized(IN_ITEM))
    assert not (await deployment.api.jobs.get_job(job_id, want_payload_urls=True)).params_url


@pytest.mark.parametrize(
    "hidden",
    [
        {"environment": {"KEY": "hunter2"}, "secret_names": ("KEY",)},
        {"repository_url": "https://user:hunter2@git.example/r.git"},
    ],
)
async def test_secrets_are_never_linked(deployment: Deployment, hidden: dict[str, Any]) -> None:
    params = JobParams(command="make", args=("x" * IN_ITEM,), **hidden)
    job_id = await deployment.api.enqueue(make_request(params=params))
    assert (await deployment.kept())[1] == [f"jobs/{job_id}/params"]
    assert not (await deployment.api.jobs.get_job(job_id, want_payload_urls=True)).params_url


@pytest.mark.parametrize("size", [IN_ROW + 1, MOST])
async def test_the_purge_deletes_objects_and_leaves_items_to_their_time(
    deployment: Deployment, size: int
) -> None:
    held = await deployment.api.new_claim(sized(size))
    await deployment.api.complete(held, sized_result(size))
    items, objects = await deployment.kept()
    assert [key for key in (*items, *objects) if f"{held.job.job_id}#1-" in key or "/result-1-" in key]
    assert len(items) + len(objects) == 2
    await deployment.settled()
    await deployment.api.advance(DAY_SECONDS + 1)
    assert await deployment.kept() == (items, [])
    rows = deployment.api.services.store._rows  # type: ignore[attr-defined]  # of the AwsStore
    kept = await rows.read_many(items)
    assert all(int(item["ttl"]["N"]) > deployment.api.clock.now() // 1000 for item in kept.values())


async def test_a_purge_that_fails_for_a_job_is_finished_by_the_next(
    deployment: Deployment, aws: StrictProxy
) -> None:
    held = await deployment.api.new_claim(sized(MOST))
    await deployment.api.complete(held)
    await deployment.api.complete(other := await deployment.api.new_claim())
    aws.faults.add(Fault(operation="DeleteObject", kind=FaultKind.SERVER_ERROR))
    await deployment.api.advance(DAY_SECONDS + 1)
    aws.faults.clear()
    assert (await deployment.kept())[1] == [f"jobs/{held.job.job_id}/params"]
    assert (await deployment.api.job(held)).state.terminal
    with pytest.raises(JobNotFound):
        await deployment.api.job(other)
    await deployment.api.advance(1)
    assert (await deployment.kept())[1] == []
    with pytest.raises(JobNotFound):
        await deployment.api.job(held)


@pytest.mark.parametrize("executed", [False, True])
@pytest.mark.parametrize("calls", [1, 2])
async def test_a_server_that_dies_while_it_enqueues_leaves_no_parameters_without_a_job(
    deployment: Deployment, aws: StrictProxy, calls: int, executed: bool
) -> None:
    # The first job of a queue needs a call more.
    small = await deployment.api.enqueue()
    await deployment.api.complete(await deployment.api.claim())
    await deployment.settled()
    aws.faults.die_after(calls, executed=executed)
    with suppress(Unavailable):
        await deployment.api.enqueue(sized(IN_ITEM))
    await deployment.settled()
    aws.faults.revive()
    jobs = (await deployment.api.jobs.list_jobs(JobQuery(queue=QUEUE))).jobs
    assert (await deployment.kept())[0] == [f"params#{job.job_id}" for job in jobs if job.job_id != small]


async def test_requests_that_are_known_are_told_from_large_ones_that_are_not(deployment: Deployment) -> None:
    known = [sized(IN_ROW + 1), make_request(), sized(IN_ITEM)]
    before = [await deployment.api.enqueue(request) for request in known]
    fresh = [sized(IN_ITEM), make_request(), sized(IN_ROW + 1)]
    mixed = [request for pair in zip(fresh, known, strict=True) for request in pair]
    outcomes = await deployment.api.jobs.enqueue_jobs(mixed)
    added = [outcome.job_id for outcome in outcomes if isinstance(outcome, Enqueued)]
    assert added[1::2] == before
    jobs = [await deployment.api.jobs.get_job(job_id) for job_id in added]
    assert [job.params for job in jobs] == [request.params for request in mixed]
    assert len(set(added)) == len(mixed) == 2 + len((await deployment.kept())[0])


@pytest.mark.parametrize("size", [IN_ITEM, MOST])
async def test_a_repeated_request_leaves_nothing_of_its_own(
    aws: StrictProxy, borrow_layout: BorrowLayout, size: int
) -> None:
    request = sized(size)
    async with _deployment(aws, await borrow_layout(bucket=True)) as deployment:
        job_id = await deployment.api.enqueue(request)
        before = await deployment.kept()
        assert await deployment.api.enqueue(request) == job_id
        with pytest.raises(AlreadyExists):
            await deployment.api.enqueue(sized(size, request_id=request.request_id, letter="y"))
    assert await deployment.kept() == before


async def test_a_bucket_that_throttles_only_delays_a_claim(deployment: Deployment, aws: StrictProxy) -> None:
    job_id = await deployment.api.enqueue(sized(MOST))
    aws.faults.next("GetObject", FaultKind.THROTTLE)
    assert (await deployment.api.claim()).job.job_id == job_id
    assert aws.counts.calls["GetObject"] == 2


async def test_a_bucket_that_is_away_costs_a_job_no_attempt(
    deployment: Deployment, aws: StrictProxy, emulator: EmulatorProcess
) -> None:
    job_id = await deployment.api.enqueue(sized(MOST))
    aws.faults.add(Fault(operation="GetObject", kind=FaultKind.RESET))
    with pytest.raises(Unavailable):
        await deployment.api.dequeue()
    aws.faults.clear()
    life = (await deployment.api.jobs.get_job(job_id)).life
    assert (life.state, life.attempt) == (JobState.SCHEDULED, 0)
    # Its message shows again by itself.
    emulator.advance(31)
    assert (await deployment.api.claim()).job.attempt == 1


def sized(size: int, *, request_id: str = "", letter: str = "x") -> EnqueueRequest:
    """Return a wish whose encoded parameters have exactly so many bytes."""
    text = letter * (size - len(encode_params(JobParams(command="make", args=("",)))))
    while True:
        params = JobParams(command="make", args=(text,))
        excess = len(encode_params(params)) - size
        if not excess:
            return make_request(params=params, request_id=request_id)
        text = text[:-excess]


def sized_result(size: int, letter: str = "x") -> JobResult:
    """Return a success whose encoding has exactly so many bytes."""
    text = letter * (size - len(encode_result(make_success(output_json='""'))))
    while True:
        result = make_success(output_json=f'"{text}"')
        excess = len(encode_result(result)) - size
        if not excess:
            return result
        text = text[:-excess]
