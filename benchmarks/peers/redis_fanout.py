"""One line to ten readers through a Redis Stream, in one process of the peers' environment.

python -m benchmarks.peers.redis_fanout LINES prints a JSON list: for each line the seconds from the call of
XADD to the line in the last reader's hands.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time

import uvloop
from redis.asyncio import Redis  # type: ignore[import-not-found]  # is in the peers' environment only

_READERS = 10
_STREAM = "lines"
_LINE = b"2026-01-01T00:00:00Z build: compiling module number 12345 of the example project ok\n"


async def main(lines: int) -> None:
    """Publish one by one, each once everybody has the one before."""
    url = os.environ["BENCH_REDIS"]
    arrivals: asyncio.Queue[float] = asyncio.Queue()
    readers = [asyncio.create_task(_read(Redis.from_url(url), lines, arrivals)) for _ in range(_READERS)]
    publisher = Redis.from_url(url)
    took = []
    for _ in range(lines):
        # The readers must be waiting, as watchers of a job that is silent are.
        await asyncio.sleep(0.005)
        began = time.perf_counter()
        publishing = asyncio.create_task(publisher.xadd(_STREAM, {"line": _LINE}))
        took.append(max([await arrivals.get() for _ in range(_READERS)]) - began)
        await publishing
    await asyncio.gather(*readers)
    await publisher.aclose()
    print(json.dumps(took))


async def _read(redis: Redis, lines: int, arrivals: asyncio.Queue[float]) -> None:
    after, seen = "0", 0
    while seen < lines:
        ((_, entries),) = await redis.xread({_STREAM: after}, block=30_000)
        for entry_id, entry in entries:
            assert entry[b"line"] == _LINE
            after, seen = entry_id, seen + 1
            arrivals.put_nowait(time.perf_counter())
    await redis.aclose()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(int(sys.argv[1])))
