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
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from airunner.codec.gen.job.v1 import job_pb2 as pb
from airunner.codec.gen.job.v1.job_connect import JobEventsServiceClient, JobServiceClient

T = TypeVar("T")
ROUNDS = 3
ROOT = Path(__file__).resolve().parent.parent
_CORES = os.sched_getaffinity(0)
_START_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One promise, and what was measured for it; without a limit and a goal, it is only told.

    `cpu_ratio` is the ratio by CPU time where `ratio` is that by the clock.
    """

    name: str
    measured: str
    limit: str = ""
    ratio: float | None = None
    cpu_ratio: float | None = None
    goal: str = ""
    met: bool = True


@dataclass(frozen=True, slots=True)
class Service:
    """A running server and clients for it."""

    jobs: JobServiceClient
    events: JobEventsServiceClient
    pid: int
    directory: Path
    url: str


@contextmanager
def folder() -> Iterator[Path]:
    """A folder beside the project, so that every measurement uses the same disk."""
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=ROOT) as name:
        yield Path(name)


@asynccontextmanager
async def server(*, own_core: bool = True) -> AsyncIterator[Service]:
    """A server on SQLite in a process of its own, on a core of its own or wherever the kernel puts it."""
    with folder() as directory, a_core_each() if own_core else nullcontext(_any_core) as start:
        port = free_port()
        process = start(lambda: _start(port, directory / "data"))
        url = f"http://127.0.0.1:{port}"
        jobs = JobServiceClient(url, send_compression=None, accept_compression=[])
        events = JobEventsServiceClient(url, send_compression=None, accept_compression=[])
        try:
            await _until_ready(jobs)
            yield Service(jobs, events, process.pid, directory / "data", url)
        finally:
            end(process)


@contextmanager
def running(*command: str, environment: Mapping[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process on the load's cores while the block runs; what it says is shown if the block fails."""
    with tempfile.TemporaryFile() as words:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=words,
            stderr=words,
            start_new_session=True,
        )
        try:
            yield process
        except BaseException:
            words.seek(0)
            print(f"$ {' '.join(command)}\n{words.read().decode(errors='replace')[-4000:]}", file=sys.stderr)
            raise
        finally:
            end(process)
            with suppress(ProcessLookupError):
                # Children that it left behind are in its group, with nobody else.
                os.killpg(process.pid, signal.SIGKILL)


def worker(
    url: str, *options: str, environment: Mapping[str, str] | None = None
) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """A worker in a process of its own."""
    command = (sys.executable, "-m", "airunner.cli", "worker", "--server", url, "--log-level", "warning")
    return running(*command, *options, environment=environment)


def end(process: subprocess.Popen[bytes]) -> None:
    """Ask a process to end, and see to it that it does."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def rate_row(
    name: str,
    measured: list[float],
    limit: list[float],
    *,
    units: tuple[str, str],
    beside: str,
    at_least: float,
    wished: float | None = None,
) -> Row:
    """Return the row of a rate, beside that of what limits it, each with its unit.

    Each side has its own best round: a limit that was disturbed flatters nobody.
    """
    here, there = max(measured), max(limit)
    return Row(
        name=name,
        measured=f"{here:,.0f} {units[0]}/s",
        limit=f"{there:,.0f} {units[1]}/s, {beside}",
        ratio=here / there,
        goal=f">= {at_least:.2f}" + (f" ({wished:g} wished)" if wished else ""),
        met=here / there >= at_least,
    )


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
def a_core_each() -> Iterator[Callable[[Callable[[], T]], T]]:
    """Give what is started in here the first core and the load the others, where there are two or more.

    Otherwise a row tells how often the kernel moved three threads between two cores. One may be within
    another: what both start shares the first core.
    """
    before = os.sched_getaffinity(0)
    first, rest = {min(_CORES)}, _CORES - {min(_CORES)}

    def start(launch: Callable[[], T]) -> T:
        _move_to(first)
        launched = launch()
        _move_to(rest or first)
        return launched

    try:
        yield start
    finally:
        _move_to(before)


async def until_listening(port: int) -> None:
    """Return once somebody listens at a port of loopback."""
    for _ in range(200):
        with suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return
        await asyncio.sleep(0.05)
    raise RuntimeError("the process did not come up")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def _any_core(launch: Callable[[], T]) -> T:
    return launch()


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


async def _until_ready(jobs: JobServiceClient) -> None:
    give_up_at = time.monotonic() + _START_SECONDS
    while time.monotonic() < give_up_at:
        try:
            await jobs.list_workers(pb.ListWorkersRequest(), timeout_ms=1000)
            return
        except Exception:  # noqa: BLE001  not up yet
            await asyncio.sleep(0.05)
    raise RuntimeError("the server did not come up")
