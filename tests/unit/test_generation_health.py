"""Whether a generation worker is well: to stand still is not, to wait for what is away is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from airunner.config import load_settings
from airunner.domain.errors import Unavailable
from airunner.generation.sessions import SessionTable
from airunner.generation.start import GenerationWorker
from airunner.generation.worker import GenerationConsumer, GenerationOptions
from airunner.queues.memory import MemoryQueue
from airunner.queues.messages import Message
from airunner.testing.clock import ManualClock
from airunner.testing.conditions import until
from tests.support.consumers import turns
from tests.support.generation import registry


class Dependency(MemoryQueue):
    """A queue, and the database beside it, that hang or fail when a test says so."""

    error: Exception | None = None
    hangs = False
    calls = 0

    async def answers(self) -> None:
        self.calls += 1
        if self.hangs:
            await asyncio.Event().wait()

    async def receive(self, *numbers: Any, **options: Any) -> Sequence[Message]:
        if self.error:
            raise self.error
        return await super().receive(*numbers, **options)


class OpenedWorker(GenerationWorker):
    """A worker that has its queue and database already."""

    def __init__(self, queue: Dependency, clock: ManualClock, folder: Path, **options: Any) -> None:
        flags = {"postgres.dsn": "postgresql://db/d", "generation.queue_url": "https://sqs/1/generation"}
        settings = load_settings(environ={}, flags=flags, cwd=folder).settings
        super().__init__(settings, registry(), clock)
        self.given = GenerationConsumer(
            queue,
            cast("SessionTable", queue),
            registry(),
            clock,
            GenerationOptions(**options),
            concurrency=lambda: 1,
        )

    async def _open(self) -> GenerationConsumer:
        self._consumer = self.given
        return self.given


@asynccontextmanager
async def working(worker: OpenedWorker) -> AsyncIterator[OpenedWorker]:
    task = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        worker.kill()
        await asyncio.wait({task})


@pytest.mark.parametrize(("idle_seconds", "patience"), [(0.0, 300), (900.0, 1200)])
async def test_a_worker_that_no_longer_receives_is_unwell(
    tmp_path: Path, idle_seconds: float, patience: int
) -> None:
    clock = ManualClock()
    queue = Dependency(clock)
    queue.hangs = True
    async with working(OpenedWorker(queue, clock, tmp_path, idle_seconds=idle_seconds)) as worker:
        await until(lambda: queue.calls == 1)
        clock.advance(patience)
        assert worker.healthy
        clock.advance(1)
        assert not worker.healthy


async def test_a_worker_whose_queue_does_not_answer_waits_and_is_well(tmp_path: Path) -> None:
    clock = ManualClock()
    queue = Dependency(clock)
    queue.error = Unavailable("away")
    async with working(OpenedWorker(queue, clock, tmp_path)) as worker:
        for _ in range(600):
            await until(lambda: clock.waiting == 1)
            clock.advance(1)
            await turns(5)
            assert worker.healthy
        assert (worker.state, queue.calls > 500) == ("waiting", True)


async def test_a_worker_that_is_idle_is_well(tmp_path: Path) -> None:
    clock = ManualClock()
    queue = Dependency(clock)
    async with working(OpenedWorker(queue, clock, tmp_path)) as worker:
        for _ in range(40):
            await until(lambda: clock.waiting >= 1)
            clock.advance(20)
            await turns(5)
            assert worker.healthy
        assert worker.state == "ok"
