"""What the writer knows of jobs that it gave out: their ends read nothing, and nothing out of date."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing
from pathlib import Path

import pytest

from airunner.codec.events import encode_events
from airunner.domain.errors import AttemptSuperseded, InternalError
from airunner.domain.job import JobState
from airunner.domain.lifecycle import Lifecycle
from airunner.services.composition import Services
from airunner.stores.records import AttemptKey, Completion, Demand, Release, Retention
from airunner.stores.sqlite import SqliteStore, operations
from airunner.stores.sqlite.store import DATABASE
from airunner.stores.sqlite.transaction import Transaction
from airunner.testing.clock import ManualClock
from airunner.testing.factories import make_line, make_request, make_services, make_start, make_success

Change = Callable[[SqliteStore, AttemptKey, int], Awaitable[object]]
DEMAND = Demand(queues=("one",), max_jobs=10, visibility_seconds=60, waits=False)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def store(tmp_path: Path, clock: ManualClock) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(tmp_path, clock)
    async with make_services(store, clock) as services:
        await enqueue(services)
        yield store


async def enqueue(services: Services) -> None:
    await services.jobs.enqueue_jobs([make_request("one", max_attempts=2) for _ in range(3)])


async def claim(store: SqliteStore) -> list[AttemptKey]:
    return [AttemptKey(job.job_id, job.attempt) for job in await store.dequeue_jobs(DEMAND)]


async def complete(store: SqliteStore, *keys: AttemptKey, at: int) -> list[object]:
    return list(await store.complete_jobs([Completion(key, make_success()) for key in keys], at))


async def test_the_ends_of_jobs_that_were_claimed_read_no_row(store: SqliteStore, clock: ManualClock) -> None:
    keys = await claim(store)
    statements: list[str] = []
    await store._write(lambda tx: tx.connection.set_trace_callback(statements.append))
    await complete(store, *keys, at=clock.now())
    assert any(text.startswith("UPDATE jobs") for text in statements)
    assert not any(text.startswith("SELECT") for text in statements)


async def test_events_after_the_first_ones_of_an_attempt_read_no_row(
    store: SqliteStore, clock: ManualClock
) -> None:
    key, *_ = await claim(store)
    await store.append_events(key, encode_events([make_start()]), clock.now())
    statements: list[str] = []
    await store._write(lambda tx: tx.connection.set_trace_callback(statements.append))
    for sequence in (2, 3):
        clock.advance(1)
        await store.append_events(key, encode_events([make_line(sequence)]), clock.now())
    assert not any(text.startswith("SELECT") for text in statements)
    life = await store.get_life(key.job_id)
    assert (life.last_sequence, life.updated_at) == (3, clock.now())


@pytest.mark.parametrize("change", ["extend", "cancel", "claim_anew", "other_process"])
async def test_events_meet_the_job_as_it_is(store: SqliteStore, clock: ManualClock, change: str) -> None:
    key, *_ = await claim(store)
    await store.append_events(key, encode_events([make_start()]), clock.now())
    await dict(zip(NAMES, CHANGES, strict=True))[change](store, key, clock.now())
    before = await store.get_life(key.job_id)
    events = encode_events([make_line(2)])
    if before.attempt != key.attempt:
        with pytest.raises(AttemptSuperseded):
            await store.append_events(key, events, clock.now())
        return
    life = await store.append_events(key, events, clock.now())
    assert life == await store.get_life(key.job_id)
    assert (life.cancel_requested, life.visible_until) == (before.cancel_requested, before.visible_until)


async def test_an_end_that_is_repeated_meets_the_first_one(store: SqliteStore, clock: ManualClock) -> None:
    key, *_ = await claim(store)
    first, second = await complete(store, key, key, at=clock.now())
    (third,) = await complete(store, key, at=clock.now() + 1)
    assert first == second == third


async def _release(store: SqliteStore, key: AttemptKey, now: int) -> None:
    await store.release_job(Release(key=key, error="test error"), now)


async def _release_and_claim(store: SqliteStore, key: AttemptKey, now: int) -> None:
    await _release(store, key, now)
    await claim(store)


async def _write_beside_it(store: SqliteStore, *_: object) -> None:
    with closing(sqlite3.connect(store._directory / DATABASE)) as other, other:
        other.execute("UPDATE jobs SET attempt = 7")


CHANGES: list[Change] = [
    lambda store, key, now: store.extend_job(key, 30, now),
    lambda store, key, now: store.append_events(key, encode_events([make_start()]), now),
    lambda store, key, now: store.cancel_job(key.job_id, now),
    _release,
    _release_and_claim,
    _write_beside_it,
]
NAMES = ("extend", "append", "cancel", "release", "claim_anew", "other_process")


@pytest.mark.parametrize("change", CHANGES, ids=NAMES)
async def test_an_end_meets_the_job_as_it_is(store: SqliteStore, clock: ManualClock, change: Change) -> None:
    key, *_ = await claim(store)
    await change(store, key, clock.now())
    before = await store.get_life(key.job_id)
    (outcome,) = await complete(store, key, at=clock.now())
    if before.attempt != key.attempt or before.state is not JobState.RUNNING:
        assert isinstance(outcome, AttemptSuperseded)
        assert await store.get_life(key.job_id) == before
        return
    assert isinstance(outcome, Lifecycle)
    assert outcome == await store.get_life(key.job_id)
    assert outcome.last_sequence == before.last_sequence
    assert outcome.cancel_requested == before.cancel_requested


async def test_a_claim_that_was_undone_is_not_known(store: SqliteStore, clock: ManualClock) -> None:
    def fail(tx: Transaction) -> None:
        assert operations.claim(tx, DEMAND, clock.now())
        raise RuntimeError("a bug")

    key, *_ = await claim(store)
    await _release(store, key, clock.now())
    with pytest.raises(InternalError):
        await store._write(fail)
    (outcome,) = await complete(store, AttemptKey(key.job_id, 2), at=clock.now())
    assert isinstance(outcome, AttemptSuperseded)


async def test_a_job_that_the_server_has_ended_stays_ended(store: SqliteStore, clock: ManualClock) -> None:
    """The third silent attempt in a row is the first whose lapse costs a try."""
    attempts: list[AttemptKey] = []
    for _ in range(4):
        attempts += (await claim(store))[:1]
        clock.advance(61)
    key = attempts[-1]
    retention = Retention(jobs_ms=None, events_ms=10**9)
    await store._write(lambda tx: operations.maintain(tx, retention, clock.now()))
    before = await store.get_life(key.job_id)
    (outcome,) = await complete(store, key, at=clock.now())
    assert isinstance(outcome, AttemptSuperseded)
    assert await store.get_life(key.job_id) == before
    assert before.state is JobState.FAILED
