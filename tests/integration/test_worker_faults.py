"""A worker whose calls arrive and whose answers are lost; and what is on disk while the server is away."""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from airunner.client import AsyncClient
from airunner.codec.events import decode_event
from airunner.domain.clock import SystemClock
from airunner.domain.errors import Unavailable
from airunner.domain.event import OutputBatch
from airunner.domain.job import JobState
from airunner.domain.retry import RetryPolicy
from airunner.testing.conditions import until
from airunner.worker.publishing.spool_folder import SpoolFolder
from airunner.worker.publishing.spool_records import read_records
from airunner.worker.worker import Worker
from tests.support.faulty_proxy import FaultyProxy, faulty_proxy
from tests.support.serving import serve
from tests.support.workers import PATH, Bench, worker_options, working

# The worker itself shall see each fault.
NO_RETRY = RetryPolicy(attempts=1)
PRINT = "import sys\nfor n in range(120_000): sys.stdout.write(f'{n:07} ' + 'x' * 42 + '\\n')"
PRINTED = b"".join(b"%07d %s\n" % (n, b"x" * 42) for n in range(120_000))


class Divided:
    """One service, of which some calls go another way."""

    def __init__(self, default: Any, some: Any, *names: str) -> None:
        self._default, self._some, self._names = default, some, names

    def __getattr__(self, name: str) -> Any:
        return getattr(self._some if name in self._names else self._default, name)


@asynccontextmanager
async def working_through_a_proxy(bench: Bench, *lossy: str) -> AsyncIterator[FaultyProxy]:
    """Run a worker over RPC; the calls named `lossy` go through a proxy."""
    async with (
        serve(bench.services) as url,
        faulty_proxy(url) as proxy,
        AsyncClient(url) as direct,
        AsyncClient(proxy.url, retry=NO_RETRY) as faulty,
    ):
        options = worker_options(
            queues=("remote",),
            base_environment=PATH,
            work_dir=bench.work_dir,
            spool_folder=SpoolFolder(bench.work_dir.parent / "spool"),
        )
        service: Any = Divided(direct, faulty, *lossy)
        worker = Worker(service, service, SystemClock(), options)
        work = asyncio.create_task(worker.run())
        try:
            yield proxy
        finally:
            worker.stop()
            await work


async def test_publications_whose_answers_are_lost_are_neither_lost_nor_repeated(tmp_path: Path) -> None:
    async with working(tmp_path) as bench, working_through_a_proxy(bench, "publish_events") as proxy:
        # Each second connection loses its first answer, the others one of the next.
        limits = itertools.cycle((0, 300))
        proxy.answer_limit = lambda: next(limits)
        log = await bench.do(sys.executable, "-c", PRINT, queue="remote")
    assert log.output() == PRINTED
    assert (log.job.state, log.job.attempt) == (JobState.COMPLETED, 1)
    assert proxy.resets >= 5


async def test_a_completion_whose_answer_is_lost_ends_the_job_once(tmp_path: Path) -> None:
    async with working(tmp_path) as bench, working_through_a_proxy(bench, "complete_jobs") as proxy:
        limits: Iterator[int | None] = itertools.chain((0, 0, 0), itertools.repeat(None))
        proxy.answer_limit = lambda: next(limits)
        log = await bench.do("sh", "-c", "echo once; exit 3", queue="remote")
        await until(lambda: proxy.connections == 4)
        # The worker is fit for the next one.
        assert (await bench.do("echo", "next", queue="remote")).output() == b"next\n"
        assert (await bench.log_of(log.job.job_id)).job == log.job
    assert (log.job.state, log.job.attempt, log.result.exit_code) == (JobState.FAILED, 1, 3)
    assert log.output() == b"once\n"
    assert proxy.resets == 3


async def test_the_spool_holds_no_secret(tmp_path: Path) -> None:
    spool, secret = tmp_path / "spool", "hunter2-hunter2"
    script = "import os\nfor _ in range(120_000): os.write(1, b'the key is %s, yes\\n' % os.environb[b'KEY'])"
    async with working(tmp_path) as bench:
        bench.events.errors["publish_events"] = Unavailable
        job_id = await bench.submit(
            sys.executable, "-c", script, environment={"KEY": secret}, secret_names=("KEY",)
        )
        await until(lambda: any(file.stat().st_size for file in files(spool)), limit_seconds=60)
        (file,) = files(spool)
        raw, spooled = file.read_bytes(), output_in(file)
        assert b"the key is [redacted], yes\n" in spooled
        assert secret.encode() not in raw + spooled
        del bench.events.errors["publish_events"]
        log = await bench.log_of(job_id)
        await until(lambda: files(spool) == [])
    assert log.output() == b"the key is [redacted], yes\n" * 120_000


def files(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.exists() else []


def output_in(file: Path) -> bytes:
    """Everything that the events of a spool file show."""
    with file.open("rb") as stream:
        events = [decode_event(record) for record in read_records(stream)]
    batches = (event.data for event in events if isinstance(event.data, OutputBatch))
    return b"".join(output.output for batch in batches for output in batch.outputs)
