"""`make bench`: run everything, print a table, fail when a promise is not kept.

`python -m benchmarks NAME ...` runs only what has one of the names: calls, rpc, store, streams, overload,
aws, replicas, outbox, generation, peers.
"""

from __future__ import annotations

import asyncio
import os
import platform
import sqlite3
import sys
from collections.abc import Awaitable, Callable, Mapping

import uvloop

from benchmarks import (
    at_store,
    aws_calls,
    generation,
    hot_path,
    outbox,
    overload,
    replicas,
    streams,
    through_rpc,
)
from benchmarks.harness import Row
from benchmarks.peers import comparison

_PARTS = {
    "calls": hot_path.run,
    "rpc": through_rpc.run,
    "store": at_store.run,
    "streams": streams.run,
    "overload": overload.run,
    "aws": aws_calls.run,
    "replicas": replicas.run,
    "outbox": outbox.run,
    "generation": generation.run,
    "peers": comparison.run,
}
HEADER = "| what | measured | beside it | ratio | goal | met |\n|---|---|---|---|---|---|"


async def main() -> int:
    """Run what was asked for; return the exit code."""
    return exit_code(await show({name: _PARTS[name] for name in sys.argv[1:] or _PARTS}))


async def show(parts: Mapping[str, Callable[[], Awaitable[list[Row]]]]) -> list[Row]:
    """Run parts and print a table; each part's rows are printed when it ends, since all of them take long."""
    print(HEADER, flush=True)
    rows: list[Row] = []
    for part in parts.values():
        found = await part()
        print(*map(line_of, found), sep="\n", flush=True)
        rows += found
    print(f"\n{os.cpu_count()} cores, Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}")
    return rows


def exit_code(rows: list[Row]) -> int:
    """Return 0 if every promise is kept."""
    return 0 if all(row.met for row in rows) else 1


def line_of(row: Row) -> str:
    """Return a row as a line of a table in Markdown."""
    met = "NO" if not row.met else "yes" if row.goal else ""
    ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
    if row.cpu_ratio is not None:
        ratio += f", by CPU {row.cpu_ratio:.2f}"
    return f"| {row.name} | {row.measured} | {row.limit} | {ratio} | {row.goal} | {met} |"


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        sys.exit(runner.run(main()))
