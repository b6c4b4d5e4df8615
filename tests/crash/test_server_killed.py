"""kill -9 of the server while everybody uses it."""

from __future__ import annotations

import asyncio
import signal

import pytest

from airunner.domain.clock import SystemClock
from airunner.domain.job import JobParams, JobState
from airunner.testing.conditions import until
from tests.crash.crowd import Crowd
from tests.support.processes import LIMIT_SECONDS, Stack, integrity

ROUNDS = [
    2,
    pytest.param(6, marks=pytest.mark.slow),
    pytest.param(40, marks=[pytest.mark.long, pytest.mark.timeout(1200)]),
]
SHORT_VISIBILITY = ("--visibility-timeout", "5", "--concurrency", "3")


@pytest.mark.parametrize("rounds", ROUNDS)
async def test_nothing_is_lost_repeated_or_run_twice(crowd: Crowd, rounds: int) -> None:
    workers = await asyncio.gather(
        *(crowd.stack.start_worker(name, *SHORT_VISIBILITY) for name in ("first", "second"))
    )
    enough = asyncio.Event()
    clients = [crowd.begin(crowd.keep_submitting(enough)) for _ in range(3)]
    clients.append(crowd.begin(crowd.keep_reading(enough)))

    for _ in range(rounds):
        await progress(crowd, crowd.chance.randrange(20, 400))
        await crowd.stack.kill_server()
        await crowd.stack.start_server()
    await progress(crowd, 50)
    enough.set()
    async with asyncio.timeout(LIMIT_SECONDS):
        await asyncio.gather(*clients)
    jobs = await crowd.finish()

    assert {job.state for job in jobs.values()} == {JobState.COMPLETED}
    assert [worker.exit_code for worker in workers] == [None, None]
    # The workers lived all the time: downtime has started no process a second time.
    assert {job_id: len(crowd.history.attempts_begun(job_id)) for job_id in jobs} == dict.fromkeys(jobs, 1)
    assert crowd.reconnections >= rounds
    await crowd.stack.kill_server()
    assert integrity(crowd.stack.database) == "ok"


@pytest.mark.slow
async def test_a_long_job_goes_on_through_downtime_beyond_its_visibility(crowd: Crowd) -> None:
    worker = await crowd.stack.start_worker("steady", "--visibility-timeout", "3")
    gate = crowd.stack.folder / "gate"
    job_id = await crowd.submit(crowd.talk(60, hold_at=30, hold_file=gate), watchers=2)
    await until(lambda: crowd.events_seen >= 60, limit_seconds=LIMIT_SECONDS)

    await crowd.stack.kill_server()
    lapsed_at = SystemClock().now() + 3500
    await until(lambda: SystemClock().now() > lapsed_at, limit_seconds=LIMIT_SECONDS)
    # Its worker is kept from being the first who asks.
    worker.send(signal.SIGSTOP)
    await crowd.stack.start_server()
    assert await crowd.client.dequeue(wait_seconds=0) == []
    worker.send(signal.SIGCONT)
    gate.touch()
    jobs = await crowd.finish()

    assert jobs[job_id].attempt == 1
    assert crowd.history.attempts_begun(job_id) == [1]


async def test_a_server_that_was_killed_while_it_made_its_folder_starts_again(stack: Stack) -> None:
    for name in ("token.key", "airunner.db", "airunner.db-wal"):
        server = stack.launch_server()
        await until((stack.data_dir / name).exists, limit_seconds=LIMIT_SECONDS)
        await server.kill()

    await stack.start_server()
    async with stack.client() as client:
        job_id = (await client.enqueue(JobParams(command="true"))).job_id
        assert [held.job.job_id for held in await client.dequeue()] == [job_id]
    assert {file.stat().st_mode & 0o077 for file in stack.data_dir.iterdir()} == {0}


async def progress(crowd: Crowd, events: int) -> None:
    """Wait until watchers have seen so many events more."""
    wanted = crowd.events_seen + events
    await until(lambda: crowd.events_seen >= wanted, limit_seconds=LIMIT_SECONDS)
