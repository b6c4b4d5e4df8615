"""SAQ on Redis; results are kept where there are some."""

from __future__ import annotations

import os

from saq import Job, Queue  # type: ignore[import-not-found]  # is in the peers' environment only

from benchmarks.peers.processes import jobs

# A time to live of -1 keeps no result; the other one is SAQ's default.
_RESULT_SECONDS = 600 if jobs.has_result() else -1

queue = Queue.from_url(os.environ["BENCH_REDIS"])


async def job(_context: object, *, number: int) -> object:
    """Do a job."""
    return jobs.do(number)


settings = {
    "queue": queue,
    "functions": [job],
    "concurrency": int(os.environ.get("BENCH_CONCURRENCY", "10")),
}


async def open_queue() -> None:
    """Connect."""
    await queue.connect()


async def enqueue(number: int) -> None:
    """Enqueue one job."""
    await queue.enqueue(Job(function="job", kwargs={"number": number}, ttl=_RESULT_SECONDS))


async def close_queue() -> None:
    """Hang up."""
    await queue.disconnect()
