from __future__ import annotations

import os
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from airunner.codec.jobs import JobReader, job_to_pb
from airunner.domain.answers import DequeuedJob
from airunner.domain.event import ProcessEnd, ProcessStart, StreamType
from airunner.domain.execution import ExecutionConfig
from airunner.domain.job import JobState, Outcome, ProcessType
from airunner.domain.requests import Abilities, DequeueRequest
from airunner.handlers.registry import Registry
from airunner.testing.conditions import until
from airunner.worker.process.work_folders import WorkFolder, WorkFolders
from tests.support.child_processes import nothing_left_behind
from tests.support.workers import PATH, Log, when_terminated, working

pytestmark = pytest.mark.usefixtures("nothing_left_behind")
__all__ = ["nothing_left_behind"]


async def test_a_command_succeeds(tmp_path: Path) -> None:
    async with working(tmp_path) as bench:
        log = await bench.do("sh", "-c", "echo out; echo err >&2")
    assert log.job.state is JobState.COMPLETED
    assert (log.result.outcome, log.result.exit_code, log.result.error_message) == (Outcome.SUCCESS, 0, "")
    assert log.output(StreamType.STDOUT) == b"out\n"
    assert log.output(StreamType.STDERR) == b"err\n"
    start = log.events[0].data
    assert isinstance(start, ProcessStart)
    assert start.pid > 0
    assert log.job.created_at <= log.result.started_at <= log.result.completed_at
    assert log.errors == []


async def test_a_tiny_job_costs_two_calls(tmp_path: Path) -> None:
    async with working(tmp_path, once=True) as bench:
        job_id = await bench.submit("true")
        await bench.work
        assert (await bench.end_of(job_id)).state is JobState.COMPLETED
        assert bench.jobs.made == {"dequeue_jobs": 1, "complete_jobs": 1}
        # Starting the process may take longer than the 100 ms after which its start is published.
        assert bench.events.made.total() <= 1


async def test_a_job_without_execution_settings_is_worked_on_with_the_defaults(tmp_path: Path) -> None:
    async with working(tmp_path) as bench:
        bench.jobs.dequeue_jobs = without_execution_config(bench.services.jobs)  # type: ignore[attr-defined]
        with capture_logs() as logs:
            first, second = await bench.do("echo", "one"), await bench.do("echo", "two")
    assert (first.output(), second.output()) == (b"one\n", b"two\n")
    warned = [log["job_id"] for log in logs if log["event"] == "job.no_execution_config"]
    assert warned == [first.job.job_id, second.job.job_id]


def without_execution_config(jobs: Any) -> Any:
    """Dequeue as from a server whose messages have no execution settings."""

    async def dequeue(request: DequeueRequest) -> list[DequeuedJob]:
        return [stripped(dequeued) for dequeued in await jobs.dequeue_jobs(request)]

    def stripped(dequeued: DequeuedJob) -> DequeuedJob:
        message = job_to_pb(dequeued.job)
        message.ClearField("execution_config")
        job = JobReader().read(message)
        assert job.execution == ExecutionConfig()
        return replace(dequeued, job=job)

    return dequeue


async def test_execution_settings_of_the_server_are_worth_no_warning(tmp_path: Path) -> None:
    async with working(tmp_path) as bench:
        with capture_logs() as logs:
            await bench.do("true")
    assert not [log for log in logs if log["event"] == "job.no_execution_config"]
    (start,) = [log for log in logs if log["event"] == "job.start"]
    assert "repository" not in start


async def test_every_byte_arrives(tmp_path: Path) -> None:
    script = "import os\nfor n in range(30000): os.write(1, b'%d \\xff\\n' % n)\nos.write(1, b'x' * 400_000)"
    async with working(tmp_path) as bench:
        log = await bench.do(sys.executable, "-c", script)
    assert log.output() == b"".join(b"%d \xff\n" % n for n in range(30_000)) + b"x" * 400_000


@pytest.mark.parametrize("code", [1, 3, 255])
async def test_a_non_zero_exit_is_a_result_and_no_retry(tmp_path: Path, code: int) -> None:
    async with working(tmp_path) as bench:
        log = await bench.do("sh", "-c", f"echo almost; exit {code}")
    assert (log.job.state, log.job.attempt) == (JobState.FAILED, 1)
    assert (log.result.outcome, log.result.exit_code) == (Outcome.FAILURE, code)
    assert log.output() == b"almost\n"


async def test_death_by_signal_is_named(tmp_path: Path) -> None:
    async with working(tmp_path) as bench:
        log = await bench.do("sh", "-c", "kill -SEGV $$")
    assert (log.result.outcome, log.result.exit_code) == (Outcome.FAILURE, 139)
    assert log.result.error_message == "killed by SIGSEGV"


async def test_a_timeout_stops_the_process_and_keeps_its_output(tmp_path: Path) -> None:
    async with working(tmp_path) as bench:
        log = await bench.do("sh", "-c", "echo before; exec sleep 1000", timeout_seconds=1)
    assert (log.result.outcome, log.result.exit_code) == (Outcome.TIMEOUT, 143)
    assert log.result.error_message == "timed out after 1 s"
    assert log.errors == ["timed out after 1 s"]
    assert log.output() == b"before\n"


async def test_cancelling_reaches_the_process_and_keeps_its_last_output(tmp_path: Path) -> None:
    async with working(tmp_path) as bench:
        job_id = await bench.submit(*when_terminated("(print('bye'), sys.exit(7))"))
        await bench.first_output(job_id)
        await bench.services.jobs.cancel_job(job_id)
        log = await bench.log_of(job_id)
    assert log.job.state is JobState.CANCELLED
    assert (log.result.outcome, log.result.exit_code) == (Outcome.CANCELLED, 7)
    assert log.output().endswith(b"\nbye\n")
    assert log.errors == ["cancelled"]


async def test_a_process_that_ignores_cancellation_is_killed_after_its_grace(tmp_path: Path) -> None:
    async with working(tmp_path, grace_seconds=0.2) as bench:
        job_id = await bench.submit(*when_terminated("None"))
        await bench.first_output(job_id)
        await bench.services.jobs.cancel_job(job_id)
        log = await bench.log_of(job_id)
    assert (log.result.outcome, log.result.exit_code) == (Outcome.CANCELLED, 137)


@pytest.mark.parametrize(
    ("command", "params", "exit_code", "reason"),
    [
        ("no-such-command", {}, 127, "command not found: no-such-command"),
        ("/no/such/file", {}, 127, "cannot run /no/such/file: No such file or directory"),
        ("/etc/passwd", {}, 126, "cannot run /etc/passwd: Permission denied"),
        ("true", {"working_directory": "/no/such/folder"}, 126, "/no/such/folder"),
        ("true", {"repository_url": "file:///x"}, 126, "takes no repositories from files"),
    ],
)
async def test_what_could_not_start_says_why(
    tmp_path: Path, command: str, params: dict[str, Any], exit_code: int, reason: str
) -> None:
    async with working(tmp_path) as bench:
        log = await bench.do(command, **params)
    assert_refused(log, exit_code, reason)


async def test_what_an_older_server_gives_a_worker_that_cannot_do_it_says_why(tmp_path: Path) -> None:
    handlers = Registry()
    handlers.add("mail", lambda: None, "here")
    async with working(tmp_path, older_server=True, handlers=handlers, runs_commands=False) as bench:
        assert_refused(await bench.do(handler="resize"), 126, "no handler named resize on this worker")
        assert_refused(await bench.do("true"), 126, "this worker runs no commands")
        assert (await bench.do(handler="mail")).job.state is JobState.COMPLETED


async def test_a_worker_takes_only_what_it_can_do(tmp_path: Path) -> None:
    handlers = Registry()
    handlers.add("Mail", lambda: None, "here")
    async with working(tmp_path, handlers=handlers, runs_commands=False, worker_id="mailer") as bench:
        left = [await bench.submit(handler="resize"), await bench.submit("true")]
        assert (await bench.do(handler="mail")).job.state is JobState.COMPLETED
        for job_id in left:
            job = await bench.services.jobs.get_job(job_id)
            assert (job.state, job.attempt) == (JobState.SCHEDULED, 0)
        (seen,) = await bench.services.jobs.list_workers()
        assert seen.abilities == Abilities(handlers=("Mail",), commands=False)


def assert_refused(log: Log, exit_code: int, reason: str) -> None:
    assert (log.job.state, log.job.attempt) == (JobState.FAILED, 1)
    assert (log.result.outcome, log.result.exit_code) == (Outcome.FAILURE, exit_code)
    assert reason in log.result.error_message
    assert log.errors == [log.result.error_message]
    assert isinstance(log.end, ProcessEnd)
    assert log.end.pid == 0


async def test_the_environment_is_the_bases_the_jobs_and_ours(tmp_path: Path) -> None:
    base = {**PATH, "COLOUR": "red", "SHAPE": "round"}
    async with working(tmp_path, base_environment=base) as bench:
        log = await bench.do("env", environment={"COLOUR": "blue", "AIRUNNER_QUEUE": "forged"})
    seen = dict(line.split("=", 1) for line in log.output().decode().splitlines())
    assert len(seen.pop("AIRUNNER_WORKER_MARK")) == 32
    assert seen == {
        "PATH": os.defpath,
        "COLOUR": "blue",
        "SHAPE": "round",
        "AIRUNNER_JOB_ID": log.job.job_id,
        "AIRUNNER_ATTEMPT": "1",
        "AIRUNNER_QUEUE": "q",
    }


async def test_an_attempt_gets_a_folder_of_its_own_that_is_removed(tmp_path: Path) -> None:
    async with working(tmp_path) as bench:
        log = await bench.do("sh", "-c", "pwd; touch file; mkdir sub; ls -a")
        folder, *listing = log.output().decode().splitlines()
        assert Path(folder).parent == bench.work_dir
        assert listing == [".", "..", "file", "sub"]
        assert list(bench.work_dir.iterdir()) == []


async def test_a_disk_that_hangs_holds_up_the_jobs_that_need_it_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging, answers, make = threading.Event(), threading.Event(), WorkFolders.make

    def make_late(folders: WorkFolders) -> WorkFolder:
        hanging.set()
        answers.wait()
        return make(folders)

    monkeypatch.setattr(WorkFolders, "make", make_late)
    async with working(tmp_path, concurrency=2) as bench:
        held_up = await bench.submit("true")
        await until(hanging.is_set)
        log = await bench.do("pwd", working_directory=str(tmp_path))
        assert log.output().decode().strip() == str(tmp_path)
        answers.set()
        assert (await bench.log_of(held_up)).result.success
        assert list(bench.work_dir.iterdir()) == []


async def test_a_given_folder_is_used_and_kept(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    async with working(tmp_path) as bench:
        log = await bench.do("sh", "-c", "pwd; echo kept > file", working_directory=str(tmp_path / "mine"))
    assert log.output().decode().strip() == str(tmp_path / "mine")
    assert (tmp_path / "mine" / "file").read_text() == "kept\n"


async def test_a_folder_that_cannot_be_made_is_a_result(tmp_path: Path) -> None:
    async with working(tmp_path, work_dir=tmp_path / "missing") as bench:
        log = await bench.do("true")
    assert log.result.error_message == "cannot make a working directory: No such file or directory"


async def test_a_terminal_is_all_standard_output(tmp_path: Path) -> None:
    script = "test -t 1 && echo terminal; echo err >&2"
    async with working(tmp_path) as bench:
        log = await bench.do("sh", "-c", script, process_type=ProcessType.PTY)
    assert log.output(StreamType.STDOUT) == b"terminal\nerr\n"


async def test_a_process_left_behind_with_the_pipe_is_said_to_be(tmp_path: Path) -> None:
    async with working(tmp_path) as bench:
        log = await bench.do("sh", "-c", "echo done; sleep 1000 & exit 0")
    assert log.result.outcome is Outcome.SUCCESS
    assert log.output() == b"done\n"
    assert len(log.errors) == 1
    assert "left behind" in log.errors[0]


async def test_several_jobs_at_once_and_queues_in_order(tmp_path: Path) -> None:
    async with working(tmp_path, concurrency=4, queues=("q", "later")) as bench:
        gate = tmp_path / "gate"
        os.mkfifo(gate)
        readers = [await bench.submit("sh", "-c", f"echo ready; cat {gate}") for _ in range(3)]
        for job_id in readers:
            await bench.first_output(job_id)
        log = await bench.do("echo", "not held up", queue="later")
        assert log.output() == b"not held up\n"
        gate.write_bytes(b"")
        for job_id in readers:
            assert (await bench.end_of(job_id)).state is JobState.COMPLETED
