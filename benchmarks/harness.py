"""What every benchmark needs: a server in a process of its own, a clock, and a row for the table."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from airunner.codec.gen.job.v1 import job_pb2 as pb
from airunner.codec.gen.job.v1.job_connect import JobEventsServiceClient, JobServiceClient

T = TypeVar("T")
ROUNDS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One promise, and what was measured for it."""

    name: str
    measured: str
    limit: str
    ratio: float
    goal: str
    met: bool


@dataclass(frozen=True, slots=True)
class Service:
    """A running server and clients for it."""

    jobs: JobServiceClient
    events: JobEventsServiceClient
    pid: int
    directory: Path


@contextmanager
def folder() -> Iterator[Path]:
    """A folder beside the project, so that every measurement uses the same disk."""
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=Path(__file__).resolve().parent.parent) as name:
        yield Path(name)


@asynccontextmanager
async def server() -> AsyncIterator[Service]:
    """A server on SQLite in a process of its own, on a core of its own."""
    with folder() as directory, _a_core_each() as start:
        port = _free_port()
        process = start(lambda: _start(port, directory / "data"))
        url = f"http://127.0.0.1:{port}"
        jobs = JobServiceClient(url, send_compression=None, accept_compression=[])
        events = JobEventsServiceClient(url, send_compression=None, accept_compression=[])
        try:
            await _until_ready(jobs)
            yield Service(jobs, events, process.pid, directory / "data")
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


def best_of_each(measured: list[float], limit: list[float]) -> tuple[float, float, float]:
    """Return the ratio of the best rate to the best limit, and the two rates.

    Each side has its own best round: a limit that was disturbed flatters nobody.
    """
    return max(measured) / max(limit), max(measured), max(limit)


def median(values: list[float]) -> float:
    """The middle value."""
    return sorted(values)[len(values) // 2]


async def rate(requests: Sequence[T], concurrency: int, call: Callable[[T], Awaitable[object]]) -> float:
    """Make a call for each request from so many tasks; return calls per second."""
    waiting = iter(requests)

    async def lane() -> None:
        for request in waiting:
            await call(request)

    began = time.perf_counter()
    await asyncio.gather(*(lane() for _ in range(concurrency)))
    return len(requests) / (time.perf_counter() - began)


def resident_bytes(pid: int) -> int:
    """The resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def _a_core_each() -> Iterator[Callable[[Callable[[], T]], T]]:
    """Give what is started in here the first core and the load the others, where there are two or more.

    Otherwise a row tells how often the kernel moved three threads between two cores.
    """
    cores = os.sched_getaffinity(0)
    first, rest = {min(cores)}, cores - {min(cores)}

    def start(launch: Callable[[], T]) -> T:
        _move_to(first)
        launched = launch()
        _move_to(rest or first)
        return launched

    try:
        yield start
    finally:
        _move_to(cores)


def _move_to(cores: set[int]) -> None:
    for thread in Path("/proc/self/task").iterdir():
        os.sched_setaffinity(int(thread.name), cores)


def _start(port: int, directory: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "airunner.cli", "server", "--no-auth"),
            *("--listen", f"127.0.0.1:{port}", "--data-dir", str(directory)),
        ],
        stderr=subprocess.DEVNULL,
    )


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


async def _until_ready(jobs: JobServiceClient) -> None:
    for _ in range(200):
        try:
            await jobs.list_workers(pb.ListWorkersRequest(), timeout_ms=1000)
            return
        except Exception:  # noqa: BLE001  not up yet
            await asyncio.sleep(0.05)
    raise RuntimeError("the server did not come up")
