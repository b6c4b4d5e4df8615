"""Attempts whose task token the server does not know any more."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from airunner import telemetry
from airunner.domain.errors import InvalidTaskToken
from airunner.domain.job import JobState
from airunner.testing.conditions import until
from tests.support.processes import until_gone
from tests.support.workers import working

# Says who it is, waits, prints so many lines, and stays or ends.
_PROGRAM = """
import os, sys, time
gate, lines, seconds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
print(os.getpid(), flush=True)
while not os.path.exists(gate):
    time.sleep(0.01)
print(("x" * 99 + chr(10)) * lines, flush=True)
time.sleep(seconds)
"""
MANY = 20_000
"""Lines that are more than one call carries."""


@pytest.mark.parametrize(
    ("lines", "seconds"), [(1, 600), (MANY, 600), (MANY, 0)], ids=["quiet", "loud", "ended"]
)
async def test_an_attempt_whose_token_is_refused_for_long_is_lost_and_its_slot_free(
    tmp_path: Path, lines: int, seconds: int
) -> None:
    gate, program = tmp_path / "gate", (sys.executable, "-I", "-S", "-c", _PROGRAM)
    options = {"refused_token_seconds": 1, "visibility_timeout_seconds": 3}
    async with working(tmp_path, **options) as bench:
        job_id = await bench.submit(*program, str(gate), str(lines), str(seconds), max_attempts=1)
        pid = int(await bench.first_output(job_id))
        dropped = telemetry.events_dropped.read()[()]
        bench.jobs.errors["update_job"] = bench.events.errors["publish_events"] = InvalidTaskToken
        gate.touch()
        await until_gone(pid)
        await until(lambda: bench.jobs.made["dequeue_jobs"] > 1)
        assert telemetry.events_dropped.read()[()] >= dropped + lines
        bench.jobs.errors.clear()
        bench.events.errors.clear()
        assert (await bench.do("true")).job.state is JobState.COMPLETED
        assert (await bench.services.jobs.get_job(job_id)).state is not JobState.COMPLETED
