"""How much later a watcher at another server has a line than one at the server that it was published to."""

from __future__ import annotations

import asyncio
import socket
import sys
import time

from airunner import AsyncClient
from airunner.domain.errors import AirunnerError
from airunner.domain.event import Output
from airunner.domain.job import JobParams
from benchmarks.harness import ROUNDS, Row, free_port, median, running

_TICKS, _TICK_SECONDS = 60, 0.15
_GOAL = 2.0
_READY_SECONDS = 180
_PRINT_THE_CLOCK = f"""
import time
time.sleep(1.5)
for _ in range({_TICKS}):
    print(time.monotonic_ns(), flush=True)
    time.sleep({_TICK_SECONDS})
"""


async def run() -> list[Row]:
    """Two servers on an emulated AWS, as `airunner dev --aws` starts them; the first is published to."""
    port = _two_free_ports()
    here, there = (f"http://127.0.0.1:{number}" for number in (port, port + 1))
    command = (sys.executable, "-m", "airunner.cli", "dev", "--aws", "--listen", f"127.0.0.1:{port}")
    same: list[float] = []
    other: list[float] = []
    with running(*command):
        async with AsyncClient(here) as first, AsyncClient(there) as second:
            await asyncio.gather(_until_ready(first), _until_ready(second))
            for _ in range(ROUNDS):
                same += await _watched_at(first, first)
                other += await _watched_at(first, second)
    ratio = median(other) / median(same)
    return [
        Row(
            name=f"a line each {_TICK_SECONDS * 1000:.0f} ms, to a watcher at another server, emulated AWS",
            measured=f"p50 {median(other):.1f} ms, p99 {_p99(other):.1f} ms",
            limit=f"p50 {median(same):.1f} ms, p99 {_p99(same):.1f} ms, at the same server",
            ratio=ratio,
            goal=f"<= {_GOAL:.1f}",
            met=ratio <= _GOAL,
        )
    ]


async def _watched_at(publishing: AsyncClient, watching: AsyncClient) -> list[float]:
    """Run a job that prints what the clock says; return how many milliseconds ago each line was printed."""
    job = await publishing.enqueue(JobParams(command=sys.executable, args=("-c", _PRINT_THE_CLOCK)))
    # The monotonic clock is the machine's, the same in every process.
    took = [
        (time.monotonic_ns() - int(event.data.output)) / 1e6
        async for event in watching.monitor(job.job_id)
        if isinstance(event.data, Output)
    ]
    if len(took) != _TICKS:
        raise RuntimeError(f"{len(took)} of {_TICKS} lines came")
    return took


async def _until_ready(client: AsyncClient) -> None:
    give_up_at = time.monotonic() + _READY_SECONDS
    while True:
        try:
            await client.list_workers()
            return
        except AirunnerError:
            if time.monotonic() > give_up_at:
                raise


def _two_free_ports() -> int:
    while True:
        port = free_port()
        try:
            with socket.create_server(("127.0.0.1", port + 1)):
                return port
        except OSError:
            continue


def _p99(values: list[float]) -> float:
    return sorted(values)[int(len(values) * 0.99)]
