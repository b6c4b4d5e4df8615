"""A real server with less room than its callers want: jobs that run go on, and nobody else's call hangs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from airunner.client import AsyncClient
from airunner.domain.errors import Overloaded
from airunner.domain.job import JobParams, JobState
from airunner.domain.requests import DequeueRequest
from airunner.domain.retry import RetryPolicy
from airunner.testing.conditions import until
from tests.support.processes import LIMIT_SECONDS, Stack, running_stack

VISIBILITY_SECONDS = 3
JOBS = 4
WAITING = DequeueRequest(queue="nothing", wait_seconds=1)
ROOM = {"AIRUNNER_LIMITS__MAX_WAITING_CALLS": "2", "AIRUNNER_LIMITS__MAX_MESSAGE_BYTES": "2097152"}


@pytest.fixture
async def crowded(tmp_path: Path) -> AsyncIterator[Stack]:
    async with running_stack(tmp_path, ROOM) as stack:
        yield stack


@pytest.mark.slow
async def test_running_jobs_live_on_a_server_that_holds_no_more_calls(crowded: Stack) -> None:
    server = await crowded.start_server()
    assert "server.small_messages" in server.printed()
    options = ("--concurrency", str(JOBS), "--visibility-timeout", str(VISIBILITY_SECONDS))
    await crowded.start_worker("busy", *options)
    async with crowded.client() as client, impatient(crowded) as other:
        params = JobParams(command="sleep", args=(str(VISIBILITY_SECONDS + 1),))
        job_ids = [(await client.enqueue(params)).job_id for _ in range(JOBS)]
        refused = 0
        for _ in range(VISIBILITY_SECONDS):
            # There are places for two of these, and then none for heartbeats.
            dequeues = [other.dequeue_jobs(WAITING) for _ in range(3)]
            answers = await asyncio.gather(*dequeues, return_exceptions=True)
            refused += sum(isinstance(answer, Overloaded) for answer in answers)
        assert refused >= VISIBILITY_SECONDS
        for job_id in job_ids:
            # This waits too: the client comes back until there is a place.
            job = await client.get_job(job_id, wait_seconds=20)
            assert (job.state, job.attempt) == (JobState.COMPLETED, 1)
        await until(lambda: "calls.refused" in server.printed(), limit_seconds=LIMIT_SECONDS)


def impatient(stack: Stack) -> AsyncClient:
    """Return a client that tells of a refusal instead of coming back."""
    return AsyncClient(stack.url, retry=RetryPolicy(attempts=1))
