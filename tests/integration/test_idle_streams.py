"""What a watcher of a silent job costs a real server: memory while it is there, nothing when it is gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from airunner.domain.job import JobParams
from tests.support.processes import LIMIT_SECONDS, Stack, resident_bytes, running_stack
from tests.support.raw_streams import BatchReader, RawReader, SseReader
from tests.support.scraping import scrape

# Enough that what the server needs once does not count, and few enough for any limit of descriptors.
WARM_UP, STREAMS = 30, 200
ENOUGH = {"AIRUNNER_LIMITS__MAX_STREAMS_PER_JOB": "1000"}
KIBIBYTE = 1024


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[Stack]:
    async with running_stack(tmp_path, ENOUGH) as running:
        yield running


async def test_an_idle_stream_costs_less_than_128_kib(stack: Stack) -> None:
    server = await stack.start_server()
    async with stack.client() as client:
        job_id = (await client.enqueue(JobParams(command="true"))).job_id
    readers: list[RawReader] = []
    for kind in (BatchReader, SseReader):
        readers += [await kind.open(stack.url, "", job_id) for _ in range(WARM_UP)]
        before = resident_bytes(server.pid)
        readers += [await kind.open(stack.url, "", job_id) for _ in range(STREAMS)]
        assert (resident_bytes(server.pid) - before) / STREAMS < 128 * KIBIBYTE
    assert {reader.stream.status for reader in readers} == {200}
    assert await _open_streams(stack) == len(readers)
    for reader in readers:
        reader.stream.close()
    async with asyncio.timeout(LIMIT_SECONDS):
        while await _open_streams(stack):
            # Asked without a pause, the server would have no time for what is waited for.
            await asyncio.sleep(0.02)


async def _open_streams(stack: Stack) -> int:
    page = await asyncio.to_thread(scrape, stack.url)
    return int(page.value("airunner_streams_active"))
