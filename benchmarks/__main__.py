"""`make bench`: run everything, print a table, fail when a promise is not kept.

`python -m benchmarks NAME ...` runs only what has one of the names: rpc, store.
"""

from __future__ import annotations

import asyncio
import os
import platform
import sqlite3
import sys

import uvloop

from benchmarks import at_store, through_rpc
from benchmarks.harness import Row

_PARTS = {"rpc": through_rpc.run, "store": at_store.run}


async def main() -> int:
    """Run what was asked for."""
    wanted = sys.argv[1:] or list(_PARTS)
    rows: list[Row] = []
    for name in wanted:
        rows += await _PARTS[name]()
    print(_table(rows))
    print(f"\n{os.cpu_count()} cores, Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}")
    return 0 if all(row.met for row in rows) else 1


def _table(rows: list[Row]) -> str:
    lines = ["| what | measured | beside it | ratio | goal | met |", "|---|---|---|---|---|---|"]
    for row in rows:
        met = "yes" if row.met else "NO"
        lines.append(f"| {row.name} | {row.measured} | {row.limit} | {row.ratio:.2f} | {row.goal} | {met} |")
    return "\n".join(lines)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        sys.exit(runner.run(main()))
