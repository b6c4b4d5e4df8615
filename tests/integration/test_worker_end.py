from __future__ import annotations

import asyncio
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from airunner.domain.errors import Unavailable
from airunner.domain.event import Output, ProcessEnd, ProcessError
from airunner.domain.job import JobState, Outcome
from airunner.domain.requests import DequeueRequest, StreamRequest
from airunner.stores.memory import MemoryStore
from airunner.testing.clock import ManualClock
from airunner.testing.conditions import until
from airunner.testing.factories import make_services
from airunner.worker.process.work_folders import WorkFolders
from airunner.worker.publishing.spool_folder import SpoolFolder
from airunner.worker.runner import AttemptEnvironment
from airunner.worker.worker import Worker, WorkerOptions
from tests.support.child_processes import nothing_left_behind, wait_until_gone
from tests.support.consumers import turns
from tests.support.workers import LIMIT_SECONDS, when_terminated, working

pytestmark = pytest.mark.usefixtures("nothing_left_behind")
__all__ = ["nothing_left_behind"]


async def test_a_lost_attempt_is_killed_and_nothing_of_it_is_seen(tmp_path: Path) -> None:
    async with working(tmp_path, visibility_timeout_seconds=1) as bench:
        job_id = await bench.submit(*when_terminated("None"))
        pid = int(await bench.first_output(job_id))
        bench.jobs.errors["update_job"] = Unavailable  # the heartbeats do not come through
        bench.jobs.errors["dequeue_jobs"] = Unavailable
        claim = DequeueRequest(queue="q", wait_seconds=20, worker_id="another")
        (taken,) = await bench.services.jobs.dequeue_jobs(claim)
        assert (taken.job.job_id, taken.job.attempt) == (job_id, 2)
        os.kill(pid, 0)  # an unreachable server is no reason to kill
        del bench.jobs.errors["update_job"]
        await asyncio.to_thread(wait_until_gone, pid)
        await until(lambda: not list(bench.work_dir.iterdir()))
        assert bench.jobs.made["complete_jobs"] == bench.jobs.made["release_job"] == 0
        job = await bench.services.jobs.get_job(job_id)
        assert (job.state, job.attempt) == (JobState.RUNNING, 2)


async def test_a_publisher_that_learns_of_the_loss_first_kills_too(tmp_path: Path) -> None:
    async with working(tmp_path, visibility_timeout_seconds=1) as bench:
        go = tmp_path / "go"
        os.mkfifo(go)
        job_id = await bench.submit("sh", "-c", f"echo $$; cat {go}; seq 60; exec sleep 1000")
        pid = int(await bench.first_output(job_id))
        for call in ("update_job", "dequeue_jobs"):
            bench.jobs.errors[call] = Unavailable
        await bench.services.jobs.dequeue_jobs(DequeueRequest(queue="q", wait_seconds=20))
        go.write_bytes(b"")
        await asyncio.to_thread(wait_until_gone, pid)
        assert bench.jobs.made["complete_jobs"] == bench.jobs.made["release_job"] == 0


async def test_a_server_that_is_away_for_a_while_costs_nothing(tmp_path: Path) -> None:
    async with working(tmp_path) as bench:
        failing = dict.fromkeys(("publish_events", "complete_jobs", "dequeue_jobs"), 3)

        def fail(name: str) -> Callable[[], Exception | None]:
            def error() -> Exception | None:
                failing[name] -= 1
                return Unavailable() if failing[name] >= 0 else None

            return error

        bench.jobs.errors = {name: fail(name) for name in ("complete_jobs", "dequeue_jobs")}
        bench.events.errors = {"publish_events": fail("publish_events")}
        log = await bench.do("seq", "1000")
        assert log.output() == b"".join(b"%d\n" % n for n in range(1, 1001))
        assert (log.job.state, log.job.attempt) == (JobState.COMPLETED, 1)
        assert bench.jobs.made["complete_jobs"] == 4


async def test_stop_lets_jobs_finish(tmp_path: Path) -> None:
    async with working(tmp_path) as bench:
        go = tmp_path / "go"
        os.mkfifo(go)
        job_id = await bench.submit("sh", "-c", f"echo ready; cat {go}; echo finished")
        waiting = await bench.submit("true")
        await bench.first_output(job_id)
        bench.worker.stop()
        go.write_bytes(b"")
        await bench.work
        assert (await bench.log_of(job_id)).output() == b"ready\nfinished\n"
        assert (await bench.services.jobs.get_job(waiting)).attempt == 0


@pytest.mark.parametrize(("max_attempts", "state"), [(2, JobState.SCHEDULED), (1, JobState.FAILED)])
async def test_what_outlasts_the_drain_is_interrupted_and_given_back_with_its_output(
    tmp_path: Path, max_attempts: int, state: JobState
) -> None:
    async with working(tmp_path, drain_seconds=0.1) as bench:
        command = when_terminated("(print('bye'), sys.exit(0))")
        job_id = await bench.submit(*command, max_attempts=max_attempts)
        first = await bench.first_output(job_id)
        bench.worker.stop()
        await bench.work
        job = await bench.services.jobs.get_job(job_id)
        assert job.state is state
        if job.result:
            assert job.result.outcome is Outcome.INTERRUPTED
        request = StreamRequest(job_id=job_id, follow=False)
        events = [event async for event in bench.services.events.stream_events(request)]
        kept = b"".join(event.data.output for event in events if isinstance(event.data, Output))
        assert kept == first + b"bye\n"
        assert isinstance(events[-1].data, ProcessEnd)
        assert isinstance(events[-2].data, ProcessError)
        assert bench.jobs.made["complete_jobs"] == 0


async def test_a_job_that_has_ended_stays_so_when_its_folder_outlasts_the_drain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    removing, go_on = threading.Event(), threading.Event()

    def remove(*_: Any, **__: Any) -> None:
        removing.set()
        go_on.wait(LIMIT_SECONDS)

    monkeypatch.setattr(shutil, "rmtree", remove)
    async with working(tmp_path, drain_seconds=0) as bench:
        job_id = await bench.submit("echo", "done")
        await asyncio.to_thread(removing.wait, LIMIT_SECONDS)
        bench.worker.stop()
        await turns()  # now it is cancelled
        go_on.set()
        await bench.work
        log = await bench.log_of(job_id)
    assert (log.job.state, log.output()) == (JobState.COMPLETED, b"done\n")


async def test_the_second_signal_kills_the_process(tmp_path: Path) -> None:
    async with working(tmp_path) as bench:
        job_id = await bench.submit(*when_terminated("None"))
        pid = int(await bench.first_output(job_id))
        bench.worker.stop()
        bench.worker.kill()
        await bench.work
        wait_until_gone(pid)
        assert (await bench.services.jobs.get_job(job_id)).state is JobState.RUNNING
        assert list(bench.work_dir.iterdir()) == []


async def test_the_second_signal_also_kills_during_the_grace_period(tmp_path: Path) -> None:
    async with working(tmp_path, drain_seconds=0, grace_seconds=1000) as bench:
        job_id = await bench.submit(*when_terminated("print('stubborn', flush=True)"))
        stream = bench.services.events.stream_events(StreamRequest(job_id=job_id))
        outputs = (event.data.output async for event in stream if isinstance(event.data, Output))
        pid = int(await anext(outputs))
        bench.worker.stop()
        assert await anext(outputs) == b"stubborn\n"
        bench.worker.kill()
        await bench.work
        wait_until_gone(pid)


async def test_once_ends_after_one_job(tmp_path: Path) -> None:
    async with working(tmp_path, once=True, concurrency=4) as bench:
        job_id, second = await bench.submit("echo", "one"), await bench.submit("echo", "two")
        await bench.work
        assert (await bench.log_of(job_id)).output() == b"one\n"
        assert (await bench.services.jobs.get_job(second)).state is JobState.SCHEDULED


async def test_a_failing_worker_never_shows_values_of_the_environment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with capture_logs() as logged:
        async with working(tmp_path) as bench:
            environment = {"TOKEN": "sesame-open"}
            await bench.do("sh", "-c", "echo sesame-$((1+1)); exit 3", environment=environment)
    shown = capsys.readouterr()
    assert "job.end" in {entry["event"] for entry in logged}
    assert "sesame" not in f"{logged} {shown.out} {shown.err}"


async def test_what_dead_workers_left_is_swept_at_the_start_and_every_hour(tmp_path: Path) -> None:
    clock, folders = ManualClock(), WorkFolders(tmp_path / "work")
    (tmp_path / "work").mkdir()

    def leave_behind() -> Path:
        left = folders.make()
        os.close(left.lock)  # as the end of its worker does
        return left.path

    first = leave_behind()
    spool = tmp_path / "spool"
    spool.mkdir(mode=0o777)
    spool.chmod(0o777)  # which is not to be trusted
    async with make_services(MemoryStore(clock), clock) as services:
        environment = AttemptEnvironment(work_dir=tmp_path / "work", spool_folder=SpoolFolder(spool))
        options = WorkerOptions(queues=("q",), environment=environment)
        worker = Worker(services.jobs, services.events, clock, options)
        with capture_logs() as logged:
            work = asyncio.create_task(worker.run())
            await until(lambda: not first.exists())
            left = leave_behind()

            def is_swept_after_another_hour() -> bool:
                clock.advance(3600)
                return not left.exists()

            await until(is_swept_after_another_hour)
            # A folder is gone a moment before it is told.
            await until(lambda: [entry["event"] for entry in logged].count("work_folder.left_behind") == 2)
            worker.kill()
            await work
    assert [entry["event"] for entry in logged].count("spool.unusable") == 1
    assert list((tmp_path / "work").iterdir()) == []
