"""What a job says, on its way from its process to whoever watches."""

from __future__ import annotations

import asyncio
import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path

from airunner import AsyncClient
from airunner.domain.event import Output
from airunner.domain.job import JobParams, JobState
from benchmarks.harness import ROOT, ROUNDS, Row, folder, median, rate_row, server, worker

_JOBS, _LINES_EACH = 100, 1_000
_FLOOD_LINES = 1_000_000
_TICKS, _TICK_SECONDS = 150, 0.15

_PRINT_THE_CLOCK = f"""
import time
for _ in range({_TICKS}):
    print(time.monotonic_ns(), flush=True)
    time.sleep({_TICK_SECONDS})
"""


async def run() -> list[Row]:
    """All of them, each with its limit measured in the same minute."""
    return [
        await many_watched_jobs(),
        await flood(),
        await from_write_to_watcher(),
    ]


async def many_watched_jobs() -> Row:
    """100 jobs that write 1,000 lines at the same time, each watched; every watcher's bytes are compared."""
    with folder() as directory:
        gate = directory / "gate"
        os.mkfifo(gate)
        async with server() as service, AsyncClient(service.url) as client:
            with worker(service.url, "--concurrency", str(_JOBS)):
                took = await _watch_all(client, gate)
    return Row(
        name=f"{_JOBS} jobs of {_LINES_EACH:,} lines at once, each watched",
        measured=f"{took:.2f} s, {_JOBS * _LINES_EACH / took:,.0f} lines/s",
    )


async def flood() -> Row:
    """A worker reads, numbers, stamps and publishes short lines, against reading and forgetting them."""
    command = ("seq", "1", str(_FLOOD_LINES))
    expected = hashlib.sha256(b"".join(b"%d\n" % n for n in range(1, _FLOOD_LINES + 1))).digest()
    measured, limit = [], []
    async with server() as service, AsyncClient(service.url) as client:
        with worker(service.url):
            await client.run("true")
            for _ in range(ROUNDS):
                limit.append(await asyncio.to_thread(_bare_lines_per_second, command))
                began = time.perf_counter()
                job = await client.run(*command)
                measured.append(_FLOOD_LINES / (time.perf_counter() - began))
                if not job.result or job.result.output_sha256 != expected:
                    raise RuntimeError("the flood did not arrive as it was written")
    return rate_row(
        f"a flood of {_FLOOD_LINES:,} short lines, published",
        measured,
        limit,
        units=("lines", "lines"),
        beside="a bare asyncio readline loop",
        at_least=0.20,
    )


async def from_write_to_watcher() -> Row:
    """From a process's write to its watcher's hands: the process writes what its clock says."""
    params = JobParams(command=sys.executable, args=("-c", _PRINT_THE_CLOCK))
    async with server() as service, AsyncClient(service.url) as client:
        with worker(service.url):
            job = await client.enqueue(params)
            # The monotonic clock is the machine's, the same in every process.
            took = sorted(
                [
                    (time.monotonic_ns() - int(event.data.output)) / 1e6
                    async for event in client.monitor(job.job_id)
                    if isinstance(event.data, Output)
                ]
            )
    if len(took) != _TICKS:
        raise RuntimeError(f"{len(took)} of {_TICKS} lines came")
    return Row(
        name=f"from a process's write to its watcher, a line each {_TICK_SECONDS * 1000:.0f} ms",
        measured=f"p50 {median(took):.2f} ms, p99 {took[int(len(took) * 0.99)]:.2f} ms",
    )


async def _watch_all(client: AsyncClient, gate: Path) -> float:
    """Start the jobs, open their gate once every watcher has heard of its job, and wait for all."""
    # A reader waits in opening a FIFO until somebody opens it for writing.
    script = f'echo ready; : < "$1"; seq 1 {_LINES_EACH}'
    params = JobParams(command="sh", args=("-c", script, "sh", str(gate)))
    jobs = [(await client.enqueue(params)).job_id for _ in range(_JOBS)]
    ready = asyncio.Semaphore(0)
    watchers = [asyncio.create_task(_watch(client, job_id, ready)) for job_id in jobs]
    for _ in range(_JOBS):
        await ready.acquire()
    began = time.perf_counter()
    # While it is held open, those who come late are let through as well.
    opened = await asyncio.to_thread(os.open, gate, os.O_WRONLY)
    seen = await asyncio.gather(*watchers)
    took = time.perf_counter() - began
    os.close(opened)
    expected = b"ready\n" + b"".join(b"%d\n" % number for number in range(1, _LINES_EACH + 1))
    states = {(await client.get_job(job_id)).state for job_id in jobs}
    if states != {JobState.COMPLETED} or set(seen) != {expected}:
        raise RuntimeError(f"states {states}; exact for {seen.count(expected)} of {_JOBS} watchers")
    return took


async def _watch(client: AsyncClient, job_id: str, ready: asyncio.Semaphore) -> bytes:
    seen: list[bytes] = []
    async for event in client.monitor(job_id):
        if isinstance(event.data, Output):
            if not seen:
                ready.release()
            seen.append(event.data.output)
    return b"".join(seen)


def _bare_lines_per_second(command: tuple[str, ...]) -> float:
    bare_loop = [sys.executable, "-m", "benchmarks.bare_readline", *command]
    return float(subprocess.run(bare_loop, cwd=ROOT, capture_output=True, text=True, check=True).stdout)
