"""One published line in the hands of ten watchers, against a Redis Stream that syncs what it acknowledges."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import time
from contextlib import aclosing

from airunner import AsyncClient
from airunner.codec.events import event_to_pb
from airunner.codec.gen.job.v1 import job_pb2 as pb
from airunner.domain.event import Event, Output
from benchmarks.harness import ROOT, ROUNDS, Row, Service, median, server
from benchmarks.held_job import hold_job
from benchmarks.peers.provision import ALWAYS_ON_DISK, PEERS_BIN, Missing, install_python_peers, redis
from benchmarks.samples import LINE

_WATCHERS = 10
_LINES = 200
_NAME = f"one line to {_WATCHERS} watchers, the last of them, p50"
_GOAL = "<= 3"


async def run() -> Row:
    """In turns; both sides publish and watch from one process, and wait a moment before each line."""
    ours, theirs = [], []
    try:
        await asyncio.to_thread(install_python_peers)
        for _ in range(ROUNDS):
            theirs.append(await asyncio.to_thread(_through_redis))
            async with server() as service:
                ours.append(await _through_airunner(service))
    except Missing as missing:
        return Row(name=_NAME, measured=f"not run: {missing}", goal=_GOAL, met=False)
    took, limit = min(ours), min(theirs)
    return Row(
        name=_NAME,
        measured=f"{took * 1000:.2f} ms",
        limit=f"{limit * 1000:.2f} ms, Redis Streams, appendfsync always",
        ratio=took / limit,
        goal=_GOAL,
        met=took / limit <= 3,
    )


async def _through_airunner(service: Service) -> float:
    job_id, token = await hold_job(service)
    arrivals: asyncio.Queue[float] = asyncio.Queue()
    took = []
    async with AsyncClient(service.url) as client:
        watchers = [asyncio.create_task(_watch(client, job_id, arrivals)) for _ in range(_WATCHERS)]
        for sequence in range(1, _LINES + 1):
            # The watchers must be waiting, as those of a job that is silent are.
            await asyncio.sleep(0.005)
            request = _one_line(token, sequence)
            began = time.perf_counter()
            publishing = asyncio.create_task(service.events.publish_job_event_batch(request))
            took.append(max([await arrivals.get() for _ in range(_WATCHERS)]) - began)
            await publishing
        await asyncio.gather(*watchers)
    return median(took)


async def _watch(client: AsyncClient, job_id: str, arrivals: asyncio.Queue[float]) -> None:
    seen = 0
    async with aclosing(client.monitor(job_id)) as events:
        async for event in events:
            seen += 1
            assert event.sequence == seen
            arrivals.put_nowait(time.perf_counter())
            if seen == _LINES:
                return


def _one_line(token: str, sequence: int) -> pb.PublishJobEventBatchRequest:
    event = Event(sequence=sequence, timestamp=1_700_000_000_000, data=Output(output=LINE))
    return pb.PublishJobEventBatchRequest(task_token=token, events=[event_to_pb(event)])


def _through_redis() -> float:
    with redis(*ALWAYS_ON_DISK) as url:
        command = [str(PEERS_BIN / "python"), "-m", "benchmarks.peers.redis_fanout", str(_LINES)]
        told = {**os.environ, "BENCH_REDIS": url}
        done = subprocess.run(command, cwd=ROOT, env=told, capture_output=True, text=True, check=True)
    took: list[float] = json.loads(done.stdout)
    return median(took)
