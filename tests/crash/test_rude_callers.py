"""A real server under callers that nobody knows: endless headers, half-sent requests."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import time
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from airunner.client import AsyncClient
from airunner.domain.job import JobParams
from tests.support.processes import RunningProcess, Stack

MEBIBYTE = 1024 * 1024
HALF_A_REQUEST = b"POST /job.v1.JobService/ListQueues HTTP/1.1\r\nhost: localhost\r\nx-header: "
CALLERS = 1_100
# Generous: what it must not be is a time-out, or for ever.
ANSWER_SECONDS = 20.0


def resident_bytes(server: RunningProcess) -> int:
    pages = int(Path(f"/proc/{server.pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()


@contextlib.asynccontextmanager
async def connected(stack: Stack) -> AsyncIterator[asyncio.StreamWriter]:
    address = urlsplit(stack.url)
    _, writer = await asyncio.open_connection(address.hostname, address.port)
    try:
        yield writer
    finally:
        writer.close()


async def flood(stack: Stack, data: bytes, total_bytes: int) -> None:
    """Send the same again and again, until the server has had enough or all is sent."""
    async with connected(stack) as writer:
        writer.write(HALF_A_REQUEST)
        with contextlib.suppress(ConnectionError):
            for _ in range(total_bytes // len(data)):
                writer.write(data)
                await writer.drain()


async def answered(client: AsyncClient) -> float:
    """Return how long a well-behaved call takes."""
    began = time.monotonic()
    async with asyncio.timeout(ANSWER_SECONDS):
        await client.enqueue(JobParams(command="true"))
    return time.monotonic() - began


@pytest.mark.parametrize("data", [b"y\r\nx-header: " * 1_000, b"y" * 16_384], ids=["lines", "one value"])
async def test_endless_headers_cost_neither_memory_nor_time(stack: Stack, data: bytes) -> None:
    server = await stack.start_server()
    async with stack.client() as client:
        await answered(client)
        before = resident_bytes(server)
        floods = [asyncio.create_task(flood(stack, data, 40 * MEBIBYTE)) for _ in range(4)]
        await answered(client)
        await asyncio.gather(*floods)
        assert resident_bytes(server) - before < 64 * MEBIBYTE
        assert "headers_too_large" in server.printed()


async def test_half_sent_requests_keep_nobody_out(stack: Stack) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(hard, 2 * CALLERS + 256)
    if wanted < CALLERS + 256:
        pytest.skip(f"this machine lets a process open {hard} files only")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    server = await stack.start_server()
    try:
        async with stack.client() as client, contextlib.AsyncExitStack() as callers:
            before = resident_bytes(server)
            for _ in range(CALLERS):
                with contextlib.suppress(ConnectionError):
                    writer = await callers.enter_async_context(connected(stack))
                    writer.write(HALF_A_REQUEST)
            await answered(client)
            assert resident_bytes(server) - before < 64 * MEBIBYTE
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
