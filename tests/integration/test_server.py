"""The server around the services: guard, health, vanishing clients, shutdown."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator

import pytest
from connectrpc.errors import ConnectError

from airunner.client import AsyncClient, UpdateRequest
from airunner.codec.gen.job.v1 import job_pb2 as pb
from airunner.codec.gen.job.v1.job_connect import JobEventsServiceClient, JobServiceClient
from airunner.domain.clock import SystemClock
from airunner.domain.errors import Unavailable
from airunner.domain.job import JobParams, JobState
from airunner.domain.limits import is_loopback
from airunner.domain.retry import RetryPolicy
from airunner.server.asgi import AppOptions
from airunner.services.composition import Services
from airunner.services.periodic import Periodic
from airunner.stores.memory import MemoryStore
from airunner.testing.clock import ManualClock
from airunner.testing.conditions import until
from airunner.testing.factories import make_services
from tests.support.http_client import HttpClient
from tests.support.serving import serve


@pytest.fixture
async def services() -> AsyncIterator[Services]:
    clock = SystemClock()
    async with make_services(MemoryStore(clock), clock) as opened:
        yield opened


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"host": "localhost:8080"}, 200),
        ({"host": "[::1]:8080"}, 200),
        ({"host": "evil.example"}, 403),
        ({"host": "127.0.0.1.evil.example"}, 403),
        ({"origin": "http://127.0.0.1:8080"}, 200),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
    ],
)
async def test_without_auth_only_this_machine_may_call(
    services: Services, headers: dict[str, str], status: int
) -> None:
    async with serve(services) as url:
        assert (await HttpClient().get(f"{url}/healthz", headers=headers)).status == status


async def test_health_names_the_loops_that_make_no_progress() -> None:
    clock, hanging = ManualClock(), asyncio.Event()
    services = make_services(MemoryStore(clock), clock)
    services.add_loop(
        Periodic("more", hanging.wait, clock=clock, interval_seconds=1, failure_event="", at_once=True)
    )
    async with services, serve(services) as url:
        assert await _health(url) == (200, {"status": "ok"})
        clock.advance(121)
        assert await _health(url) == (503, {"status": "stuck", "loops": ["more"]})
        hanging.set()
        await until(lambda: not services.stuck_loops)
        assert await _health(url) == (200, {"status": "ok"})


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True), ("10.0.0.1", False)],
)
def test_what_counts_as_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


async def test_services_can_be_served_apart(services: Services) -> None:
    async with serve(services, AppOptions(no_auth=True, services=["events"])) as url:
        with pytest.raises(ConnectError, match=r"404|Not Found|unimplemented"):
            await JobServiceClient(url).list_queues(pb.ListQueuesRequest())
        with pytest.raises(ConnectError, match="no such job"):
            await _watch(JobEventsServiceClient(url), str(uuid.uuid4()))


async def test_a_client_that_vanishes_while_it_waits_costs_nothing(services: Services) -> None:
    async with serve(services) as url:
        jobs = JobServiceClient(url)
        for call in (_wait_unary, _wait_stream):
            vanishing = asyncio.create_task(call(JobServiceClient(url)))
            await until(lambda: services.dispatcher.waiting == 1)
            vanishing.cancel()
            await asyncio.wait([vanishing])
            await until(lambda: services.dispatcher.waiting == 0)
        await jobs.enqueue_job(_enqueue())
        taken = (await jobs.dequeue_jobs(pb.DequeueJobsRequest(queue="builds"))).jobs[0].job
        assert (taken.attempt, taken.handed_back) == (1, 0)


async def test_shutdown_ends_long_polls_and_streams_at_once(services: Services) -> None:
    async with serve(services) as url:
        jobs = JobServiceClient(url)
        job_id = (await jobs.enqueue_job(_enqueue("other"))).job_id
        calls = [
            asyncio.create_task(_wait_unary(jobs)),
            asyncio.create_task(_wait_stream(jobs)),
            asyncio.create_task(_watch(JobEventsServiceClient(url), job_id)),
            asyncio.create_task(_await_end(jobs, job_id)),
        ]
        await until(lambda: services.dispatcher.waiting == 2 and services.watchers.watched(job_id))
        await services.stop()
        async with asyncio.timeout(10):
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert all("shutting down" in str(outcome) for outcome in outcomes), outcomes
        assert (await HttpClient().get(f"{url}/readyz")).status == 503


async def test_a_call_that_comes_after_the_shutdown_began_does_not_wait(services: Services) -> None:
    async with serve(services) as url, AsyncClient(url, retry=RetryPolicy(attempts=1)) as client:
        job_id = (await client.enqueue(JobParams(command="make"))).job_id
        (held,) = await client.dequeue()
        await services.stop()
        beat = UpdateRequest(queue=held.job.queue, task_token=held.task_token, wait_seconds=60)
        async with asyncio.timeout(10):
            with pytest.raises(Unavailable, match="shutting down"):
                await client.get_job(job_id, wait_seconds=60)
            with pytest.raises(Unavailable, match="shutting down"):
                await client.update_job(beat)
        assert (await client.get_job(job_id)).state is JobState.RUNNING


async def _health(url: str) -> tuple[int, object]:
    answer = await HttpClient().get(f"{url}/healthz")
    return answer.status, json.loads(answer.content)


def _enqueue(queue: str = "builds") -> pb.EnqueueJobRequest:
    return pb.EnqueueJobRequest(
        request_id=str(uuid.uuid4()), queue=queue, job_params=pb.JobParams(command="make")
    )


async def _wait_unary(jobs: JobServiceClient) -> object:
    return await jobs.dequeue_jobs(pb.DequeueJobsRequest(queue="builds", wait_seconds=20))


async def _wait_stream(jobs: JobServiceClient) -> object:
    return [
        answer async for answer in jobs.dequeue_job(pb.DequeueJobRequest(queue="builds", wait_seconds=20))
    ]


async def _watch(events: JobEventsServiceClient, job_id: str) -> object:
    return [event async for event in events.stream_job_events(pb.StreamJobEventsRequest(job_id=job_id))]


async def _await_end(jobs: JobServiceClient, job_id: str) -> object:
    return await jobs.get_job(pb.GetJobRequest(job_id=job_id, wait_seconds=60))
