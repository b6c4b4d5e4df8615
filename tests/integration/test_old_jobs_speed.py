"""What purging old jobs costs: items read for each, and time that does not grow with their number."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from airunner.domain.errors import AirunnerError
from airunner.domain.splitting import split_by_count
from airunner.fleet.housekeeping.old_jobs import PurgedOldJobs
from airunner.fleet.lease import TaskLease
from airunner.fleet.messages.housekeeping import TaskType
from airunner.fleet.task_run import TaskRun
from airunner.services.composition import Services
from airunner.stores.base import JobStore
from airunner.stores.memory import MemoryStore
from airunner.stores.sqlite.store import SqliteStore
from airunner.testing.clock import ManualClock
from airunner.testing.conformance.stores.backend import QUEUE
from airunner.testing.factories import make_request, make_services
from tests.support.fleet import FakeRecords
from tests.support.metering import Metered

pytest_plugins = ("tests.support.metering",)

DAY = 24 * 3600
FEW, MANY = 1_000, 100_000
ON_AWS = 200


async def make_old(services: Services, clock: ManualClock, count: int) -> None:
    """Let so many jobs end, and their retention pass."""
    for some in split_by_count([make_request(QUEUE) for _ in range(count)], 200):
        outcomes = await services.jobs.enqueue_jobs(some)
        ids = [outcome.job_id for outcome in outcomes if not isinstance(outcome, AirunnerError)]
        # An emulator on a busy machine answers no more of them in time.
        for few in split_by_count(ids, 25):
            await asyncio.gather(*map(services.jobs.cancel_job, few))
    clock.step(8 * DAY)


async def purge(store: JobStore, clock: ManualClock) -> TaskRun:
    """Run the task once."""
    lease = TaskLease(FakeRecords(), clock, TaskType.OLD_JOBS, "replica")
    await lease.take()
    run = TaskRun(clock, lease)
    await PurgedOldJobs(store, retention_ms=7 * DAY * 1000).run(run)
    return run


async def seconds_each(store: JobStore, clock: ManualClock, count: int) -> float:
    """Return how long the processor is busy with one of so many jobs."""
    async with make_services(store, clock) as services:
        await make_old(services, clock, count)
        before = time.process_time()
        run = await purge(store, clock)
        spent = time.process_time() - before
    assert run.listed == count
    return spent / count


@pytest.mark.slow
async def test_a_job_on_aws_costs_two_items_and_its_entry_in_the_index(metered: Metered) -> None:
    clock = metered.api.clock
    assert isinstance(clock, ManualClock)
    await make_old(metered.api.services, clock, ON_AWS)
    await metered.begin()
    run = await purge(metered.store, clock)
    calls = await metered.calls()
    # The one that opened the queue is old as well.
    assert run.listed == ON_AWS + 1
    counts = metered.aws.counts
    # Its row and its request. An entry is how it is found, and of these none is read in vain.
    assert counts.items_read - counts.entries_read == 2 * run.listed
    assert counts.entries_read == run.listed
    # Reads are of a page; of a job there is the one write that marks it.
    assert set(calls) == {"Query", "BatchGetItem", "UpdateItem"}
    assert calls["UpdateItem"] == counts.items_written == run.listed
    assert calls["BatchGetItem"] <= 2 * calls["Query"]


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_one_of_a_hundred_thousand_takes_as_long_as_one_of_a_thousand(
    tmp_path: Path, kind: str
) -> None:
    clock = ManualClock()
    stores: dict[str, Callable[[int], JobStore]] = {
        "memory": lambda _: MemoryStore(clock),
        "sqlite": lambda number: SqliteStore(tmp_path / str(number), clock),
    }
    few = [await seconds_each(stores[kind](number), clock, FEW) for number in range(5)]
    many = await seconds_each(stores[kind](len(few)), clock, MANY)
    assert many <= 2 * sorted(few)[2]
