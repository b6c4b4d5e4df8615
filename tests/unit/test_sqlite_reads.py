"""Reads of the SQLite store: none holds up the look-up of keys, none takes for ever."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest

from airunner.domain.errors import (
    DeadlineExceeded,
    FailedPrecondition,
    InvalidArgument,
    JobNotFound,
    Unavailable,
)
from airunner.domain.event import Position
from airunner.domain.job import JobState
from airunner.domain.listing import JobQuery
from airunner.domain.requests import CompleteRequest, DequeueRequest, OverviewQuery
from airunner.stores.pages import PageBounds
from airunner.stores.records import EventPage, EventQuery, Retention
from airunner.stores.sqlite import SqliteStore, queries, schema
from airunner.stores.sqlite import store as store_module
from airunner.stores.sqlite.migrations import migrate
from airunner.stores.sqlite.store import DATABASE
from airunner.testing.clock import ManualClock
from airunner.testing.factories import make_line, make_request, make_services, make_success

ENDLESS = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(tmp_path, ManualClock())
    await store.open()
    yield store
    await store.close()


async def test_a_key_is_found_while_every_reader_is_busy(store: SqliteStore) -> None:
    go_on = threading.Event()
    busy = [asyncio.create_task(store._read(lambda _: go_on.wait(60))) for _ in range(10)]
    try:
        assert await asyncio.wait_for(store.find_key("nobody"), 30) is None
    finally:
        go_on.set()
        await asyncio.gather(*busy)


async def test_a_read_has_a_deadline(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "READ_SECONDS", 0.05)
    with pytest.raises(DeadlineExceeded):
        await store._read(lambda connection: connection.execute(ENDLESS).fetchone())
    await store.check()


class Interrupted:
    """A reader's connection: something happens after one of its statements."""

    def __init__(self, connection: sqlite3.Connection, after: int, surprise: Callable[[], object]) -> None:
        self._connection = connection
        self._after = after
        self._surprise = surprise

    def execute(self, *statement: Any) -> sqlite3.Cursor:
        found = self._connection.execute(*statement)
        self._after -= 1
        if not self._after:
            self._surprise()
        return found

    @property
    def in_transaction(self) -> bool:
        return self._connection.in_transaction


@pytest.mark.parametrize("statement", [1, 2, 3])
async def test_a_job_that_ends_while_its_events_are_read_is_not_over_without_its_last(
    tmp_path: Path, statement: int
) -> None:
    clock = ManualClock()
    store = SqliteStore(tmp_path, clock)
    async with make_services(store, clock) as services:
        loop = asyncio.get_running_loop()
        await services.jobs.enqueue_jobs([make_request()])
        (held,) = await services.jobs.dequeue_jobs(DequeueRequest(queue="builds", wait_seconds=0))
        await services.events.publish_events(held.task_token, [make_line(1)])
        last = CompleteRequest(
            task_token=held.task_token, result=make_success(final_sequence=2), events=[make_line(2)]
        )

        def end() -> None:
            asyncio.run_coroutine_threadsafe(services.jobs.complete_jobs([last]), loop).result(30)

        def read(connection: sqlite3.Connection) -> EventPage:
            query = EventQuery(job_id=held.job.job_id, after=Position(0, 0))
            interrupted = Interrupted(connection, statement, end)
            return queries.read_events(cast("sqlite3.Connection", interrupted), query)

        page = await store._read(read)
        assert len(page.events) == 2 or not page.state.terminal
        assert (await services.jobs.get_job(held.job.job_id)).state is JobState.COMPLETED


@pytest.mark.parametrize("statement", [1, 2, 3])
async def test_a_job_that_is_purged_while_its_events_are_read_is_whole_or_gone(
    tmp_path: Path, statement: int
) -> None:
    clock = ManualClock()
    store = SqliteStore(tmp_path, clock)
    async with make_services(store, clock) as services:
        loop = asyncio.get_running_loop()
        await services.jobs.enqueue_jobs([make_request()])
        (held,) = await services.jobs.dequeue_jobs(DequeueRequest(queue="builds", wait_seconds=0))
        await services.events.publish_events(held.task_token, [make_line(1), make_line(2)])
        await services.jobs.complete_jobs([CompleteRequest(held.task_token, make_success(final_sequence=2))])

        async def purge() -> None:
            while (await store.maintain(Retention(jobs_ms=0), clock.now())).has_more:
                pass

        def read(connection: sqlite3.Connection) -> EventPage | None:
            query = EventQuery(job_id=held.job.job_id, after=Position(0, 0))
            interrupted = Interrupted(
                connection, statement, lambda: asyncio.run_coroutine_threadsafe(purge(), loop).result(30)
            )
            try:
                return queries.read_events(cast("sqlite3.Connection", interrupted), query)
            except JobNotFound:
                return None

        page = await store._read(read)
        assert page is None or len(page.events) == 2
        with pytest.raises(JobNotFound):
            await store.get_job(held.job.job_id)


async def test_a_damaged_file_is_not_ready(store: SqliteStore, tmp_path: Path) -> None:
    def damaged(_: sqlite3.Connection) -> None:
        with (tmp_path / "other.db").open("wb") as file:
            file.write(b"this is no database, whatever its name says" * 100)
        with closing(sqlite3.connect(tmp_path / "other.db")) as connection:
            connection.execute("SELECT * FROM jobs")

    with pytest.raises(Unavailable, match="cannot read now"):
        await store._read(damaged)
    with pytest.raises(Unavailable, match="damaged"):
        await store.check()


async def test_to_wait_for_a_reader_is_part_of_it(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()
    busy = [asyncio.create_task(store._read(lambda _: go_on.wait(60))) for _ in range(3)]
    await asyncio.sleep(0)
    monkeypatch.setattr(store_module, "READ_SECONDS", -1)
    late = asyncio.create_task(store.list_queues(limit=100))
    await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(DeadlineExceeded):
        await late
    await asyncio.gather(*busy)


@pytest.mark.parametrize("cursor", ["", "j1f4"])
@pytest.mark.parametrize("state", [None, JobState.RUNNING])
@pytest.mark.parametrize("queue", ["", "builds"])
def test_a_list_is_read_along_an_index(
    queue: str, state: JobState | None, cursor: str, tmp_path: Path
) -> None:
    statements: list[str] = []
    with closing(schema.connect(tmp_path / DATABASE)) as connection:
        migrate(connection)
        connection.execute("INSERT INTO queues (name, paused) VALUES ('builds', 0)")
        connection.set_trace_callback(statements.append)
        queries.list_jobs(connection, JobQuery(queue=queue, state=state, cursor=cursor), PageBounds())
        connection.set_trace_callback(None)
        listings = [text for text in statements if text.startswith("SELECT id FROM jobs")]
        plans = [
            " ".join(row[-1] for row in connection.execute(f"EXPLAIN QUERY PLAN {listing}"))
            for listing in listings
        ]
    assert len(plans) == (5 if queue and state is None else 1)
    assert [plan for plan in plans if "TEMP B-TREE" in plan or "SCAN" in plan] == []


async def test_a_list_of_many_queues_takes_the_newest_of_all(tmp_path: Path) -> None:
    clock = ManualClock()
    async with make_services(SqliteStore(tmp_path, clock), clock) as services:
        for number in range(30):
            await services.jobs.enqueue_jobs([make_request(f"q{number % 7}")])
        everything = (await services.jobs.list_jobs(JobQuery(page_size=30))).jobs
        for page in range(1, 5):
            query = JobQuery(state=JobState.SCHEDULED, page=page, page_size=8)
            listed = await services.jobs.list_jobs(query)
            assert listed.jobs == everything[(page - 1) * 8 : page * 8]
            assert listed.last_page == 4


async def test_queues_come_by_the_hundred(tmp_path: Path) -> None:
    clock = ManualClock()
    async with make_services(SqliteStore(tmp_path, clock), clock) as services:
        names = [f"q{number:03}" for number in range(250)]
        await services.jobs.enqueue_jobs([make_request(queue) for queue in names[::2]])
        for queue in names[1::2]:
            await services.jobs.set_paused(queue, paused=True)
        first = await services.jobs.page_queues(OverviewQuery())
        assert [queue.name for queue in first.queues] == names[:100]
        queues = await services.jobs.list_queues()
        assert [(queue.name, queue.paused) for queue in queues] == [
            (name, number % 2 == 1) for number, name in enumerate(names)
        ]


@pytest.mark.parametrize(
    "cursor", ["jffffffffffffffff", "j8000000000000000", "j-1", "j", "jxyz", "j" + "f" * 99]
)
async def test_a_cursor_that_is_none_of_ours_is_refused(store: SqliteStore, cursor: str) -> None:
    with pytest.raises(InvalidArgument):
        await store.list_jobs(JobQuery(cursor=cursor))


async def test_a_file_that_cannot_be_opened_fails_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteStore(tmp_path, ManualClock())
    calls = []

    def connect_once(path: Path, **options: bool) -> sqlite3.Connection:
        calls.append(path)
        if len(calls) > 1:
            raise sqlite3.OperationalError("unable to open database file")
        return original(path, **options)

    original = schema.connect
    monkeypatch.setattr(store_module, "connect", connect_once)
    with pytest.raises(FailedPrecondition, match="unable to open"):
        await asyncio.wait_for(store.open(), 30)
    monkeypatch.undo()
    again = SqliteStore(tmp_path, ManualClock())
    await again.open()
    assert (tmp_path / DATABASE).exists()
    await again.close()
