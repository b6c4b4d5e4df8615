"""Calls while servers are away, hang, or lose their answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from airunner.client import AsyncClient, JobQuery
from airunner.domain.clock import SystemClock
from airunner.domain.errors import DeadlineExceeded, Unavailable
from airunner.domain.job import JobParams, JobState
from airunner.domain.retry import RetryPolicy
from airunner.services.composition import Services
from airunner.stores.memory import MemoryStore
from airunner.testing.conditions import until
from airunner.testing.factories import make_services
from tests.support.faulty_proxy import faulty_proxy, unused_url
from tests.support.serving import serve

QUEUE = "builds"
MAKE = JobParams(command="make")
IMPATIENT = RetryPolicy(first_seconds=0.001, max_seconds=0.005)


@pytest.fixture
async def services() -> AsyncIterator[Services]:
    clock = SystemClock()
    async with make_services(MemoryStore(clock), clock) as services:
        yield services


@pytest.fixture
async def url(services: Services) -> AsyncIterator[str]:
    async with serve(services) as url:
        yield url


async def test_a_dead_server_is_passed_over_once(url: str) -> None:
    async with faulty_proxy(unused_url()) as dead, AsyncClient(f"{dead.url}, {url}/") as client:
        for _ in range(3):
            await client.enqueue(MAKE)
        assert dead.connections == 1
        assert len((await client.list_jobs(JobQuery())).jobs) == 3


async def test_no_server_at_all(url: str) -> None:
    away = unused_url()
    async with AsyncClient([away, away + "/x"], retry=RetryPolicy(attempts=2, first_seconds=0.001)) as client:
        with pytest.raises(Unavailable, match=f"cannot connect to {away}"):
            await client.list_queues()
    async with AsyncClient(away, retry=IMPATIENT, timeout_seconds=0.2) as client:
        # The last try may itself be cut off by the time-out.
        with pytest.raises((Unavailable, DeadlineExceeded)):
            await client.list_queues()


async def test_a_server_that_comes_back_within_the_time_out(url: str) -> None:
    async with faulty_proxy(url) as proxy, AsyncClient(proxy.url, retry=IMPATIENT) as client:
        proxy.answer_limit = lambda: 0
        calling = asyncio.create_task(client.enqueue(MAKE))
        await until(lambda: proxy.connections >= 3)
        proxy.answer_limit = lambda: None
        made = await calling
        # Each try reached the server; they were all the same request.
        assert [job.job_id for job in (await client.list_jobs(JobQuery())).jobs] == [made.job_id]


async def test_a_long_poll_that_breaks_begins_anew(url: str, services: Services) -> None:
    async with faulty_proxy(url) as proxy, AsyncClient(proxy.url, retry=IMPATIENT) as client:
        made = await client.enqueue(MAKE)
        waiting = asyncio.create_task(client.wait_for_end(made.job_id))
        await until(lambda: made.job_id in services.notifier.jobs)
        before = proxy.connections
        proxy.reset_all()
        await until(lambda: proxy.connections > before)
        await services.jobs.cancel_job(made.job_id)
        async with asyncio.timeout(30):
            assert (await waiting).state is JobState.CANCELLED


async def test_a_dequeue_whose_answer_is_lost_is_not_repeated(url: str, services: Services) -> None:
    async with (
        faulty_proxy(url) as proxy,
        AsyncClient(url) as direct,
        AsyncClient(proxy.url, retry=IMPATIENT) as client,
    ):
        first, second = await direct.enqueue(MAKE, queue=QUEUE), await direct.enqueue(MAKE, queue=QUEUE)
        proxy.answer_limit = lambda: 0
        with pytest.raises(Unavailable, match="lost the connection"):
            await client.dequeue(QUEUE)
        assert proxy.connections == 1
        assert (await services.jobs.get_job(first.job_id)).state is JobState.RUNNING
        assert (await services.jobs.get_job(second.job_id)).state is JobState.SCHEDULED


async def test_a_dequeue_goes_elsewhere_when_nobody_can_have_claimed(url: str) -> None:
    async with AsyncClient([unused_url(), url]) as client:
        assert await client.dequeue(QUEUE, wait_seconds=0) == []
    clock = SystemClock()
    async with make_services(MemoryStore(clock), clock) as stopping, serve(stopping) as stopping_url:
        await stopping.stop()
        async with AsyncClient([stopping_url, url]) as client:
            await client.enqueue(MAKE, queue="elsewhere")
            assert await client.dequeue(QUEUE, wait_seconds=0) == []


async def test_a_server_that_hangs_costs_one_time_out(url: str) -> None:
    async with faulty_proxy(url) as mute, AsyncClient([mute.url, url], timeout_seconds=0.3) as client:
        mute.silent = True
        with pytest.raises(DeadlineExceeded):
            await client.list_queues()
        assert await client.list_queues() == []


async def test_a_closed_client_says_so(url: str) -> None:
    client = AsyncClient(url)
    await client.list_queues()
    await client.aclose()
    await client.aclose()
    with pytest.raises(RuntimeError, match="closed"):
        await client.list_queues()


async def test_a_server_without_tls_is_told_as_that(url: str) -> None:
    secure = url.replace("http://", "https://")
    async with AsyncClient([secure], retry=RetryPolicy(attempts=1)) as client:
        with pytest.raises(Unavailable, match=f"cannot connect to {secure}: TLS failed: [A-Z]"):
            await client.list_queues()
