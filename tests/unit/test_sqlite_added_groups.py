"""Groups that only add jobs: one statement, which is its own transaction, and each call's own outcome."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from airunner.codec.jobs import encode_params
from airunner.domain.answers import Enqueued
from airunner.domain.errors import AirunnerError, AlreadyExists, InternalError, Unavailable
from airunner.domain.execution import ExecutionConfig
from airunner.domain.job import JobParams, mint_uuid
from airunner.stores.records import Demand, NewJob
from airunner.stores.sqlite import SqliteStore, operations
from airunner.stores.sqlite.rows import JOBS_AT_ONCE
from airunner.stores.sqlite.schema import INLINE_PARAMS_BYTES
from airunner.stores.sqlite.store import DATABASE
from airunner.stores.sqlite.transaction import Transaction
from airunner.testing.clock import ManualClock
from airunner.testing.factories import NOON

SMALL = JobParams(command="make")
DEMAND = Demand(queues=("builds",), max_jobs=100, visibility_seconds=60, waits=False)


def new_job(params: JobParams = SMALL, *, queue: str = "builds", delay: int = 0) -> NewJob:
    return NewJob(
        job_id=mint_uuid(NOON),
        queue=queue,
        principal="ann",
        request_id=mint_uuid(NOON),
        fingerprint=b"a",
        params=params,
        params_bytes=encode_params(params),
        execution=ExecutionConfig(),
        max_attempts=3,
        created_at=NOON,
        due_at=NOON + delay,
    )


class Groups:
    """Has calls committed as one group, and knows the statements of the last one."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self._seen: list[str] = []

    @property
    def statements(self) -> list[str]:
        """The first words of the last group's statements; before it there is the commit of `hold`."""
        return self._seen[1:]

    async def together(self, *calls: Callable[[], Awaitable[object]]) -> list[object]:
        """Make calls while the writer is busy, so that its next group has all; return what they got."""
        gate, busy = threading.Event(), threading.Event()

        def hold(tx: Transaction) -> None:
            busy.set()
            gate.wait(30)
            self._seen.clear()
            tx.connection.set_trace_callback(lambda text: self._seen.append(text.split()[0]))

        holding = asyncio.create_task(self._store._write(hold))
        await asyncio.to_thread(busy.wait, 30)
        tasks = [asyncio.ensure_future(call()) for call in calls]
        await asyncio.sleep(0)  # each has submitted its write
        gate.set()
        await holding
        return await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    opened = SqliteStore(tmp_path, ManualClock())
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
def groups(store: SqliteStore) -> Groups:
    return Groups(store)


def adding(store: SqliteStore, *jobs: NewJob) -> Callable[[], Awaitable[object]]:
    return lambda: store.enqueue_jobs(jobs)


def ids(outcomes: object) -> list[str]:
    assert isinstance(outcomes, Sequence)
    return [outcome.job_id for outcome in outcomes if isinstance(outcome, Enqueued)]


async def claimed(store: SqliteStore) -> list[str]:
    return [job.job_id for job in await store.dequeue_jobs(DEMAND)]


async def test_calls_that_only_add_are_one_statement_and_one_commit(
    store: SqliteStore, groups: Groups
) -> None:
    jobs = [new_job() for _ in range(5)]
    before = store.commits
    outcomes = await groups.together(
        adding(store, jobs[0]), adding(store, *jobs[1:3]), adding(store, jobs[3]), adding(store, jobs[4])
    )
    assert groups.statements == ["INSERT"]
    assert store.commits == before + 2  # of the writer that was held, and of these
    assert [ids(outcome) for outcome in outcomes] == [
        [jobs[0].job_id],
        [jobs[1].job_id, jobs[2].job_id],
        [jobs[3].job_id],
        [jobs[4].job_id],
    ]
    assert await claimed(store) == [job.job_id for job in jobs]


async def test_what_was_added_so_is_there_after_the_server_is_gone(
    store: SqliteStore, tmp_path: Path
) -> None:
    job = new_job()
    await store.enqueue_jobs([job])
    with closing(sqlite3.connect(f"file:{tmp_path / DATABASE}?mode=ro", uri=True)) as other:
        assert other.execute("SELECT job_id FROM jobs").fetchall() == [
            (bytes.fromhex(job.job_id.replace("-", "")),)
        ]
        assert other.execute("SELECT ready, wake_at FROM jobs").fetchall() == [(1, None)]


async def test_a_request_that_was_made_before_gets_the_same_job(store: SqliteStore, groups: Groups) -> None:
    old, first, last = new_job(), new_job(), new_job()
    await store.enqueue_jobs([old])
    again = replace(old, job_id=mint_uuid(NOON))
    twice = replace(first, job_id=mint_uuid(NOON))
    other = replace(first, job_id=mint_uuid(NOON), fingerprint=b"b")
    outcomes = await groups.together(
        adding(store, again), adding(store, first), adding(store, twice, other), adding(store, last)
    )
    assert [ids(outcome) for outcome in outcomes] == [
        [old.job_id],
        [first.job_id],
        [first.job_id],
        [last.job_id],
    ]
    assert isinstance(outcomes[2], list)
    assert isinstance(outcomes[2][1], AlreadyExists)
    assert await claimed(store) == [old.job_id, first.job_id, last.job_id]


async def test_who_waits_is_served_by_the_same_commit(store: SqliteStore, groups: Groups) -> None:
    waiting = asyncio.create_task(store.dequeue_jobs(replace(DEMAND, waits=True)))
    await asyncio.sleep(0)  # it is submitted, and parked before what follows
    wanted, unwanted = new_job(), new_job(queue="other")
    await groups.together(adding(store, unwanted), adding(store, wanted))
    assert groups.statements[0] == "BEGIN"
    assert [job.job_id for job in await waiting] == [wanted.job_id]


async def test_a_delayed_job_wakes_who_waits_for_its_queue_later(tmp_path: Path) -> None:
    clock = ManualClock()
    store = SqliteStore(tmp_path, clock)
    await store.open()
    assert await store.dequeue_jobs(DEMAND) == []  # the writer knows of the queue that nothing falls due
    late = new_job(delay=5_000)
    await store.enqueue_jobs([late])
    waiting = asyncio.create_task(store.dequeue_jobs(replace(DEMAND, waits=True)))
    await asyncio.sleep(0)
    await store._write(lambda _tx: None)  # the dequeue came before it: that is parked by now
    clock.advance(5)
    async with asyncio.timeout(30):
        assert [job.job_id for job in await waiting] == [late.job_id]
    await store.close()


@pytest.mark.parametrize("odd", [new_job(JobParams(command="make", owner="x" * INLINE_PARAMS_BYTES)), None])
async def test_what_one_statement_cannot_do_takes_the_long_way(
    store: SqliteStore, groups: Groups, odd: NewJob | None
) -> None:
    """A job with large parameters, or with something else beside it."""
    jobs = [new_job(), new_job()]
    other = adding(store, odd) if odd else lambda: store.set_paused("other", paused=True)
    await groups.together(adding(store, jobs[0]), other, adding(store, jobs[1]))
    assert groups.statements[0] == "BEGIN"
    assert groups.statements[-1] == "COMMIT"
    expected = [jobs[0], *([odd] if odd else []), jobs[1]]
    assert await claimed(store) == [job.job_id for job in expected]
    for job in expected:
        # Wherever they are kept, the parameters are those that were given.
        assert (await store.get_job(job.job_id)).params == job.params


async def test_large_groups_are_added_in_order_by_few_statements(store: SqliteStore, groups: Groups) -> None:
    jobs = [new_job() for _ in range(JOBS_AT_ONCE + 3)]
    await groups.together(adding(store, *jobs[:-3]), adding(store, *jobs[-3:]))
    assert groups.statements.count("INSERT") == 2
    assert groups.statements[-1] == "COMMIT"
    assert await claimed(store) == [job.job_id for job in jobs]


async def test_of_calls_that_are_one_statement_only_the_one_at_fault_fails(
    store: SqliteStore, groups: Groups
) -> None:
    good = [new_job(), new_job()]
    unstorable = replace(new_job(), queue="\ud800")  # no text that SQLite takes
    twin = replace(new_job(), job_id=good[0].job_id)
    outcomes = await groups.together(
        adding(store, good[0]), adding(store, unstorable), adding(store, twin), adding(store, good[1])
    )
    assert [type(outcome) for outcome in outcomes] == [list, InternalError, Unavailable, list]
    assert await claimed(store) == [job.job_id for job in good]


async def test_a_locked_file_is_waited_for_once(store: SqliteStore, tmp_path: Path) -> None:
    tried: list[str] = []

    def be_impatient(tx: Transaction) -> None:
        tx.connection.execute("PRAGMA busy_timeout = 0")
        tx.connection.set_trace_callback(lambda text: tried.append(text.split()[0]))

    await store._write(be_impatient)
    job = new_job()
    with closing(sqlite3.connect(tmp_path / DATABASE, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        tried.clear()
        with pytest.raises(Unavailable, match="the store cannot write now"):
            await store.enqueue_jobs([job])
    assert tried == ["INSERT"]
    with pytest.raises(Unavailable, match="database is locked"):
        await store.check()
    assert ids(await store.enqueue_jobs([job])) == [job.job_id]
    await store.check()


async def test_a_look_up_that_fails_after_the_insert_loses_and_doubles_nothing(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, fresh = new_job(), new_job()
    await store.enqueue_jobs([known])
    failures = iter([sqlite3.OperationalError("disk I/O error")])
    load = operations._load_ids

    def failing_once(tx: Transaction, jobs: Sequence[NewJob]) -> set[str]:
        for failure in failures:
            raise failure
        return load(tx, jobs)

    monkeypatch.setattr(operations, "_load_ids", failing_once)
    outcomes = await store.enqueue_jobs([replace(known, job_id=mint_uuid(NOON)), fresh])
    assert ids(outcomes) == [known.job_id, fresh.job_id]
    assert not any(isinstance(outcome, AirunnerError) for outcome in outcomes)
    assert await claimed(store) == [known.job_id, fresh.job_id]
