"""Ten watchers of a job for each principal: the eleventh is refused, and a place left is free again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from airunner.domain.errors import ResourceExhausted
from tests.support.keyed_server import PRINTER, KeyedServer, keyed_server
from tests.support.printed_job import PrintedJob, Seen
from tests.support.raw_streams import BatchReader, RawReader, SseReader

LIMIT = 10
KINDS: tuple[type[BatchReader | SseReader], ...] = (BatchReader, SseReader)
WAYS_TO_GO: dict[str, Callable[[RawReader], None]] = {
    "leaves": lambda reader: reader.stream.close(),
    "breaks": lambda reader: reader.stream.reset(),
}


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[KeyedServer]:
    async with keyed_server(tmp_path, ("ann", "bob")) as running:
        yield running


@pytest.fixture
async def job(server: KeyedServer) -> AsyncIterator[PrintedJob]:
    async with server.client(PRINTER) as client:
        yield await PrintedJob.begin(client)


async def test_the_eleventh_is_refused_and_the_others_go_on(server: KeyedServer, job: PrintedJob) -> None:
    await job.print_batch()
    readers = await _watch(server, "ann", job, LIMIT)
    await _refused(server, job)
    readers += await _watch(server, "bob", job, LIMIT)
    await job.print_batch()
    await _refused(server, job)
    await job.end()
    async with asyncio.timeout(30):
        for seen in await asyncio.gather(*map(_read, readers)):
            seen.check(job)
    await server.until_streams(0)


@pytest.mark.parametrize("way", WAYS_TO_GO)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "batches",
    [pytest.param(0, id="waiting"), pytest.param(24, id="stalled", marks=pytest.mark.slow)],
)
async def test_a_place_is_free_when_a_watcher_is_gone(
    server: KeyedServer, job: PrintedJob, batches: int, kind: type[BatchReader | SseReader], way: str
) -> None:
    readers: list[RawReader] = [
        await kind.open(server.url, server.keys["ann"], job.job_id) for _ in range(LIMIT)
    ]
    if batches:
        for _ in range(batches):
            await job.print_batch()
        await job.end()
        # The job is over and its streams are not: the server waits for each reader to make room.
        assert await server.streams() == LIMIT
    for round_number in range(3):
        await _refused(server, job)
        WAYS_TO_GO[way](readers[round_number])
        # Well before a stream says that it lives, which it does every 15 s.
        await server.until_streams(LIMIT - 1, limit_seconds=10)
        readers[round_number] = await kind.open(server.url, server.keys["ann"], job.job_id)
        assert readers[round_number].stream.status == 200
    if not batches:
        await job.end()
    async with asyncio.timeout(30):
        for seen in await asyncio.gather(*map(_read, readers)):
            seen.check(job)
    await server.until_streams(0)


async def _watch(server: KeyedServer, principal: str, job: PrintedJob, count: int) -> list[RawReader]:
    """Watch a job, every other time as server-sent events."""
    readers: list[RawReader] = []
    for number in range(count):
        reader = await KINDS[number % 2].open(server.url, server.keys[principal], job.job_id)
        assert reader.stream.status == 200
        readers.append(reader)
    return readers


async def _refused(server: KeyedServer, job: PrintedJob) -> None:
    """One more watcher is told so, over either protocol, and takes no place."""
    before = await server.streams()
    async with server.client("ann") as client:
        with pytest.raises(ResourceExhausted, match="10 streams of this job"):
            await anext(client.monitor(job.job_id))
    refused = await SseReader.open(server.url, server.keys["ann"], job.job_id)
    refused.stream.close()
    assert refused.stream.status == 429
    assert await server.streams() == before


async def _read(reader: RawReader) -> Seen:
    seen = Seen()
    async for events in reader.events():
        seen.take(events)
    reader.stream.close()
    return seen
