"""What the server has acknowledged is there after kill -9: jobs, events, completions."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field

import pytest

from airunner.client import AsyncClient, CompleteRequest
from airunner.domain.clock import SystemClock
from airunner.domain.errors import Unavailable
from airunner.domain.event import Event, Output
from airunner.domain.job import Job, JobParams, JobResult, JobState, Outcome
from airunner.domain.retry import RetryPolicy
from airunner.testing.conditions import until
from tests.support.processes import LIMIT_SECONDS, Stack

ROUNDS = [3, pytest.param(50, marks=[pytest.mark.long, pytest.mark.timeout(1200)])]


@dataclass(slots=True)
class Ledger:
    """What the server has acknowledged."""

    jobs: set[str] = field(default_factory=set)
    lines: dict[tuple[str, int], list[bytes]] = field(default_factory=dict)
    results: dict[str, JobResult] = field(default_factory=dict)
    entries: int = 0


@pytest.mark.parametrize("rounds", ROUNDS)
async def test_what_was_acknowledged_is_there_after_kill_9(stack: Stack, seed: int, rounds: int) -> None:
    chance, ledgers = random.Random(seed), []
    await stack.start_server()
    for _ in range(rounds):
        ledgers.append(Ledger())
        await use_until_killed(stack, ledgers[-1], chance)
        await stack.start_server()
        async with stack.client() as client:
            await check(client, ledgers[-1])
    async with stack.client() as client:
        for ledger in ledgers:
            assert min(len(ledger.jobs), len(ledger.lines), len(ledger.results)) > 0
            await check(client, ledger)


async def use_until_killed(stack: Stack, ledger: Ledger, chance: random.Random) -> None:
    async with quick_client(stack) as client, asyncio.TaskGroup() as tasks:
        for _ in range(4):
            tasks.create_task(keep_enqueueing(client, ledger, chance))
            tasks.create_task(keep_working(client, ledger, chance))
        wanted = chance.randrange(50, 400)
        await until(lambda: ledger.entries >= wanted, limit_seconds=LIMIT_SECONDS)
        await stack.kill_server()


def quick_client(stack: Stack) -> AsyncClient:
    """A client that never asks twice, so that it knows what was acknowledged."""
    return AsyncClient(stack.url, retry=RetryPolicy(attempts=1))


async def keep_enqueueing(client: AsyncClient, ledger: Ledger, chance: random.Random) -> None:
    try:
        while True:
            params = JobParams(command="true", metadata={"filling": "x" * chance.randrange(2000)})
            ledger.jobs.add((await client.enqueue(params)).job_id)
            ledger.entries += 1
    except Unavailable:
        return


async def keep_working(client: AsyncClient, ledger: Ledger, chance: random.Random) -> None:
    """Be a worker that runs nothing: publish lines of our own and complete."""
    try:
        while True:
            for dequeued in await client.dequeue(wait_seconds=1):
                lines = ledger.lines.setdefault((dequeued.job.job_id, dequeued.job.attempt), [])
                for _ in range(chance.randrange(5)):
                    line = chance.randbytes(30)
                    event = Event(sequence=len(lines) + 1, timestamp=SystemClock().now(), data=Output(line))
                    await client.publish_events(dequeued.task_token, [event])
                    lines.append(line)
                    ledger.entries += 1
                await complete(
                    client,
                    ledger,
                    CompleteRequest(
                        task_token=dequeued.task_token,
                        job_id=dequeued.job.job_id,
                        result=JobResult(
                            success=False,
                            outcome=Outcome.FAILURE,
                            exit_code=chance.randrange(1, 100),
                            final_sequence=len(lines),
                        ),
                    ),
                )
    except Unavailable:
        return


async def complete(client: AsyncClient, ledger: Ledger, request: CompleteRequest) -> None:
    await client.complete(request)
    ledger.results[request.job_id] = request.result
    ledger.entries += 1


async def check(client: AsyncClient, ledger: Ledger) -> None:
    # A job may be done whose own acknowledgement never arrived.
    jobs = {job_id: await client.get_job(job_id) for job_id in {*ledger.jobs, *ledger.results}}
    for job_id, result in ledger.results.items():
        assert jobs[job_id].state is JobState.FAILED
        assert exit_of(jobs[job_id]) == (result.exit_code, result.final_sequence)
    for (job_id, attempt), lines in ledger.lines.items():
        events = [event async for event in client.monitor(job_id, attempt=attempt, follow=False)]
        stored = [event.data.output for event in events if isinstance(event.data, Output)]
        assert [event.sequence for event in events] == list(range(1, len(events) + 1))
        # One more may be stored whose acknowledgement never arrived.
        assert stored[: len(lines)] == lines
        assert len(stored) <= len(lines) + 1


def exit_of(job: Job) -> tuple[int, int]:
    assert job.result
    return job.result.exit_code, job.result.final_sequence
