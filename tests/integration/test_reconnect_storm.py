"""Watchers whose connections break again and again, all at once: nothing is lost, repeated or left open."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

import pytest

from airunner.client import AsyncClient, ConnectionState
from airunner.domain.clock import SystemClock
from airunner.domain.retry import RetryPolicy
from airunner.stores.memory import MemoryStore
from airunner.testing.conditions import until
from airunner.testing.factories import make_services
from tests.support.faulty_proxy import FaultyProxy, faulty_proxy
from tests.support.keyed_server import PRINTER, KeyedServer, keyed_server
from tests.support.printed_job import PrintedJob, Seen
from tests.support.processes import LIMIT_SECONDS
from tests.support.raw_streams import Broken, SseReader
from tests.support.serving import serve

# Ten streams each are all that they may have: one that the server counts for too long keeps another out.
PRINCIPALS = ("ann", "bob")
WATCHERS = 10
ENOUGH = 10
# The threads of the store open their files when they are first needed.
LATE_DESCRIPTORS = 20


class Watcher(Protocol):
    """Follows a job to its end over any number of connections."""

    seen: Seen
    reconnections: int

    async def watch(self) -> None: ...


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[KeyedServer]:
    async with keyed_server(tmp_path, (*PRINCIPALS, "browser")) as running:
        yield running


async def test_twenty_watchers_come_through_and_nothing_is_left_open(server: KeyedServer) -> None:
    sockets, descriptors = server.sockets(), server.descriptors()
    async with server.client(PRINTER) as client, faulty_proxy(server.url) as proxy:
        job = await PrintedJob.begin(client)
        watchers = [
            MonitorWatcher(server, proxy, principal, job) for principal in PRINCIPALS for _ in range(WATCHERS)
        ]
        await _storm(proxy, job, watchers)
        await server.until_streams(0)
    await server.until_sockets(sockets)
    assert server.descriptors() < descriptors + LATE_DESCRIPTORS


async def test_a_browser_comes_through_by_its_last_event_id(server: KeyedServer) -> None:
    async with server.client(PRINTER) as client, faulty_proxy(server.url) as proxy:
        job = await PrintedJob.begin(client)
        await _storm(proxy, job, [BrowserWatcher(server, proxy, job)])
        await server.until_streams(0)


async def test_a_browser_that_comes_back_to_a_later_attempt_misses_nothing(server: KeyedServer) -> None:
    """Where it began was settled when it first came; what its address says of that is over."""
    key = server.keys["browser"]
    async with server.client(PRINTER) as client:
        job = await PrintedJob.begin(client)
        await job.print_batch(lines=10, line_bytes=10)
        reader = await SseReader.open(server.url, key, job.job_id, query="?from_sequence=4")
        places = await _places(reader, 3)
        reader.stream.reset()
        await job.try_again()
        await job.print_batch(lines=5, line_bytes=10)
        await job.end()
        reader = await SseReader.open(
            server.url, key, job.job_id, query="?from_sequence=4", last_id=reader.last_id
        )
        places += await _places(reader)
        reader.stream.close()
    assert places == [(1, n) for n in range(4, 11)] + [(2, n) for n in range(1, 7)]


async def test_a_stream_that_broke_unseen_does_not_keep_its_own_watcher_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The server still counts the first stream when the second asks; nothing of the first had come."""
    clock = SystemClock()
    async with (
        make_services(MemoryStore(clock), clock) as services,
        serve(services) as url,
        faulty_proxy(url) as proxy,
        AsyncClient(url) as direct,
        AsyncClient(proxy.url, retry=RetryPolicy(first_seconds=0.001)) as client,
    ):
        job = await PrintedJob.begin(direct)
        await job.print_batch(lines=1)
        limits, watch = iter((1, 0, 1)), services.watchers.watch

        def limited(principal: str, job_id: str) -> AbstractContextManager[None]:
            services.watchers._max_streams = next(limits)
            return watch(principal, job_id)

        monkeypatch.setattr(services.watchers, "watch", limited)
        answer_limits = iter((0,))
        proxy.answer_limit = lambda: next(answer_limits, None)
        stream = client.monitor(job.job_id)
        assert (await anext(stream)).sequence == 1
        await stream.aclose()


class MonitorWatcher:
    """Watches with our own client."""

    def __init__(self, server: KeyedServer, proxy: FaultyProxy, principal: str, job: PrintedJob) -> None:
        self._server = server
        self._url = proxy.url
        self._principal = principal
        self._job_id = job.job_id
        self.seen = Seen()
        self.reconnections = 0

    async def watch(self) -> None:
        async with self._server.client(self._principal, self._url) as client:
            async for event in client.monitor(self._job_id, on_state=self._on_state):
                self.seen.take([event])

    def _on_state(self, state: ConnectionState, _: str) -> None:
        self.reconnections += state is ConnectionState.RECONNECTING


class BrowserWatcher:
    """Watches as a browser does: server-sent events, resumed by the last id."""

    def __init__(self, server: KeyedServer, proxy: FaultyProxy, job: PrintedJob) -> None:
        self._url = proxy.url
        self._key = server.keys["browser"]
        self._job_id = job.job_id
        self.seen = Seen()
        self.reconnections = 0

    async def watch(self) -> None:
        last_id = ""
        while True:
            try:
                reader = await SseReader.open(self._url, self._key, self._job_id, last_id=last_id)
                try:
                    async for events in reader.events():
                        self.seen.take(events)
                    return
                finally:
                    last_id = reader.last_id
                    reader.stream.close()
            except (Broken, OSError):
                self.reconnections += 1


async def _storm(proxy: FaultyProxy, job: PrintedJob, watchers: Sequence[Watcher]) -> None:
    """Print, break every connection, and again; some break by themselves, in the middle of a message."""
    chance = random.Random(7)
    proxy.answer_limit = lambda: chance.choice((None, chance.randrange(1, 6000)))
    watching = [asyncio.create_task(watcher.watch()) for watcher in watchers]
    try:
        while min(watcher.reconnections for watcher in watchers) < ENOUGH:
            await _print_to_all(job, watchers)
            proxy.reset_all()
        await job.end()
        async with asyncio.timeout(LIMIT_SECONDS):
            await asyncio.gather(*watching)
    finally:
        for task in watching:
            task.cancel()
    for watcher in watchers:
        watcher.seen.check(job)


async def _print_to_all(job: PrintedJob, watchers: Sequence[Watcher]) -> None:
    """Print, and return once each watcher has seen something of it."""
    before = job.sequence
    for _ in range(5):
        await job.print_batch(lines=10, line_bytes=20)
    await until(
        lambda: all(watcher.seen.events > before for watcher in watchers), limit_seconds=LIMIT_SECONDS
    )


async def _places(reader: SseReader, count: int | None = None) -> list[tuple[int, int]]:
    """Read so many events, or all to the end."""
    places: list[tuple[int, int]] = []
    async for events in reader.events():
        places += [(event.attempt, event.sequence) for event in events]
        if len(places) == count:
            break
    return places
