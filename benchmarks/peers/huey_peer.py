"""Huey on SQLite at its default, which syncs every commit to the disk; results are not kept."""

from __future__ import annotations

import os

from huey import SqliteHuey  # type: ignore[import-not-found]  # is in the peers' environment only

from benchmarks.peers.tally import count

huey = SqliteHuey(filename=os.environ["BENCH_DATABASE"], results=False)
noop = huey.task(name="noop")(count)


def enqueue(jobs: int) -> None:
    """Enqueue one by one: there is no call for many."""
    for _ in range(jobs):
        noop()
