"""The writer of the SQLite store: group commit, faults of one operation and of the disk, and no idle work."""

from __future__ import annotations

import asyncio
import sqlite3
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from airunner.domain.answers import Enqueued
from airunner.domain.errors import FailedPrecondition, InternalError, InvalidArgument, Unavailable
from airunner.domain.execution import ExecutionConfig
from airunner.domain.job import JobParams, JobState, mint_uuid
from airunner.domain.listing import JobQuery
from airunner.domain.requests import DequeueRequest
from airunner.services.composition import Services
from airunner.stores.records import Demand, NewJob
from airunner.stores.sqlite import SqliteStore
from airunner.stores.sqlite.store import DATABASE
from airunner.stores.sqlite.transaction import Transaction
from airunner.testing.clock import ManualClock, ManualTimer
from airunner.testing.conditions import until
from airunner.testing.factories import NOON, make_request, make_services


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def store(tmp_path: Path, clock: ManualClock) -> SqliteStore:
    return SqliteStore(tmp_path, clock)


@pytest.fixture
async def services(store: SqliteStore, clock: ManualClock) -> AsyncIterator[Services]:
    async with make_services(store, clock) as services:
        yield services


async def enqueue(services: Services) -> str:
    (outcome,) = await services.jobs.enqueue_jobs([make_request()])
    assert isinstance(outcome, Enqueued)
    return outcome.job_id


async def test_concurrent_writes_share_commits(services: Services, store: SqliteStore) -> None:
    before = store.commits
    ids = await asyncio.gather(*(enqueue(services) for _ in range(300)))
    assert len(set(ids)) == 300
    assert store.commits - before < 100


def add_queue(name: str, error: Exception | None = None) -> object:
    def operation(tx: Transaction) -> str:
        tx.connection.execute("INSERT INTO queues (name, paused) VALUES (?, 1)", (name,))
        if error:
            raise error
        return name

    return operation


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (RuntimeError("a bug"), InternalError),
        (sqlite3.IntegrityError("a constraint"), Unavailable),
    ],
)
async def test_an_operation_that_fails_is_undone_alone(
    services: Services, store: SqliteStore, error: Exception, verdict: type[Exception]
) -> None:
    outcomes = await asyncio.gather(
        store._write(add_queue("before")),  # type: ignore[arg-type]  # the factory hides the type
        enqueue(services),
        store._write(add_queue("faulty", error)),  # type: ignore[arg-type]  # same
        store._write(add_queue("after")),  # type: ignore[arg-type]  # same
        enqueue(services),
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in outcomes] == [str, str, verdict, str, str]
    assert [queue.name for queue in await services.jobs.list_queues()] == ["after", "before", "builds"]
    assert len((await services.jobs.list_jobs(JobQuery())).jobs) == 2


async def test_a_full_disk_is_an_error_and_no_corruption(
    services: Services, store: SqliteStore, tmp_path: Path
) -> None:
    kept = await enqueue(services)
    await store._write(lambda tx: limit_pages(tx, to=0))
    large = make_request(params=JobParams(command="make", environment={"PAD": "x" * 200_000}))
    with pytest.raises(Unavailable):
        await services.jobs.enqueue_jobs([large])
    assert (await services.jobs.get_job(kept)).job_id == kept
    await store._write(lambda tx: limit_pages(tx, to=2**30))
    await services.jobs.enqueue_jobs([large])
    assert len((await services.jobs.list_jobs(JobQuery())).jobs) == 2
    connection = sqlite3.connect(tmp_path / DATABASE)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


async def test_readiness_tells_the_last_commits_error_and_writes_nothing(
    services: Services, store: SqliteStore, tmp_path: Path
) -> None:
    await enqueue(services)
    before, files = store.commits, written(tmp_path)
    await services.check()
    assert (store.commits, written(tmp_path)) == (before, files)
    await store._write(lambda tx: limit_pages(tx, to=0))
    large = make_request(params=JobParams(command="make", environment={"PAD": "x" * 200_000}))
    with pytest.raises(Unavailable):
        await services.jobs.enqueue_jobs([large])
    before, files = store.commits, written(tmp_path)
    with pytest.raises(Unavailable, match="could not write: database or disk is full"):
        await services.check()
    assert (store.commits, written(tmp_path)) == (before, files)
    await store._write(lambda tx: limit_pages(tx, to=2**30))
    await services.check()


def written(folder: Path) -> dict[str, tuple[int, int]]:
    """Return size and time of all that holds data; the index of the log is memory that readers share."""
    return {
        file.name: (file.stat().st_size, file.stat().st_mtime_ns)
        for file in folder.iterdir()
        if not file.name.endswith("-shm")
    }


def limit_pages(tx: Transaction, to: int) -> None:
    # A limit below the present size is taken as the present size.
    tx.connection.execute(f"PRAGMA max_page_count = {to or 1}")


async def test_a_file_that_another_process_writes_to_is_waited_for_once(
    services: Services, store: SqliteStore, tmp_path: Path
) -> None:
    begun: list[str] = []

    def note(statement: str) -> None:
        if statement.startswith("BEGIN"):
            begun.append(statement)

    def be_impatient(tx: Transaction) -> None:
        tx.connection.execute("PRAGMA busy_timeout = 0")
        tx.connection.set_trace_callback(note)

    await store._write(be_impatient)
    with closing(sqlite3.connect(tmp_path / DATABASE, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Unavailable, match="the store cannot write now"):
            await store.set_paused("other", paused=True)
    # No operation was at fault: to try each by itself would only keep everybody waiting as long again.
    assert begun == ["BEGIN IMMEDIATE"]
    assert await enqueue(services)


async def test_a_waiting_dequeue_rides_the_commit_of_the_enqueue(
    services: Services, store: SqliteStore
) -> None:
    call = asyncio.create_task(services.jobs.dequeue_jobs(DequeueRequest(queue="builds", wait_seconds=20)))
    await until(lambda: services.dispatcher.waiting == 1)
    await store.check()
    await store.set_paused("other", paused=True)
    before = store.commits
    job_id = await enqueue(services)
    (held,) = await call
    assert held.job.job_id == job_id
    assert store.commits - before == 1


async def test_a_dequeue_that_waits_on_a_paused_queue_makes_no_work(
    services: Services, store: SqliteStore, clock: ManualClock
) -> None:
    await services.jobs.enqueue_jobs([make_request(delay_seconds=5)])
    await services.jobs.set_paused("builds", paused=True)
    call = asyncio.create_task(services.jobs.dequeue_jobs(DequeueRequest(queue="builds", wait_seconds=20)))
    await until(lambda: services.dispatcher.waiting == 1)
    clock.advance(10)
    before = store.commits
    # Each of these is a turn for the writer, in which it could find itself something to do.
    for _ in range(20):
        await store.set_paused("other", paused=False)
    assert store.commits - before == 20
    await services.jobs.set_paused("builds", paused=False)
    assert len(await call) == 1


async def test_a_cancelled_caller_does_not_undo_an_accepted_write(
    services: Services, store: SqliteStore
) -> None:
    request = make_request()
    call = asyncio.create_task(services.jobs.enqueue_jobs([request]))
    await asyncio.sleep(0)
    call.cancel()
    await asyncio.wait([call])
    first = await services.jobs.enqueue_jobs([request])
    assert len((await services.jobs.list_jobs(JobQuery())).jobs) == 1
    assert isinstance(first[0], Enqueued)


async def test_closing_finishes_what_was_accepted(tmp_path: Path, clock: ManualClock) -> None:
    store = SqliteStore(tmp_path, clock)
    async with make_services(store, clock) as services:
        calls = [asyncio.create_task(enqueue(services)) for _ in range(50)]
        await asyncio.sleep(0)
    ids = await asyncio.gather(*calls)
    async with make_services(SqliteStore(tmp_path, clock), clock) as services:
        page = await services.jobs.list_jobs(JobQuery(page_size=500))
        assert {job.job_id for job in page.jobs} == set(ids)


async def test_a_malformed_request_reaches_no_writer(services: Services, store: SqliteStore) -> None:
    before = store.commits
    (outcome,) = await services.jobs.enqueue_jobs([make_request("not a queue")])
    assert isinstance(outcome, InvalidArgument)
    assert store.commits == before


class SlowTimers(ManualClock):
    """A clock whose timers are always late, as when the loop is busy."""

    def call_at(self, when: int, callback: Callable[[], None]) -> ManualTimer:
        return ManualTimer(callback)


async def test_what_a_claim_leaves_is_offered_to_those_who_wait(tmp_path: Path) -> None:
    clock = SlowTimers()
    store = SqliteStore(tmp_path, clock)
    async with make_services(store, clock) as services:
        await services.jobs.enqueue_jobs([make_request(delay_seconds=10), make_request(delay_seconds=10)])
        waiting = asyncio.create_task(store.dequeue_jobs(demand()))
        await asyncio.sleep(0)  # the dequeue is submitted
        await store.set_paused("other", paused=True)  # and this comes after it: that is parked by now
        clock.advance(10)
        assert len(await store.dequeue_jobs(demand())) == 1
        async with asyncio.timeout(30):
            assert len(await waiting) == 1


async def test_a_row_that_cannot_be_read_stops_nobody_else(services: Services, store: SqliteStore) -> None:
    waiting = asyncio.create_task(store.dequeue_jobs(demand()))
    bad = bad_job()
    await store.enqueue_jobs([bad])
    good = await enqueue(services)
    assert [job.job_id for job in await waiting] == [good]
    unreadable = await services.jobs.get_job(bad.job_id)
    assert unreadable.state is JobState.FAILED
    assert unreadable.result
    assert unreadable.result.error_message == "the job cannot be read"
    listed = (await services.jobs.list_jobs(JobQuery())).jobs
    assert {job.job_id for job in listed} == {bad.job_id, good}
    with pytest.raises(FailedPrecondition):
        await services.jobs.retry_job(bad.job_id, str(uuid.uuid4()))


async def test_a_claim_of_many_leaves_out_what_cannot_be_read(
    services: Services, store: SqliteStore, clock: ManualClock
) -> None:
    first = await enqueue(services)
    await store.enqueue_jobs([bad_job() for _ in range(3)])
    last = await enqueue(services)
    claimed = await store.dequeue_jobs(replace(demand(), max_jobs=10, waits=False))
    assert [job.job_id for job in claimed] == [first, last]
    clock.advance(8 * 24 * 3600)
    await services.maintenance.run_once()
    assert len((await services.jobs.list_jobs(JobQuery())).jobs) == 2


async def test_a_closed_store_turns_everybody_away(store: SqliteStore) -> None:
    await store.open()
    closing = asyncio.create_task(store.close())
    await asyncio.sleep(0)
    with pytest.raises(Unavailable):
        await store.set_paused("late", paused=True)
    await closing
    with pytest.raises(Unavailable):
        await store.check()


def demand() -> Demand:
    return Demand(queues=("builds",), max_jobs=1, visibility_seconds=60)


def bad_job() -> NewJob:
    return NewJob(
        job_id=mint_uuid(NOON),
        queue="builds",
        principal="",
        request_id=str(uuid.uuid4()),
        fingerprint=b"",
        params=JobParams(command="make"),
        params_bytes=b"\xff\xff\xff",
        execution=ExecutionConfig(),
        max_attempts=3,
        created_at=NOON,
        due_at=NOON,
    )
