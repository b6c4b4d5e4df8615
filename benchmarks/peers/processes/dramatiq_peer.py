"""Dramatiq on Redis, with its default middleware, and the one for results where there are some."""

from __future__ import annotations

import os

import dramatiq  # type: ignore[import-not-found]  # is in the peers' environment only
from dramatiq.brokers.redis import (  # type: ignore[import-not-found]  # same
    RedisBroker,
)
from dramatiq.results import Results  # type: ignore[import-not-found]  # same
from dramatiq.results.backends import RedisBackend  # type: ignore[import-not-found]  # same

from benchmarks.peers.processes import jobs

_URL = os.environ["BENCH_REDIS"]

broker = RedisBroker(url=_URL)
if jobs.has_result():
    broker.add_middleware(Results(backend=RedisBackend(url=_URL), store_results=True))
dramatiq.set_broker(broker)
job = dramatiq.actor(jobs.do, actor_name="job")


def enqueue(number: int) -> None:
    """Enqueue one job."""
    job.send(number)
