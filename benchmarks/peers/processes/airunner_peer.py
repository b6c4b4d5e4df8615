"""airunner's own side: its client enqueues, its handler does the jobs."""

from __future__ import annotations

import os
from collections.abc import Mapping

from airunner import AsyncClient, JobParams
from airunner.handlers import handler
from benchmarks.peers.processes import jobs

_clients: list[AsyncClient] = []


@handler("job")
async def job(payload: Mapping[str, int]) -> object:
    """Do a job."""
    return jobs.do(payload["number"])


async def open_queue() -> None:
    """Connect."""
    _clients.append(AsyncClient(os.environ["BENCH_AIRUNNER"]))


async def enqueue(number: int) -> None:
    """Enqueue one job."""
    await _clients[0].enqueue(JobParams(handler="job", payload_json=f'{{"number":{number}}}'))


async def close_queue() -> None:
    """Hang up."""
    await _clients.pop().aclose()
