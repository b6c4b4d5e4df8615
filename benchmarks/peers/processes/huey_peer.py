"""Huey on SQLite at its default, which syncs every commit; results are kept where there are some."""

from __future__ import annotations

import os

from huey import SqliteHuey  # type: ignore[import-not-found]  # is in the peers' environment only

from benchmarks.peers.processes import jobs

huey = SqliteHuey(filename=os.environ["BENCH_DATABASE"], results=jobs.has_result())
job = huey.task(name="job")(jobs.do)


def enqueue(number: int) -> None:
    """Enqueue one job."""
    job(number)
