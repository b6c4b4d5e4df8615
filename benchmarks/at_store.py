"""What the store does by itself: replay, and claims in a large database."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from pathlib import Path

from airunner.codec.events import decode_event
from airunner.domain.batching import unpack
from airunner.domain.clock import SystemClock
from airunner.domain.event import EncodedEvent, Position
from airunner.stores.records import AttemptKey, Demand, EventQuery
from airunner.stores.sqlite import SqliteStore, rows
from airunner.stores.sqlite.queries import read_events
from airunner.stores.sqlite.schema import connect
from airunner.stores.sqlite.store import DATABASE
from benchmarks import bare
from benchmarks.harness import ROUNDS, Row, folder, median

_LINES = 10_000
_FROM = 9_000
_REPEATS = 100


async def run() -> list[Row]:
    """All of them."""
    return [*await replay(), *await large_database()]


async def replay() -> list[Row]:
    """Replay from 9,000 of 10,000 lines: stored batches, against single rows and against all batches."""
    with folder() as directory:
        store = SqliteStore(directory, SystemClock())
        await store.open()
        batched = await _filled(store, bare.batches(_LINES))
        single = await _filled(store, bare.batches(_LINES, size=1))
        await store.close()
        connection = connect(directory / DATABASE, read_only=True)
        tail, beginning = Position(1, _FROM - 1), Position(1, 0)
        rounds = [
            [
                min(_replay_seconds(connection, job_id, after) for _ in range(_REPEATS))
                for job_id, after in ((batched, tail), (single, tail), (batched, beginning))
            ]
            for _ in range(ROUNDS)
        ]
        connection.close()
    as_batches, as_rows, whole = (min(took) for took in zip(*rounds, strict=True))
    return [
        _faster("replay from 9,000 of 10,000 as stored batches", as_batches, as_rows, "unbatched rows", 6),
        _faster("the same", as_batches, whole, "reading all batches", 5),
    ]


async def large_database() -> list[Row]:
    """A claim with a million other jobs, against one with a thousand, in turns."""
    return [await _large_database("queued"), await _large_database("finished")]


async def _large_database(state: str) -> Row:
    with folder() as directory:
        small = await _populated(directory / "small", 1_000, state)
        large = await _populated(directory / "large", 1_000_000, state)
        rounds = []
        for _ in range(ROUNDS):
            took = [(await _claim_seconds(small), await _claim_seconds(large)) for _ in range(100)]
            rounds.append(tuple(median(list(side)) for side in zip(*took, strict=True)))
        await small.close()
        await large.close()
    few, many = (min(side) for side in zip(*rounds, strict=True))
    return Row(
        name=f"dequeue with 1,000,000 {state} jobs",
        measured=f"{many * 1000:.2f} ms",
        limit=f"{few * 1000:.2f} ms with 1,000",
        ratio=many / few,
        goal="<= 2",
        met=many / few <= 2,
    )


async def _filled(store: SqliteStore, events: list[EncodedEvent]) -> str:
    now = SystemClock().now()
    queue = f"q{len(events)}"
    await store.enqueue_jobs([bare.new_job(queue, now)])
    job = (await store.dequeue_jobs(Demand(queues=(queue,), max_jobs=1, visibility_seconds=300)))[0]
    await store.append_events(AttemptKey(job_id=job.job_id, attempt=1), events, now)
    return job.job_id


def _replay_seconds(connection: sqlite3.Connection, job_id: str, after: Position) -> float:
    """Read everything after a position, as the stored payloads: the store's query, without its threads."""
    query = EventQuery(job_id=job_id, after=after, limit=_LINES, max_bytes=2**30)
    began = time.perf_counter()
    page = read_events(connection, query)
    took = time.perf_counter() - began
    if page.events[-1].last_sequence != _LINES:
        raise RuntimeError("the replay is not complete")
    if not any(event.sequence == after.sequence + 1 for event in unpack(decode_event(page.events[0]))):
        raise RuntimeError("the replay does not begin where it was asked to")
    return took


def _faster(name: str, took: float, than: float, what: str, goal: int) -> Row:
    return Row(
        name=name,
        measured=f"{took * 1000:.2f} ms",
        limit=f"{than * 1000:.2f} ms, {what}",
        ratio=than / took,
        goal=f">= {goal}x faster",
        met=than / took >= goal,
    )


async def _populated(directory: Path, others: int, state: str) -> SqliteStore:
    store = SqliteStore(directory, SystemClock())
    await store.open()
    await asyncio.to_thread(_populate, directory / DATABASE, others, state)
    if state == "finished":
        await store.enqueue_jobs([bare.new_job() for _ in range(500)])
    return store


async def _claim_seconds(store: SqliteStore) -> float:
    demand = Demand(queues=("default",), max_jobs=1, visibility_seconds=300)
    began = time.perf_counter()
    claimed = await store.dequeue_jobs(demand)
    took = time.perf_counter() - began
    if len(claimed) != 1:
        raise RuntimeError("nothing was claimed")
    return took


def _populate(path: Path, count: int, state: str) -> None:
    connection = connect(path)
    connection.execute("PRAGMA synchronous = OFF")
    for start in range(0, count, 10_000):
        connection.execute("BEGIN IMMEDIATE")
        jobs = [bare.new_job() for _ in range(min(10_000, count - start))]
        connection.executemany(rows.insert_jobs(1), [rows.new_job_row(job) for job in jobs])
        connection.execute("COMMIT")
    if state == "finished":
        connection.execute("UPDATE jobs SET state = 3, ready = 0, finished_at = updated_at")
    connection.close()
