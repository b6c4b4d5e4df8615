"""Dramatiq on Redis, with its default middleware."""

from __future__ import annotations

import os

import dramatiq  # type: ignore[import-not-found]  # is in the peers' environment only
from dramatiq.brokers.redis import (  # type: ignore[import-not-found]  # same
    RedisBroker,
)

from benchmarks.peers.tally import count

dramatiq.set_broker(RedisBroker(url=os.environ["BENCH_REDIS"]))
noop = dramatiq.actor(count, actor_name="noop")


def enqueue(jobs: int) -> None:
    """Enqueue one by one: there is no call for many."""
    for _ in range(jobs):
        noop.send()
