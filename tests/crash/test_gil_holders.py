"""Handlers that keep the interpreter to themselves: they are named, and in processes they harm nobody."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airunner.domain.job import JobParams, JobState
from airunner.testing.conditions import until
from tests.support.processes import LIMIT_SECONDS, RunningProcess, Stack, lives, until_gone

_HANDLERS = '''
import os, pathlib, re, subprocess, time
from airunner import handler

@handler("hold")
def hold_the_interpreter(payload):
    """Match an expression that goes back and forth, without a pause, until one took long enough."""
    length, took = 18, 0.0
    while took < payload:
        began = time.monotonic()
        re.match("(a|aa)+$", "a" * length + "b")
        took, length = time.monotonic() - began, length + 1
    return took

@handler("neighbour")
def wait_for(payload):
    while not pathlib.Path(payload).exists():
        time.sleep(0.05)

@handler("parent")
def parent(payload):
    child = subprocess.Popen(["setsid", "sleep", "600"])
    pathlib.Path(payload + ".new").write_text(f"{os.getpid()} {child.pid}")
    os.rename(payload + ".new", payload)
    time.sleep(600)
'''


@pytest.fixture
def handlers(tmp_path: Path) -> str:
    file = tmp_path / "holders.py"
    file.write_text(_HANDLERS)
    return str(file)


async def test_who_keeps_the_interpreter_is_named(stack: Stack, handlers: str) -> None:
    await stack.start_server()
    worker = await stack.start_worker("watched", "--handlers", handlers, "--visibility-timeout", "2")
    async with stack.client() as client:
        params = JobParams(handler="hold", payload_json="0.9")
        job_id = (await client.enqueue(params, max_attempts=1)).job_id
        named = [f"hold of job {job_id}"]
        # A machine that is busy may have had the loop stand still for other reasons before.
        await until(lambda: named in standstills(worker), limit_seconds=LIMIT_SECONDS)
    before = worker.printed().partition(named[0])[0]
    assert "in hold_the_interpreter" in before, "the stacks were shown while it stood still"


@pytest.mark.slow
async def test_in_a_process_of_its_own_it_lets_no_job_lapse(stack: Stack, handlers: str) -> None:
    await stack.start_server()
    options = ("--concurrency", "2", "--handler-processes", "2", "--visibility-timeout", "2")
    worker = await stack.start_worker("apart", "--handlers", handlers, *options)
    gate = stack.folder / "gate"
    async with stack.client() as client:
        neighbour = await client.enqueue(JobParams(handler="neighbour", payload_json=json.dumps(str(gate))))
        holder = await client.enqueue(JobParams(handler="hold", payload_json="2.5"))
        held = await client.wait_for_end(holder.job_id)
        gate.touch()
        beside = await client.wait_for_end(neighbour.job_id)
    assert held.result is not None
    assert float(held.result.output_json) > 2, "longer than the visibility"
    for job in (held, beside):
        assert (job.state, job.attempt) == (JobState.COMPLETED, 1)
    assert [f"hold of job {holder.job_id}"] not in standstills(worker)


@pytest.mark.slow
async def test_kill_9_of_the_worker_takes_handler_processes_and_what_they_started_along(
    stack: Stack, handlers: str
) -> None:
    await stack.start_server()
    worker = await stack.start_worker("doomed", "--handlers", handlers, "--handler-processes", "1")
    pids = stack.folder / "pids"
    async with stack.client() as client:
        await client.enqueue(JobParams(handler="parent", payload_json=json.dumps(str(pids))), max_attempts=1)
    await until(pids.exists, limit_seconds=LIMIT_SECONDS)
    processes = [int(pid) for pid in pids.read_text().split()]
    assert all(map(lives, processes))
    await worker.kill()
    for pid in processes:
        await until_gone(pid)


def standstills(worker: RunningProcess) -> list[list[str]]:
    """Return the handlers that were blamed for each standstill of the loop."""
    lines = [line for line in worker.printed().splitlines() if '"loop.stood_still"' in line]
    return [json.loads(line)["handlers"] for line in lines]
