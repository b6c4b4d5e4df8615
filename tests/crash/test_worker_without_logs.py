"""Workers whose standard error is a pipe that nobody reads, or a file on a disk without room."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from airunner.client import AsyncClient
from airunner.domain.event import Output
from airunner.domain.job import JobParams, JobState
from airunner.testing.conditions import until
from tests.support.processes import COMMAND, LIMIT_SECONDS, Stack, until_gone

# A disk of its own for one process, full from the start, with the process's standard error on it.
FULL_DISK = """
mount -t tmpfs -o size=1m none "$1" || exit 77
export TMPDIR="$1"
exec 2>>"$1/worker.log"
dd if=/dev/zero of="$1/filling" bs=64k count=100 2>/dev/null
shift && exec "$@"
"""
CLOSED = ("sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh")
UNSHARED = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", FULL_DISK, "sh")


@contextmanager
def worker_of(stack: Stack, *, stderr: int, through: Sequence[str] = ()) -> Iterator[subprocess.Popen[bytes]]:
    command = [*through, *COMMAND, "worker", "--server", stack.url, "--visibility-timeout", "2"]
    environment = {**os.environ, "TMPDIR": str(stack.folder)}
    worker = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=stderr, stderr=stderr, env=environment
    )
    try:
        yield worker
    finally:
        worker.kill()
        worker.wait()


@contextmanager
def unread_pipe() -> Iterator[int]:
    reader, writer = os.pipe()
    os.close(reader)
    yield writer
    os.close(writer)


async def run(client: AsyncClient, script: str) -> str:
    """Do a job, which has to run once; return what it printed."""
    job_id = (await client.enqueue(JobParams(command="sh", args=("-c", script)))).job_id
    job = await client.wait_for_end(job_id)
    outputs = [event.data.output async for event in client.monitor(job_id) if isinstance(event.data, Output)]
    printed = b"".join(outputs).decode()
    assert (job.state, job.attempt) == (JobState.COMPLETED, 1), printed
    return printed


async def ended(worker: subprocess.Popen[bytes]) -> int:
    await until(lambda: worker.poll() is not None, limit_seconds=LIMIT_SECONDS)
    return worker.returncode


async def test_a_worker_whose_log_nobody_reads_does_its_jobs_and_ends_when_told(stack: Stack) -> None:
    await stack.start_server()
    async with stack.client() as client:
        with unread_pipe() as stderr, worker_of(stack, stderr=stderr) as worker:
            assert await run(client, "echo done") == "done\n"
            assert await run(client, "sleep 3; echo late") == "late\n"  # longer than its visibility
            worker.send_signal(signal.SIGTERM)
            assert await ended(worker) == 0


async def test_a_worker_without_standard_streams_takes_all_descendants_of_its_jobs_along(
    stack: Stack,
) -> None:
    await stack.start_server()
    pids = stack.folder / "pids"
    script = f"setsid sh -c 'echo $$ >{pids}.new; mv {pids}.new {pids}; exec sleep 777' & wait"
    async with stack.client() as client:
        with worker_of(stack, stderr=subprocess.DEVNULL, through=CLOSED) as worker:
            await client.enqueue(JobParams(command="sh", args=("-c", script)), max_attempts=1)
            await until(pids.exists, limit_seconds=LIMIT_SECONDS)
            worker.send_signal(signal.SIGKILL)
            await until_gone(int(pids.read_text()))


@pytest.mark.slow
async def test_a_worker_whose_log_is_on_a_full_disk_works_and_goes_on_logging_when_there_is_room(
    stack: Stack, tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run([*UNSHARED, disk, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this machine does not let us mount")
    await stack.start_server()
    async with stack.client() as client:
        with worker_of(stack, stderr=subprocess.DEVNULL, through=(*UNSHARED, str(disk))) as worker:
            assert await run(client, f"echo x >{disk}/more 2>/dev/null || echo full") == "full\n"
            assert await run(client, f"cat {disk}/worker.log; sleep 3; echo late") == "late\n"
            await run(client, f"rm {disk}/filling")
            assert '"job.start"' in await run(client, f"cat {disk}/worker.log")
            worker.send_signal(signal.SIGTERM)
            assert await ended(worker) == 0
