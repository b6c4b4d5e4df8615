"""Async handlers that write much while the server is away: they are held back, and nobody beside them."""

# ruff: noqa: T201  what becomes of prints is what is tested

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airunner import telemetry
from airunner.domain.errors import Unavailable
from airunner.domain.event import Gap
from airunner.domain.job import JobState, Outcome
from airunner.domain.requests import StreamRequest
from airunner.handlers.registry import Registry
from airunner.testing.conditions import until
from airunner.worker.handlers import output
from tests.support.workers import working

LINE = "x" * 9_999
LINES = 1_200
MEMORY_LINES = 700
"""What a handler gets rid of before it has to wait, and some more."""


def registry(*functions: Callable[..., Any]) -> Registry:
    found = Registry()
    for function in functions:
        found.add(function.__name__, function, "here")
    return found


async def test_only_the_one_that_writes_waits_and_every_line_arrives(tmp_path: Path) -> None:
    written = []

    async def loud() -> None:
        for number in range(LINES):
            print(LINE)
            written.append(number)
            await asyncio.sleep(0)

    async def quick() -> int:
        await asyncio.sleep(0)
        return 7

    async def sleeper() -> None:
        await asyncio.sleep(60)

    options = {"handlers": registry(loud, quick, sleeper), "concurrency": 4, "spool_max_bytes": 0}
    async with working(tmp_path, **options) as bench:
        bench.events.errors["publish_events"] = Unavailable
        job_id = await bench.submit(handler="loud")
        await until(lambda: len(written) > MEMORY_LINES - 300)
        # Long enough after it began for the spool, if there were one.
        await until(lambda: bench.events.made["publish_events"] > 5)
        assert (await bench.do(handler="quick")).result.output_json == "7"
        timed_out = await bench.end_of(await bench.submit(handler="sleeper", timeout_seconds=1))
        assert timed_out.result is not None
        assert timed_out.result.outcome is Outcome.TIMEOUT
        assert len(written) < MEMORY_LINES, "it waits at its await"
        bench.events.errors.clear()
        log = await bench.log_of(job_id)
        assert log.job.state is JobState.COMPLETED
        assert log.output() == (LINE.encode() + b"\n") * LINES


async def test_one_that_waits_for_room_is_ended_by_its_time_out(tmp_path: Path) -> None:
    async def loud() -> None:
        while True:
            print(LINE)
            await asyncio.sleep(0)

    async with working(tmp_path, handlers=registry(loud), spool_max_bytes=0) as bench:
        bench.events.errors["publish_events"] = Unavailable
        job_id = await bench.submit(handler="loud", timeout_seconds=2)
        await until(lambda: bench.events.made["publish_events"] > 3)
        bench.events.errors.clear()
        assert (await bench.log_of(job_id)).result.outcome is Outcome.TIMEOUT


async def test_a_thread_of_an_async_handler_waits_for_room_itself(tmp_path: Path) -> None:
    written = []

    def write() -> None:
        for number in range(LINES):
            print(LINE)
            written.append(number)

    async def delegate() -> None:
        await asyncio.to_thread(write)

    async with working(tmp_path, handlers=registry(delegate), spool_max_bytes=0) as bench:
        bench.events.errors["publish_events"] = Unavailable
        job_id = await bench.submit(handler="delegate")
        await until(lambda: bench.events.made["publish_events"] > 3)
        assert len(written) < MEMORY_LINES
        bench.events.errors.clear()
        assert (await bench.log_of(job_id)).output() == (LINE.encode() + b"\n") * LINES


async def test_what_is_written_without_an_await_is_bounded_and_its_loss_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "_UNAWAITED_BYTES", 2 * 1024 * 1024)
    go = threading.Event()

    async def rude() -> None:
        await asyncio.to_thread(go.wait, 30)
        for _ in range(LINES):
            print(LINE)
        # Now that there is room again, this line is kept.
        await asyncio.sleep(0)
        print("the end")

    async with working(tmp_path, handlers=registry(rude), spool_max_bytes=0) as bench:
        bench.events.errors["publish_events"] = Unavailable
        lost_before = telemetry.events_lost.read()[()]
        job_id = await bench.submit(handler="rude")
        go.set()
        await until(lambda: bench.events.made["publish_events"] > 3)
        bench.events.errors.clear()
        job = await bench.end_of(job_id)
        assert job.state is JobState.COMPLETED
        lost = int(telemetry.events_lost.read()[()] - lost_before)
        assert 0 < lost < LINES
        assert job.result is not None
        assert job.result.final_sequence == LINES + 3, (
            "start, lines kept and lost, the end, and the end of it"
        )
        gaps = [event.data async for event in stream(bench, job_id) if isinstance(event.data, Gap)]
        assert sum(gap.last_sequence - gap.first_sequence + 1 for gap in gaps) == lost
        assert len(gaps) < 10


def stream(bench: Any, job_id: str) -> Any:
    return bench.services.events.stream_events(StreamRequest(job_id=job_id, follow=False))
