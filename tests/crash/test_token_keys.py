"""The key that signs task tokens is changed while workers run: no attempt is refused, and nothing is lost."""

from __future__ import annotations

import asyncio
import signal

import pytest

from airunner.domain.errors import AirunnerError
from airunner.domain.event import Event, ProcessStart
from airunner.domain.job import JobState
from airunner.testing.conditions import until
from tests.crash.crowd import Crowd, gathered_crowd
from tests.support.processes import LIMIT_SECONDS, Stack

OLD, NEW = "the-old-key-only-for-tests", "the-new-key-only-for-tests"
CONCURRENCY = ("--concurrency", "3")


@pytest.mark.slow
async def test_a_rotation_under_load_refuses_no_attempt(stack: Stack, seed: int) -> None:
    await serve_with(stack, OLD)
    async with gathered_crowd(stack, seed) as crowd:
        workers = await asyncio.gather(*(stack.start_worker(name, *CONCURRENCY) for name in ("one", "two")))
        gate = stack.folder / "gate"
        # Begun under the old key, completed under both.
        long_job = await crowd.submit(crowd.talk(20, hold_at=10, hold_file=gate))
        enough = asyncio.Event()
        clients = [crowd.begin(crowd.keep_submitting(enough)) for _ in range(2)]
        await until(lambda: crowd.process_of(long_job, 1) is not None, limit_seconds=LIMIT_SECONDS)
        await progress(crowd)

        await serve_with(stack, f"{NEW},{OLD}")
        await progress(crowd)
        gate.touch()
        assert (await crowd.end_of(long_job)).state is JobState.COMPLETED
        # No token of the old key is left: what was begun under it ends before it is dropped.
        enough.set()
        await asyncio.gather(*clients)
        await serve_with(stack, NEW)
        await crowd.submit(crowd.talk(5))
        jobs = await crowd.finish()

        assert {job.state for job in jobs.values()} == {JobState.COMPLETED}
        assert {job.attempt for job in jobs.values()} == {1}
        assert [worker.exit_code for worker in workers] == [None, None]
        assert "token" not in "".join(worker.printed() for worker in workers)


async def test_a_token_is_refused_once_its_key_is_dropped(stack: Stack) -> None:
    await serve_with(stack, OLD)
    async with gathered_crowd(stack, 0) as crowd:
        await crowd.submit(crowd.talk(1), watchers=0)
        (held,) = await crowd.client.dequeue()
        start = Event(sequence=1, timestamp=held.job.created_at, data=ProcessStart(pid=1, started_at=1))

        await serve_with(stack, f"{NEW},{OLD}")
        assert (await crowd.client.publish_events(held.task_token, [start])).next_sequence == 2

        await serve_with(stack, NEW)
        with pytest.raises(AirunnerError, match="token"):
            await crowd.client.publish_events(held.task_token, [start])


async def serve_with(stack: Stack, keys: str) -> None:
    """Serve with these keys, of which the first signs; a server that runs goes in good order first."""
    if stack.server:
        stack.server.send(signal.SIGTERM)
        assert await stack.server.ended() == 0
    stack.environment["AIRUNNER_TOKEN_KEYS"] = keys
    await stack.start_server()


async def progress(crowd: Crowd) -> None:
    wanted = crowd.events_seen + 60
    await until(lambda: crowd.events_seen >= wanted, limit_seconds=LIMIT_SECONDS)
