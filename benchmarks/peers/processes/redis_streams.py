"""Lines in a Redis Stream, an entry each, through redis-py with hiredis."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

from redis.asyncio import Redis  # type: ignore[import-not-found]  # is in the peers' environment only

# As long as the lines at the other side.
_LINE = b"." * 83 + b"\n"
_STREAM = "lines"
_BLOCK_MS = 30_000
_FILLED_AT_ONCE = 500
_connections: list[Redis] = []


async def open_stream() -> None:
    """Connect."""
    _connections.append(Redis.from_url(os.environ["BENCH_REDIS"]))


async def publish(number: int) -> None:
    """Store one line."""
    await _connections[0].xadd(_STREAM, {"line": _LINE}, id=f"0-{number}")


async def fill(lines: int) -> None:
    """Store many lines."""
    for first in range(1, lines + 1, _FILLED_AT_ONCE):
        pipeline = _connections[0].pipeline(transaction=False)
        for number in range(first, min(first + _FILLED_AT_ONCE, lines + 1)):
            pipeline.xadd(_STREAM, {"line": _LINE}, id=f"0-{number}")
        await pipeline.execute()


async def watch(lines: int) -> AsyncIterator[int]:
    """Yield the number of each line as it arrives."""
    connection, after = Redis.from_url(os.environ["BENCH_REDIS"]), 0
    while after < lines:
        ((_, entries),) = await connection.xread({_STREAM: f"0-{after}"}, block=_BLOCK_MS)
        for entry_id, entry in entries:
            after = _number(entry_id, entry)
            yield after
    await connection.aclose()


async def replay(first: int) -> int:
    """Read from a number on; return how many lines there were."""
    entries = await _connections[0].xrange(_STREAM, min=f"0-{first}")
    return len([_number(entry_id, entry) for entry_id, entry in entries])


async def close_stream() -> None:
    """Hang up."""
    await _connections.pop().aclose()


def _number(entry_id: bytes, entry: dict[bytes, bytes]) -> int:
    if entry[b"line"] != _LINE:
        raise RuntimeError("a line is not what was stored")
    return int(entry_id.partition(b"-")[2])
