"""What a worker cannot do costs it nothing on SQLite, however much of it there is."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import pytest

from airunner.domain.answers import DequeuedJob, Enqueued
from airunner.domain.job import Job, JobParams
from airunner.domain.requests import Abilities, DequeueRequest
from airunner.services.composition import Services
from airunner.stores.records import Demand
from airunner.stores.sqlite import SqliteStore, operations, rows
from airunner.stores.sqlite.transaction import Transaction
from airunner.testing.clock import ManualClock
from airunner.testing.conditions import until
from airunner.testing.factories import make_request, make_services

MANY = 100_000
# About what a claim of one job takes, whatever else there is; a walk takes some for each row.
FEW_STEPS = 1_000
COPY_FIRST_JOB = """
    WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :count)
    INSERT INTO jobs (job_id, request_id, {columns})
    SELECT randomblob(16), randomblob(16), {columns} FROM jobs, numbers WHERE id = 1
"""


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(tmp_path: Path, clock: ManualClock) -> SqliteStore:
    return SqliteStore(tmp_path, clock)


@pytest.fixture
async def services(store: SqliteStore, clock: ManualClock) -> AsyncIterator[Services]:
    async with make_services(store, clock) as services:
        yield services


async def enqueue(services: Services, handler: str = "", delay_seconds: int = 0) -> str:
    params = JobParams(handler=handler) if handler else None
    (added,) = await services.jobs.enqueue_jobs([make_request(params=params, delay_seconds=delay_seconds)])
    assert isinstance(added, Enqueued)
    return added.job_id


def copy_first_job(tx: Transaction) -> None:
    """Add many jobs that are like the first."""
    found = tx.connection.execute("SELECT name FROM pragma_table_info('jobs')").fetchall()
    columns = ", ".join(name for (name,) in found if name not in {"id", "job_id", "request_id"})
    tx.connection.execute(COPY_FIRST_JOB.format(columns=columns), {"count": MANY})


def steps_of(work: Callable[[Transaction], list[Job]]) -> Callable[[Transaction], tuple[list[Job], int]]:
    """Count the steps of SQLite's machine that an operation takes."""

    def operation(tx: Transaction) -> tuple[list[Job], int]:
        steps = 0

        def count() -> int:
            nonlocal steps
            steps += 1
            return 0

        tx.connection.set_progress_handler(count, 1)
        try:
            return work(tx), steps
        finally:
            tx.connection.set_progress_handler(None, 0)

    return operation


def demand(*handlers: str, commands: bool = False) -> Demand:
    abilities = Abilities(handlers=handlers, commands=commands)
    return Demand(queues=("builds",), max_jobs=10, visibility_seconds=60, abilities=abilities.keys)


async def test_a_claim_does_not_walk_over_what_it_cannot_do(
    services: Services, store: SqliteStore, clock: ManualClock
) -> None:
    await enqueue(services, "resize")
    await store._write(copy_first_job)
    wanted = [await enqueue(services, "mail"), await enqueue(services)]
    able = demand("mail", commands=True)
    for expected in (wanted, []):
        found, steps = await store._write(steps_of(lambda tx: operations.claim(tx, able, clock.now())))
        assert [job.job_id for job in found] == expected
        assert steps < FEW_STEPS
    # Nor over what it can do: it takes the first ones.
    resize = demand("resize", "mail")
    found, steps = await store._write(steps_of(lambda tx: operations.claim(tx, resize, clock.now())))
    assert (len(found), steps < 5 * FEW_STEPS) == (10, True)


async def test_the_index_is_used(services: Services, store: SqliteStore) -> None:
    values = {"handlers": '["mail"]', "queue": "builds", "count": 1}
    plan = await store._read(
        lambda connection: connection.execute(f"EXPLAIN QUERY PLAN {rows.FIND_READY_FOR}", values).fetchall()
    )
    steps = [row[-1] for row in plan]
    assert any("jobs_ready_by_handler (queue=? AND handler=?)" in step for step in steps)
    assert not [step for step in steps if step.startswith("SCAN") and "VIRTUAL" not in step]
    assert not [step for step in steps if "TEMP B-TREE" in step]


class Crowd:
    """Many calls that wait, and how often the store looked for jobs for them."""

    def __init__(self, services: Services, store: SqliteStore) -> None:
        assert store._writer
        self.looks = 0
        self.calls: list[asyncio.Task[Sequence[DequeuedJob]]] = []
        self._services = services
        self._writer = store._writer
        serve = store._writer._serve

        def counted(tx: Transaction, demand: Demand) -> Sequence[Job]:
            self.looks += 1
            return serve(tx, demand)

        store._writer._serve = counted

    async def wait(self, count: int, abilities: Abilities | None) -> asyncio.Task[Sequence[DequeuedJob]]:
        """Begin calls, and return the last of them once all wait."""
        request = DequeueRequest(queue="builds", wait_seconds=20, abilities=abilities)
        room = self._writer._room._parked
        expected = len(room) + count
        self.calls += [asyncio.create_task(self._services.jobs.dequeue_jobs(request)) for _ in range(count)]
        await until(lambda: len(room) == expected)
        return self.calls[-1]

    async def leave(self, clock: ManualClock) -> None:
        clock.advance(20)
        await asyncio.gather(*self.calls)


async def test_a_job_that_nobody_can_do_wakes_nobody(
    services: Services, store: SqliteStore, clock: ManualClock
) -> None:
    crowd = Crowd(services, store)
    await crowd.wait(200, Abilities(handlers=("mail",)))
    await crowd.wait(200, Abilities(commands=True))
    crowd.looks = 0
    await asyncio.gather(*(enqueue(services, "resize") for _ in range(50)))
    assert crowd.looks == 0
    # Who may be able to is not known: the first of each kind looks.
    await services.jobs.set_paused("builds", paused=False)
    assert crowd.looks == 2
    able = await crowd.wait(1, Abilities(handlers=("scan",)))
    job_id = await enqueue(services, "scan")
    assert [held.job.job_id for held in await able] == [job_id]
    assert not any(call.done() for call in crowd.calls if call is not able)
    await crowd.leave(clock)


@pytest.mark.parametrize("other", [Abilities(handlers=("mail",)), None], ids=["another", "anybody"])
async def test_what_falls_due_in_the_claim_of_another_is_not_forgotten(
    services: Services,
    store: SqliteStore,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    other: Abilities | None,
) -> None:
    """A claim makes all ready that is due, and with it what those may do who looked before."""
    crowd = Crowd(services, store)
    first = await crowd.wait(1, Abilities(handlers=("resize",)))
    second = await crowd.wait(1, other)
    added = [await enqueue(services, "resize", delay_seconds=5) for _ in range(2)]
    # The clock goes on between the two looks of one transaction.
    looks = itertools.chain([clock.now()], itertools.repeat(clock.now() + 5_000))
    monkeypatch.setattr(clock, "now", lambda: next(looks))
    await store._write(lambda tx: tx.wake(("builds",)))
    monkeypatch.undo()
    (held,) = await asyncio.wait_for(first, 30)
    expected = added[1] if other is None else added[0]
    assert (held.job.job_id, second.done()) == (expected, other is None)
    await crowd.leave(clock)
