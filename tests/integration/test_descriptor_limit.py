"""Descriptors: server and worker take what they can get, jobs have what the worker was started with."""

from __future__ import annotations

import asyncio
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from airunner.client import AsyncClient
from airunner.domain.event import Output
from airunner.domain.job import JobParams
from tests.support.processes import RunningProcess, unused_port

SOFT, HARD = 900, 1500
LIMITED = ("sh", "-c", f'ulimit -Sn {SOFT}; ulimit -Hn {HARD}; exec "$@"', "sh")


@contextmanager
def limited(folder: Path, *command: str) -> Iterator[RunningProcess]:
    process = RunningProcess(
        *command, log=folder / f"{command[0]}.log", environment={"TMPDIR": str(folder)}, through=LIMITED
    )
    try:
        yield process
    finally:
        process.abandon()


async def test_jobs_have_the_limits_that_their_worker_was_started_with(tmp_path: Path) -> None:
    listen = f"127.0.0.1:{unused_port()}"
    data = ("--data-dir", str(tmp_path / "data"))
    script = "echo $(ulimit -Sn) $(ulimit -Hn)"
    with (
        limited(tmp_path, "dev", "--listen", listen, *data) as dev,
        limited(tmp_path, "worker", "--server", f"http://{listen}", "--queue", "other") as worker,
    ):
        await asyncio.gather(dev.until_said("dev ready"), worker.until_said("worker serves"))
        async with AsyncClient(f"http://{listen}") as client:
            for queue in ("default", "other"):
                job = JobParams(command="sh", args=("-c", script))
                job_id = (await client.enqueue(job, queue=queue)).job_id
                events = [event.data async for event in client.monitor(job_id)]
                printed = [data.output for data in events if isinstance(data, Output)]
                assert printed == [f"{SOFT} {HARD}\n".encode()]
        for process in (dev, worker):
            assert resource.prlimit(process.pid, resource.RLIMIT_NOFILE) == (HARD, HARD)
        worker.send(signal.SIGTERM)
        assert await worker.ended() == 0
