"""Readers that stop reading while megabytes pass them: they hold up nobody, and miss nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from airunner.domain.job import JobParams
from tests.support.keyed_server import PRINTER, KeyedServer, keyed_server
from tests.support.printed_job import PrintedJob, Seen
from tests.support.processes import peak_resident_bytes, resident_bytes
from tests.support.raw_streams import BatchReader, RawReader, SseReader
from tests.support.scraping import health

MIB = 1024 * 1024
PRINCIPALS = ("ann", "bob", "cleo", "dan", "eve")
OUTPUT_BYTES = 20 * 1000 * 1000
# The batch that a reader does not take, 250 KiB here, exists some five times between the store and the
# socket: 85 to 90 MiB for 50 readers, and more with another allocator or Python. A server that kept what they
# have not read would hold 50 times 20 MB.
STALLED_LIMIT = 200 * MIB
# While all of them read on at once, what was just sent is not yet all collected.
READING_LIMIT = 300 * MIB
# Two cores that others use as well; a server that waits for a stalled reader does not answer at all.
ANSWER_SECONDS = 5.0


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[KeyedServer]:
    async with keyed_server(tmp_path, PRINCIPALS) as running:
        yield running


@pytest.mark.slow
async def test_fifty_stalled_readers_hold_up_nobody_and_miss_nothing(server: KeyedServer) -> None:
    async with server.client(PRINTER) as client:
        # What a server needs to publish at all is not the readers' doing.
        await _print(server, unread := await PrintedJob.begin(client), OUTPUT_BYTES // 2)
        await unread.end()
        before = resident_bytes(server.pid)

        job = await PrintedJob.begin(client)
        readers = await _stalled(server, job)
        worst = await _print(server, job, OUTPUT_BYTES * 3 // 4)
        # Some come late: what they have to be given is stored already.
        readers += await _stalled(server, job)
        worst = max(worst, await _print(server, job, OUTPUT_BYTES))
        await job.end()

        # The job is over and none of its streams is: each of them waits for its reader.
        assert await server.streams() == len(readers) == 50
        assert worst < ANSWER_SECONDS
        assert peak_resident_bytes(server.pid) - before < STALLED_LIMIT

        for seen in await asyncio.gather(*map(_read_on, readers)):
            seen.check(job)
        await server.until_streams(0)
        assert peak_resident_bytes(server.pid) - before < READING_LIMIT


async def _stalled(server: KeyedServer, job: PrintedJob) -> list[RawReader]:
    """Open five streams for each principal, one of them as server-sent events, and read none."""
    kinds = (BatchReader, BatchReader, BatchReader, BatchReader, SseReader)
    readers: list[RawReader] = [
        await kind.open(server.url, server.keys[principal], job.job_id)
        for principal in PRINCIPALS
        for kind in kinds
    ]
    assert {reader.stream.status for reader in readers} == {200}
    return readers


async def _print(server: KeyedServer, job: PrintedJob, until_bytes: int) -> float:
    """Print up to a size, and return how long the slowest of other calls took meanwhile."""
    worst = 0.0
    while job.printed_bytes < until_bytes:
        await job.print_batch()
        worst = max(worst, await _answer_seconds(server))
    return worst


async def _answer_seconds(server: KeyedServer) -> float:
    began = time.monotonic()
    async with server.client(PRINTER) as client:
        await client.enqueue(JobParams(command="true"), queue="others")
    assert (await asyncio.to_thread(health, server.url))["status"] == "ok"
    return time.monotonic() - began


async def _read_on(reader: RawReader) -> Seen:
    seen = Seen()
    async for events in reader.events():
        seen.take(events)
    reader.stream.close()
    return seen
