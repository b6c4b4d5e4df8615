"""Whoever waits for PostgreSQL ends at once when stopped: between two tries, and in the middle of one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, cast

import pytest
from structlog.testing import capture_logs

from airunner.config import Settings, load_settings
from airunner.domain.errors import Unavailable
from airunner.generation.start import GenerationWorker
from airunner.outbox.relay import Relay, RelayOptions
from airunner.outbox.start import OutboxRelay, postgres_options
from airunner.outbox.table import OutboxTable
from airunner.postgres.pool import PostgresOptions
from airunner.testing.clock import ManualClock
from airunner.testing.conditions import until
from tests.support.generation import registry
from tests.support.outbox import ScriptedSink

QUEUE_URL = "https://sqs.eu-west-1.amazonaws.com/1/generation"


class Opener(Protocol):
    """What waits for a database before it works."""

    async def run(self) -> None: ...

    async def drain(self) -> None: ...


def make(kind: str, settings: Settings, clock: ManualClock) -> Opener:
    if kind == "relay":
        return OutboxRelay(settings, clock, sink=ScriptedSink())
    return GenerationWorker(settings, registry(), clock)


def settings_for(dsn: str, folder: Path) -> Settings:
    flags = {"postgres.dsn": dsn, "generation.queue_url": QUEUE_URL}
    return load_settings(environ={}, flags=flags, cwd=folder).settings


def patient_options(settings: Settings) -> PostgresOptions:
    """Return how to reach a database that may take an hour to answer."""
    return replace(postgres_options(settings), connect_seconds=3600)


@asynccontextmanager
async def silent_database() -> AsyncIterator[tuple[str, list[bytes]]]:
    """Serve one that takes connections and never answers; what it is asked is in the list."""
    heard: list[bytes] = []

    async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(1024):
            heard.append(chunk)
        writer.close()

    async with await asyncio.start_server(hear, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        yield f"postgresql://a:b@127.0.0.1:{port}/d?sslmode=disable", heard


@pytest.mark.parametrize("kind", ["relay", "worker"])
async def test_a_stop_does_not_wait_for_the_next_try(kind: str, tmp_path: Path) -> None:
    clock = ManualClock()
    work = make(kind, settings_for(f"postgresql://a@/d?host={tmp_path}", tmp_path), clock)
    with capture_logs() as logs:
        running = asyncio.create_task(work.run())
        await until(lambda: clock.waiting == 1)
        await work.drain()
        # Nobody moves the clock.
        await running
    assert [entry["failures"] for entry in logs] == [1]
    assert clock.waiting == 0


@pytest.mark.parametrize("kind", ["relay", "worker"])
async def test_a_stop_does_not_wait_for_a_connection(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airunner.outbox.start.postgres_options", patient_options)
    async with silent_database() as (dsn, heard):
        work = make(kind, settings_for(dsn, tmp_path), ManualClock())
        running = asyncio.create_task(work.run())
        await until(lambda: heard != [])
        await work.drain()
        await running


@pytest.mark.parametrize("kind", ["relay", "worker"])
async def test_one_that_is_stopped_before_it_begins_asks_nobody(kind: str, tmp_path: Path) -> None:
    async with silent_database() as (dsn, heard):
        work = make(kind, settings_for(dsn, tmp_path), ManualClock())
        await work.drain()
        await work.run()
    assert heard == []


class AwayTable:
    """An outbox whose database goes away; the last claim may be one that gets no answer."""

    def __init__(self, *, hangs: bool = False) -> None:
        self.claims = 0
        self.asked_to_wait = 0
        self._hangs = hangs

    async def claim(self, _max_rows: int, *, without_queues: Sequence[str] = ()) -> list[Any]:
        self.claims += 1
        if self._hangs and self.claims > 1:
            await asyncio.Event().wait()
        raise Unavailable("away")

    async def stop_waiting(self, _relay_id: str) -> None:
        self.asked_to_wait += 1


@pytest.mark.parametrize("hangs", [False, True])
async def test_a_relay_that_works_does_not_wait_for_its_claim_either(hangs: bool) -> None:
    clock, table = ManualClock(), AwayTable(hangs=hangs)
    relay = Relay(cast("OutboxTable", table), ScriptedSink(), clock, RelayOptions(relay_id="one"))
    running = asyncio.create_task(relay.run())
    await until(lambda: clock.waiting == 1)
    if hangs:
        clock.advance(1)
        await until(lambda: table.claims == 2)
    await relay.drain()
    await running
    assert (table.claims, table.asked_to_wait) == (2 if hangs else 1, 0)


async def test_a_claim_that_fails_after_the_stop_is_not_repeated() -> None:
    clock, under_way, may_fail = ManualClock(), asyncio.Event(), asyncio.Event()

    class LateTable(AwayTable):
        async def claim(self, _max_rows: int, *, without_queues: Sequence[str] = ()) -> list[Any]:
            under_way.set()
            await may_fail.wait()
            raise Unavailable("away")

    relay = Relay(cast("OutboxTable", LateTable()), ScriptedSink(), clock, RelayOptions(relay_id="one"))
    running = asyncio.create_task(relay.run())
    await under_way.wait()
    draining = asyncio.create_task(relay.drain())
    await asyncio.sleep(0)
    assert not running.done()
    may_fail.set()
    await asyncio.gather(draining, running)
    assert clock.waiting == 0
