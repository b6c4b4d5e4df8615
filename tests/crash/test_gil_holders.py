"""Handlers that keep the interpreter to themselves: they are named, and in processes they harm nobody."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airunner.domain.job import JobParams
from airunner.testing.conditions import until
from tests.support.processes import LIMIT_SECONDS, RunningProcess, Stack

_HANDLERS = '''
import re, time
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


def standstills(worker: RunningProcess) -> list[list[str]]:
    """Return the handlers that were blamed for each standstill of the loop."""
    lines = [line for line in worker.printed().splitlines() if '"loop.stood_still"' in line]
    return [json.loads(line)["handlers"] for line in lines]
