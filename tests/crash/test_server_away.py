"""A server that is away for long while a job prints more than memory should hold."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airunner.client import AsyncClient, LogProof, VerdictKind
from airunner.domain.event import Output, Position
from airunner.domain.job import JobParams, JobState
from airunner.testing.conditions import until
from tests.support.processes import LIMIT_SECONDS, RunningProcess, Stack, peak_resident_bytes, resident_bytes

pytestmark = pytest.mark.slow

MEBIBYTE = 1024 * 1024
SIZES = [15, pytest.param(100, marks=[pytest.mark.long, pytest.mark.timeout(600)])]

# Says that it is there, waits, prints so many bytes that do not compress well, and says so in a file.
_PRINTER = """
import hashlib, os, sys, time
gate, done, total = sys.argv[1], sys.argv[2], int(sys.argv[3])
os.write(1, b"ready\\n")
while not os.path.exists(gate):
    time.sleep(0.02)
seed, digest = b"", hashlib.sha256(b"ready\\n")
while total > 0:
    seed = hashlib.sha256(seed).digest()
    text = (seed.hex() + "\\n").encode() * 4 + b"\\xff" * (seed[0] % 64) + b"\\n"
    digest.update(text)
    total -= len(text)
    while text:
        text = text[os.write(1, text):]
with open(done + ".new", "w") as file:
    file.write(digest.hexdigest())
os.rename(done + ".new", done)
"""


class Printing:
    """A job that prints much as soon as it may, and what its watcher has seen."""

    def __init__(self, stack: Stack, client: AsyncClient, mebibytes: int) -> None:
        self.gate, self.done = stack.folder / "gate", stack.folder / "done"
        self.spool = stack.folder / f"airunner-spool-{os.getuid()}"
        self._client = client
        args = ("-I", "-S", "-c", _PRINTER, str(self.gate), str(self.done), str(mebibytes * MEBIBYTE))
        self.params = JobParams(command=sys.executable, args=args)
        self.job_id = ""
        self.proof = LogProof()
        self.digest = hashlib.sha256()

    async def begin(self) -> None:
        """Submit the job and return once it has said a first word."""
        self.job_id = (await self._client.enqueue(self.params)).job_id
        async for event in self._client.monitor(self.job_id):
            if isinstance(event.data, Output):
                return

    async def watch(self) -> None:
        """Watch the job to its end."""
        async for event in self._client.monitor(self.job_id):
            self.proof.see(event)
            if isinstance(event.data, Output):
                self.digest.update(event.data.output)

    def spooled(self) -> int:
        """How many bytes there are in the files of the spool."""
        return sum(file.stat().st_size for file in self._files())

    def _files(self) -> Iterator[Path]:
        return self.spool.iterdir() if self.spool.exists() else iter(())


@pytest.mark.parametrize("mebibytes", SIZES)
async def test_a_job_prints_on_while_the_server_is_away_and_every_byte_arrives(
    stack: Stack, mebibytes: int
) -> None:
    await stack.start_server()
    worker = await stack.start_worker("steady")
    async with stack.client() as client:
        printing = Printing(stack, client, mebibytes)
        await printing.begin()
        assert printing.spooled() == 0

        await stack.kill_server()
        before = resident_bytes(worker.pid)
        printing.gate.touch()
        # All of it is printed: nothing had to wait for the server.
        await until(printing.done.exists, limit_seconds=300)
        assert printing.spooled() > MEBIBYTE
        await stack.start_server()
        await printing.watch()
        job = await client.wait_for_end(printing.job_id)

    assert peak_resident_bytes(worker.pid) - before < 64 * MEBIBYTE
    assert (job.state, job.attempt) == (JobState.COMPLETED, 1)
    assert job.result is not None
    verdict = printing.proof.verdict(Position(job.attempt, job.result.final_sequence))
    assert verdict.kind is VerdictKind.COMPLETE, verdict.detail
    assert printing.digest.hexdigest() == printing.done.read_text()
    assert list(printing.spool.iterdir()) == []
    assert len(logged(worker, "spool.start")) == len(logged(worker, "spool.end")) == 1


async def test_what_a_killed_worker_left_is_reported_and_removed_by_the_next(stack: Stack) -> None:
    await stack.start_server()
    doomed = await stack.start_worker("doomed", "--visibility-timeout", "2")
    async with stack.client() as client:
        printing = Printing(stack, client, 15)
        await printing.begin()
        await stack.kill_server()
        printing.gate.touch()
        await until(lambda: printing.spooled() > MEBIBYTE, limit_seconds=LIMIT_SECONDS)
        await doomed.kill()
        left = printing.spooled()

        await stack.start_server()
        rescuer = await stack.start_worker("rescuer", "--visibility-timeout", "2")
        await rescuer.until_said("spool.left_behind")
        job = await client.wait_for_end(printing.job_id)
        await printing.watch()

    (report,) = logged(rescuer, "spool.left_behind")
    assert (report["job_id"], report["attempt"], report["bytes"]) == (printing.job_id, 1, left)
    assert report["events"] > 1000
    assert list(printing.spool.iterdir()) == []
    assert (job.state, job.attempt, job.life.worker_id) == (JobState.COMPLETED, 2, "rescuer")
    last = printing.proof.attempts()[-1]
    assert (last.attempt, last.kind) == (2, VerdictKind.COMPLETE)


def logged(process: RunningProcess, name: str) -> list[dict[str, Any]]:
    """What a process has logged under a name."""
    lines = [json.loads(line) for line in process.printed().splitlines() if line.startswith("{")]
    return [line for line in lines if line["event"] == name]
