"""A worker on the real services in memory, with real processes, for tests."""

from __future__ import annotations

import asyncio
import hashlib
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from airunner.domain.answers import Enqueued
from airunner.domain.clock import SystemClock
from airunner.domain.event import Event, EventType, Output, ProcessEnd, ProcessError, StreamType
from airunner.domain.job import Job, JobParams, Outcome
from airunner.domain.requests import DequeueRequest, StreamRequest
from airunner.services.composition import Services
from airunner.stores.memory import MemoryStore
from airunner.testing.factories import make_request, make_services
from airunner.worker.publishing.spool_folder import SpoolFolder
from airunner.worker.runner import AttemptEnvironment
from airunner.worker.worker import Worker, WorkerOptions

LIMIT_SECONDS = 60
PATH = {"PATH": os.defpath}


def when_terminated(reaction: str) -> tuple[str, ...]:
    """A command that prints its process id, and waits for SIGTERM."""
    script = (
        "import os, signal, sys\n"
        f"signal.signal(signal.SIGTERM, lambda *_: {reaction})\n"
        "print(os.getpid(), flush=True)\n"
        "while True: signal.pause()"
    )
    return sys.executable, "-c", script


def worker_options(**options: Any) -> WorkerOptions:
    """Options of a worker, and of the environment of its attempts, in one row."""
    names = {field.name for field in fields(AttemptEnvironment)}
    environment = {name: value for name, value in options.items() if name in names}
    others = {name: value for name, value in options.items() if name not in names}
    return WorkerOptions(environment=AttemptEnvironment(**environment), **others)


class Calls:
    """Passes calls on, counts them by name, and fails them while it has errors to give."""

    def __init__(self, service: Any) -> None:
        self._service = service
        self.made: Counter[str] = Counter()
        self.errors: dict[str, Callable[[], Exception | None]] = {}

    def __getattr__(self, name: str) -> Any:
        async def call(*args: Any) -> Any:
            self.made[name] += 1
            error = self.errors.get(name, lambda: None)()
            if error:
                raise error
            return await getattr(self._service, name)(*args)

        return call


class OlderServer:
    """The services of a version that knows nothing of abilities: everybody gets everything."""

    def __init__(self, jobs: Any) -> None:
        self._jobs = jobs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._jobs, name)

    async def dequeue_jobs(self, request: DequeueRequest) -> Any:
        return await self._jobs.dequeue_jobs(replace(request, abilities=None))


class Bench:
    def __init__(
        self, services: Services, tmp_path: Path, *, older_server: bool = False, **options: Any
    ) -> None:
        self.services = services
        self.jobs = Calls(OlderServer(services.jobs) if older_server else services.jobs)
        self.events = Calls(services.events)
        self.work_dir = tmp_path / "work"
        self.work_dir.mkdir()
        defaults: dict[str, Any] = {
            "queues": ("q",),
            "base_environment": PATH,
            "work_dir": self.work_dir,
            "spool_folder": SpoolFolder(tmp_path / "spool"),
        }
        self.worker = Worker(self.jobs, self.events, services.clock, worker_options(**defaults | options))
        self.work = asyncio.create_task(self.worker.run())

    async def submit(self, *command: str, max_attempts: int = 0, queue: str = "q", **params: Any) -> str:
        asked = JobParams(command=command[0] if command else "", args=command[1:], **params)
        request = make_request(queue, params=asked, max_attempts=max_attempts)
        (enqueued,) = await self.services.jobs.enqueue_jobs([request])
        assert isinstance(enqueued, Enqueued), enqueued
        return enqueued.job_id

    async def end_of(self, job_id: str) -> Job:
        job = await self.services.jobs.get_job(job_id, wait_seconds=LIMIT_SECONDS)
        assert job.state.terminal
        return job

    async def do(self, *command: str, **params: Any) -> Log:
        return await self.log_of(await self.submit(*command, **params))

    async def log_of(self, job_id: str) -> Log:
        job = await self.end_of(job_id)
        request = StreamRequest(job_id=job_id, follow=False)
        return Log(job, [event async for event in self.services.events.stream_events(request)])

    async def first_output(self, job_id: str) -> bytes:
        request = StreamRequest(job_id=job_id, event_filter=frozenset({EventType.OUTPUT_DATA}))
        async for event in self.services.events.stream_events(request):
            if isinstance(event.data, Output):
                return event.data.output
        raise AssertionError("the job printed nothing")


class Log:
    """A finished job and its events; checks what holds for every log."""

    def __init__(self, job: Job, events: Sequence[Event]) -> None:
        assert job.result is not None
        self.job = job
        self.result = job.result
        self.events = [event for event in events if event.attempt == job.attempt]
        self.errors = [event.data.error_message for event in events if isinstance(event.data, ProcessError)]
        assert [event.sequence for event in self.events] == list(range(1, len(self.events) + 1))
        self.end = self.events[-1].data
        if self.result.outcome is not Outcome.INTERRUPTED:
            assert isinstance(self.end, ProcessEnd)
            assert self.end.event_count == len(self.events) - 1
            assert self.end.output_sha256 == hashlib.sha256(self.output()).digest()
            assert self.end.exit_code == self.result.exit_code
            assert self.result.output_sha256 == self.end.output_sha256
            assert self.result.final_sequence == len(self.events)

    def output(self, *streams: StreamType) -> bytes:
        outputs = [event.data for event in self.events if isinstance(event.data, Output)]
        return b"".join(out.output for out in outputs if not streams or out.stream in streams)


@asynccontextmanager
async def working(tmp_path: Path, **options: Any) -> AsyncIterator[Bench]:
    clock = SystemClock()
    async with asyncio.timeout(LIMIT_SECONDS), make_services(MemoryStore(clock), clock) as services:
        bench = Bench(services, tmp_path, **options)
        try:
            yield bench
        finally:
            bench.worker.kill()
            await bench.work
