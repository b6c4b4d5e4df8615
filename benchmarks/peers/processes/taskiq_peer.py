"""Taskiq on Redis Streams, its broker that acknowledges; results are kept where there are some."""

from __future__ import annotations

import os

from taskiq_redis import (  # type: ignore[import-not-found]  # is in the peers' environment only
    RedisAsyncResultBackend,
    RedisStreamBroker,
)

from benchmarks.peers.processes import jobs

_URL = os.environ["BENCH_REDIS"]

broker = RedisStreamBroker(url=_URL)
if jobs.has_result():
    broker = broker.with_result_backend(RedisAsyncResultBackend(redis_url=_URL))


async def do(number: int) -> object:
    """Do a job."""
    return jobs.do(number)


job = broker.task(task_name="job")(do)


async def open_queue() -> None:
    """Connect."""
    await broker.startup()


async def enqueue(number: int) -> None:
    """Enqueue one job."""
    await job.kiq(number)


async def close_queue() -> None:
    """Hang up."""
    await broker.shutdown()
