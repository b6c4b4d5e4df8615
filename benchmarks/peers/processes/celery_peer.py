"""Celery on Redis: results are kept where there are some; the rest is its default."""

from __future__ import annotations

import os

from celery import Celery  # type: ignore[import-not-found]  # is in the peers' environment only

from benchmarks.peers.processes import jobs

_URL = os.environ["BENCH_REDIS"]
# As many connections as there are callers.
_CONNECTIONS = 16

app = Celery("peer", broker=_URL, backend=_URL)
app.conf.task_ignore_result = not jobs.has_result()
app.conf.broker_pool_limit = _CONNECTIONS
job = app.task(name="job")(jobs.do)


def enqueue(number: int) -> None:
    """Enqueue one job."""
    job.apply_async((number,))
