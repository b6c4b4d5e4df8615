"""Parameters and results that are gone, or refused to the server: one job's trouble, under the right code."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import structlog

from airunner import telemetry
from airunner.client import AsyncClient
from airunner.domain.answers import DequeuedJob
from airunner.domain.errors import FailedPrecondition, InternalError, JobNotFound
from airunner.domain.event import ProcessEnd
from airunner.domain.job import JobParams, JobState
from airunner.domain.listing import JobQuery
from airunner.domain.requests import StreamRequest
from airunner.reading.why.explain import explain
from airunner.reading.why.facts import gather_facts
from airunner.services.caller import Caller, current_caller
from airunner.services.composition import ServiceRules
from airunner.stores.aws.layout import Layout
from airunner.testing.clock import ManualClock
from airunner.testing.conditions import until
from airunner.testing.conformance.stores.backend import QUEUE, Api
from airunner.testing.factories import (
    NEVER_SECONDS,
    make_batch,
    make_end,
    make_request,
    make_services,
    make_start,
    make_success,
)
from tests.acceptance.command_line import CommandLine
from tests.doubles.aws.faults import FaultKind
from tests.doubles.aws.strict import StrictProxy
from tests.support.aws import client
from tests.support.aws_stores import BorrowLayout, make_store
from tests.support.scraping import Change
from tests.support.serving import serve

pytest_plugins = ("tests.support.aws",)

BESIDE, IN_BUCKET = 5_000, 400_000
RULES = ServiceRules(maintenance_interval_seconds=NEVER_SECONDS)


class Deployment:
    """A platform on AWS, and somebody who deletes what is beside its rows."""

    def __init__(self, api: Api, layout: Layout, url: str) -> None:
        self.api = api
        self.layout = layout
        self._url = url

    async def enqueue(self, size: int) -> str:
        params = JobParams(command="make", args=("x" * size,))
        return await self.api.enqueue(make_request(params=params))

    async def end(self, size: int) -> DequeuedJob:
        """Let a job print three lines and end, with parameters and a result of a size."""
        params = JobParams(command="make", args=("x" * size,))
        held = await self.api.new_claim(make_request(params=params))
        result = make_success(output_json='"' + "x" * size + '"', final_sequence=5)
        digest = hashlib.sha256(b"line 2\nline 3\nline 4\n").digest()
        end = make_end(5)
        assert isinstance(end.data, ProcessEnd)
        end = replace(end, data=replace(end.data, event_count=4, output_sha256=digest))
        await self.api.complete(held, result, make_start(), make_batch(2, 4), end)
        return held

    async def lose_payloads(self) -> None:
        async with client("s3", self._url) as s3:
            listed = await s3.list_objects_v2(Bucket=self.layout.bucket)
            for entry in listed.get("Contents", ()):
                await s3.delete_object(Bucket=self.layout.bucket, Key=entry["Key"])
        async with client("dynamodb", self._url) as dynamodb:
            table = self.layout.jobs_table
            for item in (await dynamodb.scan(TableName=table, ProjectionExpression="job_id"))["Items"]:
                if item["job_id"]["S"].startswith(("params#", "result#")):
                    await dynamodb.delete_item(TableName=table, Key=item)


@pytest.fixture
async def deployment(aws: StrictProxy, borrow_layout: BorrowLayout) -> AsyncIterator[Deployment]:
    clock = ManualClock()
    layout = await borrow_layout(bucket=True)
    async with make_services(make_store(aws.url, layout, clock), clock, RULES) as services:
        api = Api(jobs=services.jobs, events=services.events, clock=clock, services=services)
        yield Deployment(api, layout, aws.url)


@contextmanager
def bound_to(*queues: str) -> Iterator[None]:
    """Let calls of this task be those of a key that is bound to queues."""
    token = current_caller.set(Caller(queues=frozenset(queues)))
    try:
        yield
    finally:
        current_caller.reset(token)


async def test_parameters_that_are_gone_are_the_trouble_of_their_job(deployment: Deployment) -> None:
    lost = [await deployment.enqueue(size) for size in (BESIDE, IN_BUCKET)]
    await deployment.lose_payloads()
    jobs, texts = deployment.api.jobs, []
    for job_id in lost:
        with pytest.raises(FailedPrecondition) as refused:
            await jobs.get_job(job_id)
        texts.append(refused.value.text)
    assert texts == [f"the parameters of this job are gone from the {where}" for where in ("table", "bucket")]
    # Nobody gets a job without its parameters, and no try is used.
    assert await deployment.api.dequeue(max_jobs=10) == []
    good = await deployment.enqueue(10)
    assert [held.job.job_id for held in await deployment.api.dequeue(max_jobs=10)] == [good]
    unreadable = Change(telemetry.store_rows_unreadable)
    with structlog.testing.capture_logs() as logs:
        for query in (JobQuery(queue=QUEUE), JobQuery()):
            listed = [(job.job_id, job.abridged, job.attempt) for job in (await jobs.list_jobs(query)).jobs]
            assert listed == [(good, False, 1), *((job_id, True, 0) for job_id in reversed(lost))]
    assert unreadable("payload") == 4
    # They were named when they were first asked for.
    assert [entry for entry in logs if entry["log_level"] == "error"] == []
    for job_id, queues in zip(lost, ((), (QUEUE,)), strict=True):
        with bound_to(*queues):
            job = await jobs.cancel_job(job_id)
        assert (job.state, job.abridged, job.params) == (JobState.CANCELLED, True, JobParams())


async def test_a_result_that_is_gone_keeps_the_job_from_nothing_else(deployment: Deployment) -> None:
    ended = []
    for size in (BESIDE, IN_BUCKET):
        held, result = await deployment.api.new_claim(), make_success(output_json='"' + "x" * size + '"')
        await deployment.api.complete(held, result)
        ended.append((held, result))
    await deployment.lose_payloads()
    for held, result in ended:
        with pytest.raises(FailedPrecondition, match=r"^the result of this job is gone from the "):
            await deployment.api.job(held)
        assert (await deployment.api.jobs.cancel_job(held.job.job_id)).state is JobState.COMPLETED
        with pytest.raises(FailedPrecondition):
            await deployment.api.complete(held, result)
    for job in (await deployment.api.jobs.list_jobs(JobQuery())).jobs:
        assert (job.state, job.abridged, job.params) == (JobState.COMPLETED, True, held.job.params)
    await deployment.api.advance(8 * 24 * 3600)
    assert not (await deployment.api.jobs.list_jobs(JobQuery())).jobs


async def test_a_purge_that_took_the_parameters_first_leaves_no_such_job(
    deployment: Deployment, aws: StrictProxy
) -> None:
    job_id = await deployment.enqueue(IN_BUCKET)
    await deployment.lose_payloads()
    aws.counts.reset()
    aws.faults.next("GetObject", FaultKind.DELAY)
    asking = asyncio.create_task(deployment.api.jobs.get_job(job_id))
    await until(lambda: aws.counts.calls["GetObject"] == 1, limit_seconds=20)
    async with client("dynamodb", deployment._url) as dynamodb:
        key = {"job_id": {"S": job_id}}
        await dynamodb.delete_item(TableName=deployment.layout.jobs_table, Key=key)
    aws.faults.release()
    with pytest.raises(JobNotFound):
        await asking


async def test_a_bucket_that_is_away_or_refused_spoils_no_list_and_no_cancel(
    aws: StrictProxy, deployment: Deployment
) -> None:
    job_id = await deployment.enqueue(IN_BUCKET)
    aws.faults.next("GetObject", FaultKind.SERVER_ERROR, times=20)
    (listed,) = (await deployment.api.jobs.list_jobs(JobQuery())).jobs
    assert (listed.job_id, listed.abridged) == (job_id, True)
    assert (await deployment.api.jobs.cancel_job(job_id)).state is JobState.CANCELLED
    aws.faults.clear()
    # Who may not list a bucket is told nothing else of what is missing.
    await deployment.lose_payloads()
    aws.conditions.may_list_objects = False
    with pytest.raises(FailedPrecondition, match=r"are gone from the bucket, or the server may not read it$"):
        await deployment.api.jobs.get_job(job_id)
    (listed,) = (await deployment.api.jobs.list_jobs(JobQuery())).jobs
    assert (listed.job_id, listed.abridged) == (job_id, True)
    elsewhere = replace(deployment.layout, bucket="another-bucket")
    clock = deployment.api.clock
    async with make_services(make_store(aws.url, elsewhere, clock), clock, RULES) as services:
        with structlog.testing.capture_logs() as logs:
            await services.jobs.list_jobs(JobQuery())
        named = [entry for entry in logs if entry["event"] == "store.row_unreadable"]
        assert [(entry["kind"], entry["key"]) for entry in named] == [("payload", job_id)]
        (listed,) = (await services.jobs.list_jobs(JobQuery())).jobs
        assert (listed.job_id, listed.abridged) == (job_id, True)
        with pytest.raises(InternalError):
            await services.jobs.get_job(job_id)


async def test_what_a_job_without_its_payloads_printed_is_there(
    deployment: Deployment, tmp_path: Path
) -> None:
    job_id = (await deployment.end(IN_BUCKET)).job.job_id
    await deployment.lose_payloads()
    async with serve(deployment.api.services) as url:
        person = CommandLine(folder=tmp_path, variables={"AIRUNNER_SERVER": url})

        async def ask(*arguments: str) -> tuple[int, str, str]:
            done = await asyncio.to_thread(person.run, *arguments, job_id)
            return done.returncode, done.stdout.decode(), done.stderr.decode()

        logs, tail, monitor, why, get = await asyncio.gather(
            ask("logs"),
            ask("logs", "--tail", "2"),
            ask("monitor", "--verify", "--from-sequence", "1"),
            ask("why", "--json"),
            ask("get"),
        )
    assert logs == (0, "line 2\nline 3\nline 4\n", "")
    assert tail == (0, "line 3\nline 4\n", "")
    assert monitor[:2] == (0, "line 2\nline 3\nline 4\n")
    assert "complete: 5 events" in monitor[2]
    told = json.loads(why[1])
    assert (told["state"], told["reason"]) == ("COMPLETED", "completed")
    assert told["answer"] == "It is COMPLETED; its result cannot be read."
    assert [entry["kind"] for entry in told["entries"]] == ["enqueued", "begun", "ended", "finished"]
    assert (get[0], get[1]) == (1, "")
    assert get[2] == "airunner: the result of this job is gone from the bucket\n"


async def test_why_tells_that_a_job_waits_for_its_parameters(deployment: Deployment) -> None:
    job_id = await deployment.enqueue(IN_BUCKET)
    await deployment.lose_payloads()
    # Somebody serves the queue, and gets it nevertheless not.
    assert await deployment.api.dequeue() == []
    api = deployment.api
    told = explain(await gather_facts(api.jobs, api.events, job_id, api.clock))
    assert (told.reason.value, told.text) == (
        "unreadable",
        "It waits because its parameters cannot be read, so that no worker gets it.",
    )


async def test_a_bound_key_reads_the_events_of_such_a_job_and_of_no_other_queue(
    deployment: Deployment,
) -> None:
    job_id = (await deployment.end(IN_BUCKET)).job.job_id
    await deployment.lose_payloads()
    requests = [
        StreamRequest(job_id=job_id, follow=False),
        StreamRequest(job_id=job_id, attempt=1, follow=False),
    ]
    with bound_to(QUEUE):
        for request in requests:
            assert len(await deployment.api.read(request)) == 5
        assert (await deployment.api.jobs.get_job(job_id, abridge=True)).abridged
    with bound_to("other"):
        for request in requests:
            with pytest.raises(JobNotFound):
                await deployment.api.read(request)
        for abridge in (False, True):
            with pytest.raises(JobNotFound):
                await deployment.api.jobs.get_job(job_id, abridge=abridge)


async def test_a_client_watches_such_a_job_to_its_end(deployment: Deployment) -> None:
    held = await deployment.api.new_claim(
        make_request(params=JobParams(command="make", args=("x" * BESIDE,)))
    )
    job_id = held.job.job_id
    await deployment.api.publish(held, make_start())
    await deployment.lose_payloads()
    async with serve(deployment.api.services) as url, AsyncClient(url) as client:
        waiting = asyncio.create_task(client.get_job(job_id, wait_seconds=60, abridge=True))
        seen = []
        async for events in client.monitor(StreamRequest(job_id=job_id, from_sequence=1)):
            seen.append(events.sequence)
            if events.sequence == 1:
                await deployment.api.complete(held, make_success(final_sequence=2), make_end(2))
        assert seen == [1, 2]
        job = await waiting
    assert (job.state, job.abridged, job.params) == (JobState.COMPLETED, True, JobParams())
    assert job.result
    assert job.result.final_sequence == 2
