"""Sync handlers in processes of their own: everything works as in threads, and what dies there dies alone."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from airunner.domain.event import Progress, StreamType
from airunner.domain.job import JobState, Outcome
from airunner.handlers.loading import load_handlers
from tests.support.processes import lives, until_gone
from tests.support.workers import PATH, Bench, working

_HANDLERS = """
import ctypes, logging, os, signal, subprocess, sys, time
from airunner import Context, PermanentFailure, handler

@handler("talk")
def talk(payload: dict, ctx: Context) -> dict:
    print("out")
    print("err", file=sys.stderr)
    logging.getLogger("talk").info("logged")
    ctx.log("said", by=ctx.queue)
    ctx.progress(1, 2, "half")
    print("unfinished", end="")
    secret = ctx.environment.get("TOKEN", "")
    print(f" {secret}")
    total = payload["a"] + payload["b"]
    known = {"owner": ctx.owner, "attempt": ctx.attempt, "request": ctx.request_id, "last": ctx.last_try}
    return {"pid": os.getpid(), "sum": total, **known}

@handler("flood")
def flood() -> None:
    for number in range(3_000):
        print("x" * 999)

@handler("fail")
def fail(payload: str) -> None:
    if payload == "permanent":
        raise PermanentFailure("no_credit", "the account is empty")
    if payload == "text":
        raise ValueError("DLQ:no_credit: the account is empty")
    if payload == "leave":
        sys.exit(3)
    raise ValueError("no good")

@handler("die")
def die(payload: str) -> None:
    print("last words", flush=True)
    if payload == "exit":
        os._exit(7)
    if payload == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    ctypes.string_at(0)

@handler("wait")
def wait(ctx: Context) -> None:
    print(os.getpid(), flush=True)
    if ctx.wait(60):
        print("told")

@handler("deaf")
def deaf() -> None:
    child = subprocess.Popen(["sleep", "600"])
    print(os.getpid(), child.pid, flush=True)
    while True:
        time.sleep(0.05)

@handler("later")
async def later() -> int:
    return os.getpid()
"""


@asynccontextmanager
async def processes(tmp_path: Path, **options: Any) -> AsyncIterator[Bench]:
    file = tmp_path / "tools.py"
    file.write_text(_HANDLERS)
    defaults: dict[str, Any] = {
        "handlers": load_handlers([str(file)]),
        "handler_sources": (str(file),),
        "handler_processes": 1,
        "base_environment": {**PATH, "WHO": "worker"},
    }
    async with working(tmp_path, **defaults | options) as bench:
        yield bench


async def test_everything_works_there(tmp_path: Path) -> None:
    async with processes(tmp_path) as bench:
        params: dict[str, Any] = {
            "payload_json": '{"a": 1, "b": 2}',
            "environment": {"TOKEN": "open-sesame"},
            "secret_names": ("TOKEN",),
            "owner": "me",
        }
        log = await bench.do(handler="talk", **params)
        assert log.job.state is JobState.COMPLETED
        known = f'"sum":3,"owner":"me","attempt":1,"request":"{log.job.request_id}","last":false'
        assert known in log.result.output_json
        assert log.output(StreamType.STDOUT) == b"out\nsaid by=q\nunfinished [redacted]\n"
        assert log.output(StreamType.STDERR) == b"err\nINFO talk: logged\n"
        assert [event.data for event in log.events if isinstance(event.data, Progress)] == [
            Progress(done=1, total=2, message="half")
        ]
        assert f'"pid":{os.getpid()},' not in log.result.output_json
        again = await bench.do(handler="talk", **params)
        pids = [json.loads(one.result.output_json)["pid"] for one in (log, again)]
        assert pids[0] == pids[1], "the process was used again"
        assert (await bench.do(handler="later")).result.output_json == str(os.getpid())
        assert (await bench.do(handler="flood")).output() == (b"x" * 999 + b"\n") * 3_000


async def test_errors_read_as_in_threads(tmp_path: Path) -> None:
    async with processes(tmp_path) as bench:
        expected = {
            "permanent": ("no_credit: the account is empty", "no_credit: the account is empty"),
            "text": ("no_credit: the account is empty", "no_credit: the account is empty"),
            "leave": ("HandlerEnded: the handler ended by SystemExit: 3", "sys.exit(3)"),
            "other": ("ValueError: no good", 'raise ValueError("no good")'),
        }
        for payload, (summary, details) in expected.items():
            log = await bench.log_of(
                await bench.submit(handler="fail", payload_json=f'"{payload}"', max_attempts=1)
            )
            assert (log.job.state, log.result.error_message) == (JobState.FAILED, summary)
            assert details in log.errors[0]
            assert "child.py" not in log.errors[0]


@pytest.mark.parametrize(
    ("way", "how"), [("exit", "exited with 7"), ("kill", "was killed by SIGKILL"), ("fault", "SIGSEGV")]
)
async def test_a_process_that_dies_ends_its_own_job_and_is_replaced(
    tmp_path: Path, way: str, how: str
) -> None:
    async with processes(tmp_path) as bench:
        job_id = await bench.submit(handler="die", payload_json=f'"{way}"', max_attempts=1)
        log = await bench.log_of(job_id)
        assert (log.job.state, log.result.outcome) == (JobState.FAILED, Outcome.FAILURE)
        assert how in log.result.error_message
        assert log.output() == b"last words\n"
        log = await bench.do(handler="talk", payload_json='{"a": 1, "b": 2}')
        assert (log.job.state, log.job.attempt) == (JobState.COMPLETED, 1)


async def test_a_cancelled_handler_is_told(tmp_path: Path) -> None:
    async with processes(tmp_path) as bench:
        job_id = await bench.submit(handler="wait")
        pid = int(await bench.first_output(job_id))
        await bench.services.jobs.cancel_job(job_id)
        log = await bench.log_of(job_id)
        assert log.job.state is JobState.CANCELLED
        assert log.output().endswith(b"told\n")
        assert lives(pid), "a handler that listens costs no process"


async def test_a_time_out_kills_the_process_and_what_it_started_and_frees_the_slot(tmp_path: Path) -> None:
    async with processes(tmp_path, grace_seconds=0) as bench:
        job_id = await bench.submit(handler="deaf", timeout_seconds=2)
        pids = [int(word) for word in (await bench.first_output(job_id)).split()]
        # Not even what tells it to end is read any more.
        os.kill(pids[0], signal.SIGSTOP)
        log = await bench.log_of(job_id)
        assert (log.result.outcome, log.result.error_message) == (Outcome.TIMEOUT, "timed out after 2 s")
        for pid in pids:
            await until_gone(pid)
        log = await bench.do(handler="talk", payload_json='{"a": 1, "b": 2}')
        assert log.job.state is JobState.COMPLETED


async def test_a_process_that_dies_while_it_has_nothing_to_do_costs_nothing(tmp_path: Path) -> None:
    async with processes(tmp_path) as bench:
        job_id = await bench.submit(handler="wait")
        pid = int(await bench.first_output(job_id))
        await bench.services.jobs.cancel_job(job_id)
        await bench.end_of(job_id)
        os.kill(pid, signal.SIGKILL)
        log = await bench.do(handler="talk", payload_json='{"a": 1, "b": 2}')
        assert (log.job.state, log.job.attempt, len(log.errors)) == (JobState.COMPLETED, 1, 0)


async def test_a_process_that_cannot_load_its_handlers_says_why(tmp_path: Path) -> None:
    async with processes(tmp_path, handler_sources=(str(tmp_path / "gone.py"),)) as bench:
        job_id = await bench.submit(handler="talk", payload_json='{"a": 1, "b": 2}', max_attempts=1)
        log = await bench.log_of(job_id)
        assert log.job.state is JobState.FAILED
        assert "is no file or folder" in log.result.error_message


async def test_more_calls_than_processes_wait_and_a_stopped_one_never_begins(tmp_path: Path) -> None:
    async with processes(tmp_path, concurrency=3, grace_seconds=0.2) as bench:
        first = await bench.submit(handler="wait")
        await bench.first_output(first)
        second, third = [await bench.submit(handler="wait") for _ in range(2)]
        await bench.services.jobs.cancel_job(second)
        assert (await bench.end_of(second)).state is JobState.CANCELLED
        for job_id in (first, third):
            await bench.first_output(job_id)
            await bench.services.jobs.cancel_job(job_id)
            assert (await bench.end_of(job_id)).state is JobState.CANCELLED
        assert (await bench.log_of(second)).output() == b""
        assert len((await bench.log_of(third)).events) > 3, "it had its turn"


async def test_the_end_of_the_worker_is_theirs(tmp_path: Path) -> None:
    async with processes(tmp_path, drain_seconds=0, grace_seconds=0) as bench:
        job_id = await bench.submit(handler="deaf")
        pids = [int(word) for word in (await bench.first_output(job_id)).split()]
        bench.worker.stop()
        await bench.work
        for pid in pids:
            await until_gone(pid)
        assert (await bench.services.jobs.get_job(job_id)).state is JobState.SCHEDULED
