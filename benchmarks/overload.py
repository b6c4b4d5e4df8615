"""What well-behaved callers notice of a thousand others: watchers of silent jobs, and half-sent requests."""

from __future__ import annotations

import asyncio
import resource
import time
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeAlias
from urllib.parse import urlsplit

from airunner.codec.gen.job.v1 import job_pb2 as pb
from airunner.codec.jobs import params_to_pb
from benchmarks.harness import ROUNDS, Row, Service, server
from benchmarks.samples import PARAMS

_OTHERS = 1_000
_STREAMS_PER_JOB = 10
_CALLS = 500
_GOAL = 2.0
_TRICKLE_SECONDS = 0.01
_PARAMS = params_to_pb(PARAMS)
_HALF_A_REQUEST = b"POST /job.v1.JobService/ListQueues HTTP/1.1\r\nhost: localhost\r\nx-header: "

Crowd: TypeAlias = Callable[[Service], AbstractAsyncContextManager[None]]


async def run() -> list[Row]:
    """Both, each beside the same calls on the same server when nobody else is there."""
    _allow_sockets(_OTHERS + 200)
    return [
        await beside("idle streams", _idle_streams),
        await beside("half-sent requests", _half_sent_requests),
    ]


async def beside(name: str, crowd: Crowd) -> Row:
    """The p99 of enqueueing beside a crowd, against without; in turns, and the best round of each counts."""
    alone, crowded = [], []
    async with server() as service:
        await _p99(service)
        for _ in range(ROUNDS):
            alone.append(await _p99(service))
            async with crowd(service):
                crowded.append(await _p99(service))
    took, limit = min(crowded), min(alone)
    return Row(
        name=f"enqueue beside {_OTHERS:,} {name}, p99",
        measured=f"{took * 1000:.2f} ms",
        limit=f"{limit * 1000:.2f} ms without them",
        ratio=took / limit,
        goal=f"< {_GOAL:g}",
        met=took / limit < _GOAL,
    )


async def _p99(service: Service) -> float:
    took = []
    for _ in range(_CALLS):
        request = pb.EnqueueJobRequest(request_id=str(uuid.uuid4()), queue="default", job_params=_PARAMS)
        began = time.perf_counter()
        await service.jobs.enqueue_job(request)
        took.append(time.perf_counter() - began)
    return sorted(took)[_CALLS * 99 // 100]


@asynccontextmanager
async def _idle_streams(service: Service) -> AsyncIterator[None]:
    """Watch jobs that nobody runs; each watcher has heard of its job before the block begins."""
    jobs = []
    for _ in range(_OTHERS // _STREAMS_PER_JOB):
        request = pb.EnqueueJobRequest(request_id=str(uuid.uuid4()), queue="idle", job_params=_PARAMS)
        jobs.append((await service.jobs.enqueue_job(request)).job_id)
    writers = []
    try:
        for number in range(_OTHERS):
            reader, writer = await _connect(service)
            writers.append(writer)
            path = f"/v1/jobs/{jobs[number // _STREAMS_PER_JOB]}/events"
            writer.write(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
            head = await reader.readuntil(b"still here")
            if not head.startswith(b"HTTP/1.1 200"):
                raise RuntimeError(head)
        yield
    finally:
        for writer in writers:
            writer.close()


@asynccontextmanager
async def _half_sent_requests(service: Service) -> AsyncIterator[None]:
    """Begin requests and send a byte of a header now and then; those that are let go are made anew."""
    connections = [await _begin_request(service) for _ in range(_OTHERS)]
    trickling = asyncio.create_task(_trickle(service, connections))
    try:
        yield
    finally:
        trickling.cancel()
        for writer in connections:
            writer.close()


async def _trickle(service: Service, connections: list[asyncio.StreamWriter]) -> None:
    while True:
        for first in range(0, len(connections), 10):
            for number in range(first, first + 10):
                if connections[number].is_closing():
                    connections[number] = await _begin_request(service)
                connections[number].write(b"y")
            await asyncio.sleep(_TRICKLE_SECONDS)


async def _begin_request(service: Service) -> asyncio.StreamWriter:
    _, writer = await _connect(service)
    writer.write(_HALF_A_REQUEST)
    return writer


async def _connect(service: Service) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    address = urlsplit(service.url)
    return await asyncio.open_connection(address.hostname, address.port)


def _allow_sockets(count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
