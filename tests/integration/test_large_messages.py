"""Calls that carry more than a server takes at once, on a real server and a real connection."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import pytest

from airunner.client import AsyncClient
from airunner.client.http.base import HttpAnswer, Target
from airunner.client.http.pool import ConnectionPool
from airunner.codec import methods
from airunner.domain.answers import DequeuedJob, Enqueued
from airunner.domain.clock import SystemClock
from airunner.domain.errors import MessageTooLarge
from airunner.domain.event import Event, Output
from airunner.domain.job import JobParams, JobState
from airunner.domain.requests import CompleteRequest, DequeueRequest
from airunner.domain.retry import RetryPolicy
from airunner.server.asgi import AppOptions
from airunner.stores.memory import MemoryStore
from airunner.testing.conformance.stores.backend import QUEUE
from airunner.testing.factories import NOON, make_batch, make_request, make_services, make_success
from airunner.worker.completion import Completer
from tests.support.serving import serve

SMALL_SERVER = 64 * 1024
LARGE = "x" * 100_000
LIMIT_SECONDS = 20


@pytest.fixture
async def client() -> AsyncIterator[AsyncClient]:
    """A client of a server that takes less than clients count on."""
    options, clock = AppOptions(no_auth=True, max_message_bytes=SMALL_SERVER), SystemClock()
    async with (
        make_services(MemoryStore(clock), clock) as services,
        serve(services, options) as url,
        AsyncClient(url) as opened,
    ):
        yield opened


class CountingPool(ConnectionPool):
    """Remembers how many bytes each call with completions has."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    async def send(self, target: Target, body: bytes = b"", *, timeout_ms: int) -> HttpAnswer:
        if target.path == methods.COMPLETE_JOBS.path:
            self.sizes.append(len(body))
        return await super().send(target, body, timeout_ms=timeout_ms)


@pytest.fixture
async def counted() -> AsyncIterator[tuple[AsyncClient, list[int]]]:
    """A client of a server that takes what clients count on, and the sizes of its calls with completions."""
    clock, pool = SystemClock(), CountingPool()
    async with (
        make_services(MemoryStore(clock), clock) as services,
        serve(services, AppOptions(no_auth=True)) as url,
        AsyncClient(url, transport=pool) as client,
    ):
        yield client, pool.sizes
        await pool.aclose()


def large_result(number: int) -> CompleteRequest:
    result = make_success(output_json='"' + chr(0xE9) * 250_000 + f'{number}"')
    return CompleteRequest(task_token="", result=result)


def much_output(_: int) -> CompleteRequest:
    lines = [Output(os.urandom(1000)) for _ in range(500)]
    events = [Event(sequence=at, timestamp=NOON, data=line) for at, line in enumerate(lines, 1)]
    return CompleteRequest(task_token="", result=make_success(final_sequence=500), events=events)


async def claimed(client: AsyncClient, count: int) -> list[DequeuedJob]:
    await client.enqueue_jobs([make_request(QUEUE) for _ in range(count)])
    return list(await client.dequeue_jobs(DequeueRequest(queue=QUEUE, max_jobs=count)))


async def settle(client: AsyncClient, *ends: CompleteRequest) -> None:
    """Report ends as a worker does, which never gives up by itself."""
    async with asyncio.timeout(LIMIT_SECONDS):
        await Completer(client, SystemClock(), RetryPolicy(first_seconds=0.01)).complete(ends)


async def test_what_is_too_large_fails_alone(client: AsyncClient) -> None:
    texts = ("a", LARGE, "b" * 40_000, "c" * 40_000)
    requests = [make_request(params=JobParams(command="make", args=(text,))) for text in texts]
    outcomes = await client.enqueue_jobs(requests)
    assert [type(outcome) for outcome in outcomes] == [Enqueued, MessageTooLarge, Enqueued, Enqueued]


async def test_one_that_is_too_large_is_said_to_be(client: AsyncClient) -> None:
    with pytest.raises(MessageTooLarge, match="larger than configured max 65536"):
        await client.enqueue(JobParams(command="make", args=(LARGE,)), queue=QUEUE)


@pytest.mark.parametrize("end", [large_result, much_output])
async def test_large_completions_are_several_calls(
    counted: tuple[AsyncClient, list[int]], end: Callable[[int], CompleteRequest]
) -> None:
    client, sizes = counted
    held = await claimed(client, 8)
    ends = [replace(end(number), task_token=one.task_token) for number, one in enumerate(held)]
    await client.complete_jobs(ends)
    assert len(sizes) == 2
    assert max(sizes) <= 3.1 * 1024 * 1024 < sum(sizes)
    ended = [await client.get_job(one.job.job_id) for one in held]
    assert [job.result for job in ended] == [one.result for one in ends]


async def test_a_job_whose_end_is_too_large_fails_with_the_reason_and_its_log(client: AsyncClient) -> None:
    small, large = await claimed(client, 2)
    results = [make_success(), make_success(final_sequence=50, output_json=f'"{LARGE}"')]
    ends = [
        CompleteRequest(task_token=small.task_token, result=results[0]),
        CompleteRequest(task_token=large.task_token, result=results[1], events=[make_batch(1, 50)]),
    ]
    await settle(client, *ends)
    assert (await client.get_job(small.job.job_id)).state is JobState.COMPLETED
    ended = await client.get_job(large.job.job_id)
    assert ended.state is JobState.FAILED
    assert ended.result is not None
    assert ended.result.error_message == (
        "the server refused the result: message is larger than configured max 65536"
    )
    assert ended.result.final_sequence == ended.life.last_sequence == 50


async def test_a_job_whose_last_events_are_too_large_ends_without_them(client: AsyncClient) -> None:
    (held,) = await claimed(client, 1)
    event = Event(sequence=1, timestamp=NOON, data=Output(os.urandom(100_000)))
    end = CompleteRequest(task_token=held.task_token, result=make_success(final_sequence=1), events=[event])
    await settle(client, end)
    assert (await client.get_job(held.job.job_id)).state is JobState.FAILED
