"""kill -9 of either server on one set of tables and queues, while everybody uses both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from airunner.domain.clock import SystemClock
from airunner.domain.job import JobState
from airunner.testing.conditions import until
from tests.crash.crowd import Crowd, gathered_crowd
from tests.crash.replica_processes import ReplicaStack, running_replicas
from tests.crash.replicas import RECEIVED_SECONDS
from tests.doubles.aws.emulator import EmulatorProcess
from tests.support.processes import LIMIT_SECONDS

ROUNDS = [
    pytest.param(2, marks=[pytest.mark.slow, pytest.mark.timeout(900)]),
    pytest.param(40, marks=[pytest.mark.long, pytest.mark.timeout(1800)]),
]
SHORT_VISIBILITY = ("--visibility-timeout", "5", "--concurrency", "3")
# A claim whose answer died with its server has lapsed after this, for servers whose clocks differ too.
LAPSED_MS = 11_000
# The reconciler comes a minute after a visibility; a job may meet that twice.
PATIENCE_SECONDS = 3 * LIMIT_SECONDS


@pytest.fixture
async def replicas(tmp_path: Path, emulator: EmulatorProcess, aws_env: str) -> AsyncIterator[ReplicaStack]:
    async with running_replicas(tmp_path, emulator.url, aws_env) as running:
        yield running


@pytest.fixture
async def crowd(replicas: ReplicaStack, seed: int) -> AsyncIterator[Crowd]:
    async with gathered_crowd(replicas, seed) as gathered:
        gathered.patience_seconds = PATIENCE_SECONDS
        yield gathered


@pytest.mark.parametrize("rounds", ROUNDS)
async def test_nothing_is_lost_repeated_or_run_twice(
    crowd: Crowd, replicas: ReplicaStack, emulator: EmulatorProcess, rounds: int
) -> None:
    workers = await asyncio.gather(
        *(replicas.start_worker(name, *SHORT_VISIBILITY) for name in ("first", "second"))
    )
    enough = asyncio.Event()
    clients = [crowd.begin(crowd.keep_submitting(enough)) for _ in range(2)]
    clients.append(crowd.begin(crowd.keep_reading(enough)))

    for killed in range(rounds):
        await progress(crowd, crowd.chance.randrange(10, 60))
        await replicas.kill_replica(killed % 2)
        killed_at = SystemClock().now()
        # The other one serves alone for a while.
        await progress(crowd, 10)
        await replicas.start_replica(killed % 2)
        await passed(killed_at + LAPSED_MS)
        # What the dead had received shows again.
        emulator.advance(RECEIVED_SECONDS)
    await progress(crowd, 10)
    enough.set()
    async with asyncio.timeout(PATIENCE_SECONDS):
        await asyncio.gather(*clients)
    jobs = await crowd.finish()

    assert {job.state for job in jobs.values()} == {JobState.COMPLETED}
    assert [worker.exit_code for worker in workers] == [None, None]
    # A claim that died with its server begins no process; all that began were let finish.
    assert {job_id: len(crowd.history.attempts_begun(job_id)) for job_id in jobs} == dict.fromkeys(jobs, 1)


async def progress(crowd: Crowd, events: int) -> None:
    """Wait until watchers have seen so many events more."""
    wanted = crowd.events_seen + events
    await until(lambda: crowd.events_seen >= wanted, limit_seconds=PATIENCE_SECONDS)


async def passed(instant: int) -> None:
    await until(lambda: SystemClock().now() > instant, limit_seconds=LIMIT_SECONDS)
