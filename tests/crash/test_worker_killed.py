"""Workers that die, stop, freeze or fall silent in the middle of their jobs."""

from __future__ import annotations

import asyncio
import signal
from functools import partial
from pathlib import Path

import pytest

from airunner.domain.event import Output, ProcessEnd
from airunner.domain.job import JobParams, JobState
from airunner.testing.conditions import until
from tests.crash.crowd import Crowd
from tests.support.history import Watch
from tests.support.processes import LIMIT_SECONDS, lives, until_gone

ROUNDS = [1, pytest.param(15, marks=[pytest.mark.long, pytest.mark.timeout(1200)])]
SHORT_VISIBILITY = ("--visibility-timeout", "2")


@pytest.mark.parametrize("rounds", ROUNDS)
async def test_kill_9_takes_the_process_along_and_the_job_is_done_elsewhere(
    crowd: Crowd, rounds: int
) -> None:
    for number in range(rounds):
        doomed = await crowd.stack.start_worker(f"doomed-{number}", *SHORT_VISIBILITY)
        gate = crowd.stack.folder / f"gate-{number}"
        job_id, watch, pid = await talk_until(crowd, gate)

        await doomed.kill()
        await until_gone(pid)
        gate.touch()
        rescuer = await crowd.stack.start_worker(f"rescuer-{number}", *SHORT_VISIBILITY)
        job = await crowd.end_of(job_id)

        assert (job.state, job.attempt, job.life.worker_id) == (JobState.COMPLETED, 2, f"rescuer-{number}")
        await until(partial(getattr, watch, "ended"), limit_seconds=LIMIT_SECONDS)
        assert not ends(watch, attempt=1)
        assert 0 < lines(watch, attempt=1) <= 30
        assert lines(watch, attempt=2) == 60
        rescuer.send(signal.SIGTERM)
        assert await rescuer.ended() == 0
    await crowd.finish()


async def test_a_frozen_worker_that_wakes_too_late_changes_nothing(crowd: Crowd) -> None:
    frozen = await crowd.stack.start_worker("frozen", *SHORT_VISIBILITY)
    gate = crowd.stack.folder / "gate"
    job_id, watch, pid = await talk_until(crowd, gate)

    # The process itself goes on and will have finished when its worker wakes, or will be killed by it.
    frozen.send(signal.SIGSTOP)
    rescuer = await crowd.stack.start_worker("rescuer", *SHORT_VISIBILITY)
    await until(lambda: crowd.process_of(job_id, 2) is not None, limit_seconds=LIMIT_SECONDS)
    frozen.send(signal.SIGCONT)
    await until_gone(pid)
    assert not gate.exists()  # so it was killed: its own end is still barred
    assert lives(crowd.process_of(job_id, 2) or 0)
    gate.touch()
    job = await crowd.end_of(job_id)
    jobs = await crowd.finish()

    assert jobs[job_id] == job
    assert (job.state, job.attempt, job.life.worker_id) == (JobState.COMPLETED, 2, "rescuer")
    assert not ends(watch, attempt=1)
    assert lines(watch, attempt=2) == 60
    assert (frozen.exit_code, rescuer.exit_code) == (None, None)
    # The frozen one is fit for the next job.
    rescuer.send(signal.SIGTERM)
    await rescuer.ended()
    assert (await crowd.end_of(await crowd.submit(crowd.talk(5)))).life.worker_id == "frozen"


@pytest.mark.slow
async def test_what_a_frozen_worker_still_has_to_say_is_never_seen(crowd: Crowd) -> None:
    frozen = await crowd.stack.start_worker("frozen", *SHORT_VISIBILITY)
    gate = crowd.stack.folder / "gate"
    job_id = await crowd.submit(crowd.talk(400, 0.01, hold_at=390, hold_file=gate))
    watch = crowd.history.watches[-1]
    await until(lambda: lines(watch, attempt=1) >= 30, limit_seconds=LIMIT_SECONDS)
    pid = crowd.process_of(job_id, 1)
    assert pid

    # It goes on printing into a pipe that nobody empties before another has the job.
    frozen.send(signal.SIGSTOP)
    await crowd.stack.start_worker("rescuer", *SHORT_VISIBILITY)
    await until(lambda: lines(watch, attempt=2) > 0, limit_seconds=LIMIT_SECONDS)
    seen = lines(watch, attempt=1)
    printed = (crowd.accounts / f"{job_id}.1.stdout").read_bytes()
    frozen.send(signal.SIGCONT)
    await until_gone(pid)
    gate.touch()
    jobs = await crowd.finish()

    assert printed.count(b"\n") > seen
    replay = crowd.history.watch("replay", job_id)
    replay.events = [event async for event in crowd.client.monitor(job_id)]
    assert (lines(replay, attempt=1), lines(replay, attempt=2)) == (seen, 400)
    assert (ends(replay, attempt=1), ends(replay, attempt=2)) == (0, 1)
    assert (jobs[job_id].state, jobs[job_id].attempt) == (JobState.COMPLETED, 2)
    assert frozen.exit_code is None


@pytest.mark.slow
async def test_sigterm_under_load_lets_jobs_finish_and_loses_none(crowd: Crowd) -> None:
    leaving, staying = await asyncio.gather(
        *(crowd.stack.start_worker(name, "--concurrency", "3") for name in ("leaving", "staying"))
    )
    enough = asyncio.Event()
    clients = [crowd.begin(crowd.keep_submitting(enough)) for _ in range(3)]
    await until(lambda: crowd.events_seen > 200, limit_seconds=LIMIT_SECONDS)

    leaving.send(signal.SIGTERM)
    assert await leaving.ended() == 0
    enough.set()
    await asyncio.gather(*clients)
    jobs = await crowd.finish()

    assert {job.state for job in jobs.values()} == {JobState.COMPLETED}
    assert {job.life.worker_id for job in jobs.values()} == {"leaving", "staying"}
    assert {job_id: len(crowd.history.attempts_begun(job_id)) for job_id in jobs} == dict.fromkeys(jobs, 1)
    assert staying.exit_code is None


async def test_a_second_sigterm_ends_the_worker_at_once_and_its_process_with_it(crowd: Crowd) -> None:
    hurried = await crowd.stack.start_worker("hurried", *SHORT_VISIBILITY)
    gate = crowd.stack.folder / "gate"
    job_id, _, pid = await talk_until(crowd, gate)

    hurried.send(signal.SIGTERM)
    await hurried.until_said("worker.stop")
    assert lives(pid)
    hurried.send(signal.SIGTERM)
    await hurried.ended()
    await until_gone(pid)
    gate.touch()
    await crowd.stack.start_worker("rescuer", *SHORT_VISIBILITY)
    jobs = await crowd.finish()

    assert jobs[job_id].state is JobState.COMPLETED
    assert jobs[job_id].life.worker_id == "rescuer"


async def test_kill_takes_all_descendants_of_a_job_along(crowd: Crowd) -> None:
    worker = await crowd.stack.start_worker("doomed", *SHORT_VISIBILITY)
    pids = crowd.stack.folder / "pids"
    script = f"sleep 777 & echo $! >> {pids}; setsid sh -c 'echo $$ >> {pids}; exec sleep 778' & wait"
    async with crowd.stack.client() as client:
        await client.enqueue(JobParams(command="sh", args=("-c", script)), max_attempts=1)
    await until(lambda: pids.exists() and len(pids.read_text().split()) == 2, limit_seconds=LIMIT_SECONDS)
    descendants = [int(pid) for pid in pids.read_text().split()]
    assert all(map(lives, descendants))

    worker.send(signal.SIGKILL)
    await worker.ended()
    for pid in descendants:
        await until_gone(pid)

    def left_behind() -> list[Path]:
        return list(crowd.stack.folder.glob("airunner-*"))

    assert left_behind()
    next_worker = await crowd.stack.start_worker("next", "--queue", "other")
    await until(lambda: not left_behind(), limit_seconds=LIMIT_SECONDS)
    await next_worker.until_said("work_folder.left_behind")


async def talk_until(crowd: Crowd, gate: Path) -> tuple[str, Watch, int]:
    """Have a job of 60 lines print half of them and wait; return it, its watch and its pid."""
    job_id = await crowd.submit(crowd.talk(60, hold_at=30, hold_file=gate))
    watch = crowd.history.watches[-1]
    await until(lambda: lines(watch, attempt=1) == 30, limit_seconds=LIMIT_SECONDS)
    pid = crowd.process_of(job_id, 1)
    assert pid
    return job_id, watch, pid


def lines(watch: Watch, attempt: int) -> int:
    return sum(isinstance(event.data, Output) and event.attempt == attempt for event in watch.events)


def ends(watch: Watch, attempt: int) -> int:
    return sum(isinstance(event.data, ProcessEnd) and event.attempt == attempt for event in watch.events)
