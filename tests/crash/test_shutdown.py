"""A server that is told to stop, and a server that finds its folder taken."""

from __future__ import annotations

import asyncio
import signal

import pytest

from airunner.client import AsyncClient, DequeuedJob, UpdateRequest
from airunner.domain.errors import Unavailable
from airunner.domain.event import Event, ProcessStart
from airunner.domain.job import JobParams, JobState
from airunner.domain.retry import RetryPolicy
from airunner.testing.conditions import until
from tests.crash.crowd import Crowd
from tests.support.processes import LIMIT_SECONDS, Stack, unused_port


async def test_sigterm_ends_streams_and_long_polls_at_once(stack: Stack) -> None:
    server = await stack.start_server()
    async with AsyncClient(stack.url, retry=RetryPolicy(attempts=1)) as client:
        held = await held_job(client)
        seen: list[Event] = []
        stream = asyncio.create_task(read_events(client, held.job.job_id, seen))
        await until(lambda: bool(seen), limit_seconds=LIMIT_SECONDS)
        beat = UpdateRequest(
            queue="default",
            task_token=held.task_token,
            visibility_timeout_seconds=1000,
            wait_seconds=60,
            watched=True,
        )
        calls = [
            client.get_job(held.job.job_id, wait_seconds=60),
            client.update_job(beat),
            client.dequeue("empty", wait_seconds=20, worker_id="patient"),
        ]
        waiting = [stream, *map(asyncio.create_task, calls)]
        await until_waiting(client, held, "patient")

        server.send(signal.SIGTERM)

        assert await server.ended(limit_seconds=10) == 0
        for call in waiting:
            with pytest.raises(Unavailable, match="the server is shutting down"):
                await call


async def test_everybody_goes_on_at_a_restarted_server(crowd: Crowd) -> None:
    assert crowd.stack.server
    worker = await crowd.stack.start_worker("steady")
    gate = crowd.stack.folder / "gate"
    job_id = await crowd.submit(crowd.talk(60, hold_at=30, hold_file=gate), watchers=3)
    end = asyncio.create_task(crowd.end_of(job_id))
    await until(lambda: crowd.events_seen >= 90, limit_seconds=LIMIT_SECONDS)

    crowd.stack.server.send(signal.SIGTERM)
    assert await crowd.stack.server.ended(limit_seconds=10) == 0
    gate.touch()
    await crowd.stack.start_server()
    jobs = await crowd.finish()

    assert await end == jobs[job_id]
    assert (jobs[job_id].state, jobs[job_id].attempt) == (JobState.COMPLETED, 1)
    assert crowd.reconnections >= 3
    assert worker.exit_code is None


async def test_a_second_server_on_a_folder_says_so_and_the_first_goes_on(stack: Stack) -> None:
    first = await stack.start_server()
    second = stack.launch_server(port=unused_port())

    assert await second.ended() not in {0, None}
    assert f"another server uses {stack.data_dir}" in second.printed()
    assert "Traceback" not in second.printed()
    async with stack.client() as client:
        await client.enqueue(JobParams(command="true"))
    assert first.exit_code is None


async def held_job(client: AsyncClient) -> DequeuedJob:
    """A job that this test holds, with an event for its watchers."""
    await client.enqueue(JobParams(command="true"))
    (held,) = await client.dequeue(worker_id="holder")
    event = Event(sequence=1, timestamp=held.job.created_at, data=ProcessStart(pid=1, started_at=1))
    await client.publish_events(held.task_token, [event])
    return held


async def read_events(client: AsyncClient, job_id: str, seen: list[Event]) -> None:
    async for event in client.monitor(job_id):
        seen.append(event)  # noqa: PERF401  each at once


async def until_waiting(client: AsyncClient, held: DequeuedJob, worker_id: str) -> None:
    """Wait until the server has heard the heartbeat and the worker, and so all that was asked before."""
    async with asyncio.timeout(LIMIT_SECONDS):
        while (await client.get_job(held.job.job_id)).life.visible_until <= held.job.life.visible_until:
            pass
        while worker_id not in {worker.worker_id for worker in await client.list_workers()}:
            pass
