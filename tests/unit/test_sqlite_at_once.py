"""Groups of calls that are alike: one statement, its own transaction, and each call's own outcome."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from airunner.codec.events import encode_event
from airunner.domain.answers import Enqueued
from airunner.domain.errors import (
    AirunnerError,
    AlreadyExists,
    AttemptSuperseded,
    InternalError,
    JobNotFound,
    SequenceMismatch,
    Unavailable,
)
from airunner.domain.event import BEGINNING, EncodedEvent
from airunner.domain.job import Job, JobParams, mint_uuid
from airunner.domain.lifecycle import Lifecycle
from airunner.stores.records import AttemptKey, Demand, EventQuery, NewJob
from airunner.stores.sqlite import SqliteStore, at_once, operations, rows
from airunner.stores.sqlite.rows import JOBS_AT_ONCE
from airunner.stores.sqlite.schema import INLINE_PARAMS_BYTES
from airunner.stores.sqlite.store import DATABASE
from airunner.stores.sqlite.transaction import Transaction
from airunner.testing.clock import ManualClock
from airunner.testing.factories import NOON, make_line, make_new_job

DEMAND = Demand(queues=("builds",), max_jobs=100, visibility_seconds=60, waits=False)


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
    jobs = [make_new_job() for _ in range(5)]
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
    job = make_new_job()
    await store.enqueue_jobs([job])
    with closing(sqlite3.connect(f"file:{tmp_path / DATABASE}?mode=ro", uri=True)) as other:
        assert other.execute("SELECT job_id FROM jobs").fetchall() == [
            (bytes.fromhex(job.job_id.replace("-", "")),)
        ]
        assert other.execute("SELECT ready, wake_at FROM jobs").fetchall() == [(1, None)]


async def test_a_request_that_was_made_before_gets_the_same_job(store: SqliteStore, groups: Groups) -> None:
    old, first, last = make_new_job(), make_new_job(), make_new_job()
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
    wanted, unwanted = make_new_job(), make_new_job(queue="other")
    await groups.together(adding(store, unwanted), adding(store, wanted))
    assert groups.statements[0] == "BEGIN"
    assert [job.job_id for job in await waiting] == [wanted.job_id]


async def test_a_delayed_job_wakes_who_waits_for_its_queue_later(tmp_path: Path) -> None:
    clock = ManualClock()
    store = SqliteStore(tmp_path, clock)
    await store.open()
    assert await store.dequeue_jobs(DEMAND) == []  # the writer knows of the queue that nothing falls due
    late = make_new_job(delay_ms=5_000)
    await store.enqueue_jobs([late])
    waiting = asyncio.create_task(store.dequeue_jobs(replace(DEMAND, waits=True)))
    await asyncio.sleep(0)
    await store._write(lambda _tx: None)  # the dequeue came before it: that is parked by now
    clock.advance(5)
    async with asyncio.timeout(30):
        assert [job.job_id for job in await waiting] == [late.job_id]
    await store.close()


@pytest.mark.parametrize(
    "odd", [make_new_job(JobParams(command="make", owner="x" * INLINE_PARAMS_BYTES)), None]
)
async def test_what_one_statement_cannot_do_takes_the_long_way(
    store: SqliteStore, groups: Groups, odd: NewJob | None
) -> None:
    """A job with large parameters, or with something else beside it."""
    jobs = [make_new_job(), make_new_job()]
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
    jobs = [make_new_job() for _ in range(JOBS_AT_ONCE + 3)]
    await groups.together(adding(store, *jobs[:-3]), adding(store, *jobs[-3:]))
    assert groups.statements.count("INSERT") == 2
    assert groups.statements[-1] == "COMMIT"
    assert await claimed(store) == [job.job_id for job in jobs]


async def test_of_calls_that_are_one_statement_only_the_one_at_fault_fails(
    store: SqliteStore, groups: Groups
) -> None:
    good = [make_new_job(), make_new_job()]
    unstorable = replace(make_new_job(), queue="\ud800")  # no text that SQLite takes
    twin = replace(make_new_job(), job_id=good[0].job_id)
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
    job = make_new_job()
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
    known, fresh = make_new_job(), make_new_job()
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


def line(sequence: int) -> EncodedEvent:
    return encode_event(make_line(sequence))


def key_of(job: Job) -> AttemptKey:
    return AttemptKey(job.job_id, job.attempt)


def publishing(
    store: SqliteStore, job: Job, *events: EncodedEvent, now: int = NOON
) -> Callable[[], Awaitable[object]]:
    return lambda: store.append_events(key_of(job), events, now)


@pytest.fixture
async def running(store: SqliteStore) -> list[Job]:
    """Jobs that were claimed and have told of their beginning."""
    await store.enqueue_jobs([make_new_job() for _ in range(3)])
    jobs = list(await store.dequeue_jobs(DEMAND))
    for job in jobs:
        await store.append_events(key_of(job), [line(1)], NOON)
    return jobs


async def sequences(store: SqliteStore, job: Job) -> list[int]:
    page = await store.read_events(EventQuery(job_id=job.job_id, after=BEGINNING))
    return [event.first_sequence for event in page.events]


async def test_calls_that_publish_are_one_statement_and_one_commit(
    store: SqliteStore, groups: Groups, running: list[Job]
) -> None:
    one, two, _ = running
    before = store.commits
    lives = await groups.together(
        publishing(store, one, line(2), now=NOON + 1),
        publishing(store, two, line(2), now=NOON + 2),
        publishing(store, one, line(3), now=NOON + 3),
        publishing(store, one, line(3), now=NOON + 4),
    )
    # Those that its trigger executes are told as the statement itself.
    assert set(groups.statements) == {"INSERT"}
    assert store.commits == before + 2  # of the writer that was held, and of these
    assert [life.last_sequence for life in lives if isinstance(life, Lifecycle)] == [2, 2, 3, 3]
    assert [await sequences(store, job) for job in running] == [[1, 2, 3], [1, 2], [1]]
    # What is repeated stores nothing, and changes nothing.
    assert lives[2] == lives[3] == await store.get_life(one.job_id)
    assert lives[1] == await store.get_life(two.job_id)


@pytest.mark.parametrize(
    "reason", ["a gap", "two batches", "another attempt", "unknown", "a first sign", "nothing new"]
)
async def test_what_cannot_be_published_at_once_takes_the_long_way(
    store: SqliteStore, groups: Groups, running: list[Job], reason: str
) -> None:
    one, two, three = running
    odd = {
        "a gap": publishing(store, one, line(5)),
        "two batches": publishing(store, one, line(2), line(3)),
        "another attempt": lambda: store.append_events(AttemptKey(one.job_id, 7), [line(2)], NOON),
        "unknown": lambda: store.append_events(AttemptKey(mint_uuid(NOON), 1), [line(2)], NOON),
        "a first sign": publishing(store, three, line(2)),
        "nothing new": publishing(store, one, line(1)),
    }[reason]
    if reason == "a first sign":
        await store._write(lambda tx: tx.known.forget())
    good = [] if reason == "nothing new" else [publishing(store, two, line(2))]
    outcomes = await groups.together(odd, *good)
    assert groups.statements[0] == "BEGIN"
    assert groups.statements[-1] == "COMMIT"
    refused = {"a gap": SequenceMismatch, "another attempt": AttemptSuperseded, "unknown": JobNotFound}
    assert type(outcomes[0]) is refused.get(reason, Lifecycle)
    assert await sequences(store, two) == ([1, 2] if good else [1])


@pytest.mark.parametrize(
    ("change", "outcome", "expected"),
    [
        ("UPDATE jobs SET attempt = 7", AttemptSuperseded, [1]),
        ("UPDATE jobs SET state = 1", AttemptSuperseded, [1]),
        ("UPDATE jobs SET last_sequence = 2", Lifecycle, [1]),
        ("UPDATE jobs SET last_sequence = 0", SequenceMismatch, [1]),
        ("UPDATE jobs SET cancel_requested = 1, updated_at = 1", Lifecycle, [1, 2]),
        ("DELETE FROM jobs", JobNotFound, []),
    ],
)
async def test_a_job_that_is_not_as_it_was_known_is_read_again(
    store: SqliteStore,
    running: list[Job],
    tmp_path: Path,
    change: str,
    outcome: type[object],
    expected: list[int],
) -> None:
    one, *_ = running
    tried: list[str] = []
    await store._write(
        lambda tx: tx.connection.set_trace_callback(lambda text: tried.append(text.split()[0]))
    )
    tried.clear()
    with closing(sqlite3.connect(tmp_path / DATABASE)) as other, other:
        # Nobody should: only tools that write no jobs are meant to be used beside a server.
        other.execute(change)
    (told,) = await asyncio.gather(publishing(store, one, line(2))(), return_exceptions=True)
    assert (tried[0], "BEGIN" in tried) == ("INSERT", True)
    assert type(told) is outcome
    if expected:
        assert await sequences(store, one) == expected
    if isinstance(told, Lifecycle):
        assert told == await store.get_life(one.job_id)


async def test_what_turned_out_to_be_wrong_is_not_built_upon(store: SqliteStore, running: list[Job]) -> None:
    one, *_ = running
    life = await store.get_life(one.job_id)
    ahead = replace(life, last_sequence=5)
    await store._write(lambda tx: tx.known.lives.keep([(one.job_id, (1, ahead))]))
    with pytest.raises(SequenceMismatch):
        await store.append_events(key_of(one), [line(6)], NOON)
    assert await store.append_events(key_of(one), [line(2)], NOON) == await store.get_life(one.job_id)
    assert await sequences(store, one) == [1, 2]


async def test_a_publish_that_fails_is_tried_again_and_told(
    store: SqliteStore, running: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "insert_published", lambda _: "INSERT INTO nowhere VALUES (?)")
    life = await store.append_events(key_of(running[0]), [line(2)], NOON)
    assert life.last_sequence == 2
    assert await sequences(store, running[0]) == [1, 2]


async def test_a_publish_whose_answer_is_lost_is_stored_once(
    store: SqliteStore, running: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    def written_and_failed(tx: Transaction, events: list[rows.Row]) -> bool:
        values = list(itertools.chain.from_iterable(events))
        tx.connection.execute(rows.insert_published(len(events)), values)
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(at_once.PUBLISHING, "_insert", written_and_failed)
    life = await store.append_events(key_of(running[0]), [line(2)], NOON)
    assert life == await store.get_life(running[0].job_id)
    assert await sequences(store, running[0]) == [1, 2]


async def test_publishing_waits_once_for_a_locked_file(
    store: SqliteStore, running: list[Job], tmp_path: Path
) -> None:
    await store._write(lambda tx: tx.connection.execute("PRAGMA busy_timeout = 0"))
    with closing(sqlite3.connect(tmp_path / DATABASE, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Unavailable, match="the store cannot write now"):
            await store.append_events(key_of(running[0]), [line(2)], NOON)
    await store.append_events(key_of(running[0]), [line(2)], NOON)
    assert await sequences(store, running[0]) == [1, 2]
