"""Celery on Redis: results are not kept, the rest is its default."""

from __future__ import annotations

import os

from celery import Celery  # type: ignore[import-not-found]  # is in the peers' environment only

from benchmarks.peers.tally import count

app = Celery("peer", broker=os.environ["BENCH_REDIS"])
app.conf.task_ignore_result = True
noop = app.task(name="noop")(count)


def enqueue(jobs: int) -> None:
    """Enqueue one by one, on one connection: there is no call for many."""
    with app.producer_or_acquire() as producer:
        for _ in range(jobs):
            noop.apply_async(producer=producer)
