"""SAQ on Redis; results are not kept."""

from __future__ import annotations

import asyncio
import os

from saq import Job, Queue  # type: ignore[import-not-found]  # is in the peers' environment only

from benchmarks.peers import tally

_CONCURRENCY = 100

queue = Queue.from_url(os.environ["BENCH_REDIS"])


async def noop(_context: object) -> None:
    """Do nothing."""
    tally.count()


settings = {"queue": queue, "functions": [noop], "concurrency": _CONCURRENCY}


def enqueue(jobs: int) -> None:
    """Enqueue from 16 tasks: there is no call for many that does not wait for the results."""
    asyncio.run(_enqueue(jobs))


async def _enqueue(jobs: int) -> None:
    await queue.connect()
    waiting = iter(range(jobs))

    async def lane() -> None:
        for _ in waiting:
            # A ttl of -1 keeps no result.
            await queue.enqueue(Job(function="noop", ttl=-1))

    await asyncio.gather(*(lane() for _ in range(16)))
    await queue.disconnect()
