"""Taskiq on Redis Streams, the broker of its documentation that acknowledges; results are not kept."""

from __future__ import annotations

import asyncio
import os

from taskiq_redis import RedisStreamBroker  # type: ignore[import-not-found]  # is in the peers' environment only

from benchmarks.peers import tally

broker = RedisStreamBroker(url=os.environ["BENCH_REDIS"])


async def count() -> None:
    """Do nothing."""
    tally.count()


noop = broker.task(task_name="noop")(count)


def enqueue(jobs: int) -> None:
    """Enqueue from 16 tasks: there is no call for many."""
    asyncio.run(_enqueue(jobs))


async def _enqueue(jobs: int) -> None:
    await broker.startup()
    waiting = iter(range(jobs))

    async def lane() -> None:
        for _ in waiting:
            await noop.kiq()

    await asyncio.gather(*(lane() for _ in range(16)))
    await broker.shutdown()
