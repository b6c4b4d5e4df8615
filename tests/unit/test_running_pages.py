"""A walk over more running jobs than a page has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from airunner.domain.requests import DequeueRequest
from airunner.domain.token import TokenSigner
from airunner.services.composition import Services
from airunner.stores.base import JobStore
from airunner.stores.memory import MemoryStore
from airunner.stores.pages import RUNNING_AT_ONCE
from airunner.stores.sqlite import SqliteStore
from airunner.testing.clock import ManualClock
from airunner.testing.factories import make_request

STORES: dict[str, Callable[[ManualClock, Path], JobStore]] = {
    "memory": lambda clock, _: MemoryStore(clock),
    "sqlite": lambda clock, folder: SqliteStore(folder, clock),
}


@pytest.mark.parametrize("name", STORES)
async def test_a_walk_over_many_pages_has_each_job_once(name: str, tmp_path: Path) -> None:
    clock = ManualClock()
    async with Services(
        STORES[name](clock, tmp_path), clock, TokenSigner([b"a key of the tests"])
    ) as services:
        claimed: list[str] = []
        # A page ends at the end of a queue, another one within it.
        for queue, count in (("one", RUNNING_AT_ONCE), ("two", RUNNING_AT_ONCE // 2), ("three", 300)):
            await services.jobs.enqueue_jobs([make_request(queue) for _ in range(count)])
            demand = DequeueRequest(queue=queue, max_jobs=100, wait_seconds=0)
            while held := await services.jobs.dequeue_jobs(demand):
                claimed += [entry.job.job_id for entry in held]
        page = await services.store.running_jobs()
        sizes, found = [len(page.jobs)], [job.job_id for job in page.jobs]
        while page.next_cursor:
            page = await services.store.running_jobs(page.next_cursor)
            sizes.append(len(page.jobs))
            found += [job.job_id for job in page.jobs]
    assert sizes == [RUNNING_AT_ONCE, RUNNING_AT_ONCE, 50]
    assert sorted(found) == sorted(claimed)
