"""What the writer knows of queues without asking: it saves statements, and nobody waits for a due job."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import closing, nullcontext
from pathlib import Path

import pytest

from airunner.domain.answers import DequeuedJob, Enqueued
from airunner.domain.errors import AirunnerError, InternalError
from airunner.domain.job import Job, JobParams
from airunner.domain.lifecycle import Lifecycle
from airunner.domain.requests import DequeueRequest
from airunner.services.composition import Services
from airunner.stores.records import AttemptKey, Completion, Demand, Release, Retention
from airunner.stores.sqlite import SqliteStore, rows
from airunner.stores.sqlite.store import DATABASE
from airunner.stores.sqlite.transaction import Transaction
from airunner.testing.clock import ManualClock
from airunner.testing.conditions import until
from airunner.testing.factories import make_request, make_services, make_success

QUEUES = ("one", "two", "three")
HANDLERS = ("", "mail")
DAY_MS = 24 * 3600 * 1000


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


async def traced(store: SqliteStore) -> list[str]:
    """Return the first words of what the writer runs from now on."""
    statements: list[str] = []
    await store._write(
        lambda tx: tx.connection.set_trace_callback(
            lambda text: statements.append(" ".join(text.split()[:2])),
        )
    )
    await turn(store)
    statements.clear()
    return statements


async def turn(store: SqliteStore) -> None:
    """Return when the writer has done all that was asked before."""
    await store._write(lambda _: None)


async def enqueue(services: Services, *, delay_seconds: int = 0) -> str:
    (added,) = await services.jobs.enqueue_jobs([make_request("one", delay_seconds=delay_seconds)])
    assert isinstance(added, Enqueued)
    return added.job_id


async def waiting(services: Services, count: int = 1) -> list[asyncio.Task[Sequence[DequeuedJob]]]:
    request = DequeueRequest(queue="one", wait_seconds=20, first_lease_seconds=30, max_jobs=10)
    calls = [asyncio.create_task(services.jobs.dequeue_jobs(request)) for _ in range(count)]
    await until(lambda: services.dispatcher.waiting == count)
    return calls


async def end(calls: Sequence[asyncio.Task[Sequence[DequeuedJob]]]) -> None:
    for call in calls:
        call.cancel()
    await asyncio.wait(calls)


async def test_a_job_for_one_who_waits_costs_only_the_statements_that_it_needs(
    services: Services, store: SqliteStore
) -> None:
    calls = await waiting(services, 3)
    statements = await traced(store)
    await enqueue(services)
    await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
    await turn(store)
    # Neither is asked whether anything lapsed or is paused, nor does another look for what is taken.
    assert statements == [
        *("BEGIN IMMEDIATE", "PRAGMA data_version", "INSERT INTO"),
        # The first that claims here takes everything: the others need not look.
        *("SELECT max_attempts,", "UPDATE jobs", "COMMIT"),
        *("BEGIN IMMEDIATE", "PRAGMA data_version", "COMMIT"),
    ]
    await end(calls)


async def test_who_waits_for_a_job_is_answered_before_who_enqueued_it(services: Services) -> None:
    answered: list[str] = []
    calls = await waiting(services)
    calls[0].add_done_callback(lambda _: answered.append("worker"))
    call = asyncio.create_task(enqueue(services))
    call.add_done_callback(lambda _: answered.append("client"))
    await asyncio.wait([*calls, call])
    await until(lambda: len(answered) == 2)
    assert answered == ["worker", "client"]


async def test_a_delayed_job_wakes_who_waits_and_nobody_before(
    services: Services, store: SqliteStore, clock: ManualClock
) -> None:
    calls = await waiting(services)
    statements = await traced(store)
    job_id = await enqueue(services, delay_seconds=10)
    assert "SELECT max_attempts," not in statements
    clock.advance(9.999)
    await turn(store)
    assert not calls[0].done()
    clock.advance(0.001)
    (held,) = await calls[0]
    assert held.job.job_id == job_id


async def test_a_process_beside_the_server_is_heeded(
    services: Services, store: SqliteStore, tmp_path: Path, clock: ManualClock
) -> None:
    await enqueue(services, delay_seconds=1000)
    await store.set_paused("one", paused=True)
    await store.set_paused("one", paused=False)
    calls = await waiting(services)
    await turn(store)
    with closing(sqlite3.connect(tmp_path / DATABASE)) as other, other:
        other.execute("UPDATE jobs SET due_at = due_at - 990000, wake_at = wake_at - 990000")
    await turn(store)
    clock.advance(10)
    assert len(await calls[0]) == 1
    with closing(sqlite3.connect(tmp_path / DATABASE)) as other, other:
        other.execute("UPDATE queues SET paused = 1 WHERE name = 'one'")
    await enqueue(services)
    assert not await store.dequeue_jobs(
        Demand(queues=("one",), max_jobs=1, visibility_seconds=60, waits=False)
    )


@pytest.mark.parametrize("failures", [1, 2], ids=["with_its_group", "alone"])
async def test_what_is_undone_is_not_taken_for_known(
    services: Services, store: SqliteStore, clock: ManualClock, failures: int
) -> None:
    """A claim marks a lapsed job as ready, and the group that it is in is undone, or it alone."""
    left = [RuntimeError("a bug")] * failures
    await enqueue(services, delay_seconds=10)
    calls = await waiting(services)
    clock.advance(5)

    def fail_after_looking(tx: Transaction) -> None:
        if not left:
            return
        tx.connection.execute("UPDATE jobs SET wake_at = NULL, ready = 1")
        tx.known.look_up(tx.connection, "one")
        raise left.pop()

    with nullcontext() if failures == 1 else pytest.raises(InternalError):
        await store._write(fail_after_looking)
    clock.advance(5)
    assert len(await calls[0]) == 1


async def test_what_comes_after_a_look_in_vain_is_offered_in_the_same_commit(
    services: Services, store: SqliteStore
) -> None:
    calls = await waiting(services)
    begun, go_on = threading.Event(), threading.Event()

    def block(_: Transaction) -> bool:
        begun.set()
        return go_on.wait(30)

    await turn(store)
    blocking = asyncio.ensure_future(store._write(block))
    await until(begun.is_set)
    demand = Demand(queues=("one",), max_jobs=10, visibility_seconds=60, waits=False)
    looking = asyncio.ensure_future(store.dequeue_jobs(demand))
    enqueueing = asyncio.create_task(enqueue(services))
    writer = store._writer
    assert writer
    await until(lambda: writer._inbox.qsize() == 2)
    before = store.commits
    go_on.set()
    assert await blocking
    assert await looking == []
    assert await enqueueing
    assert len(await calls[0]) == 1
    assert store.commits - before == 2


class Play:
    """Random calls of a store, with those who wait for jobs, on a clock that is moved by hand."""

    def __init__(self, store: SqliteStore, services: Services, clock: ManualClock, seed: int) -> None:
        self._store = store
        self._services = services
        self._clock = clock
        self._chance = random.Random(seed)
        self._held: list[Job] = []
        self._waiting: dict[Demand, asyncio.Task[Sequence[Job]]] = {}

    async def step(self) -> None:
        """Do something, let all that follows from it happen, and see that nobody waits in vain."""
        moves = [self._enqueue, self._enqueue, self._wait, self._wait, self._advance, self._advance]
        moves += [self._settle_one, self._extend, self._pause, self._withdraw, self._fail, self._maintain]
        await self._chance.choice(moves)()
        await self._quiet()
        self._check()

    async def end(self) -> None:
        for demand in self._waiting:
            await self._store.withdraw(demand)
        await asyncio.gather(*self._waiting.values())

    async def _enqueue(self) -> None:
        chance = self._chance
        requests = [
            make_request(
                chance.choice(QUEUES),
                params=JobParams(handler=handler) if (handler := chance.choice(HANDLERS)) else None,
                delay_seconds=chance.choice((0, 0, 1, 5, 30)),
                max_attempts=chance.choice((1, 3, 100)),
            )
            for _ in range(chance.choice((1, 1, 3)))
        ]
        await self._services.jobs.enqueue_jobs(requests)

    async def _wait(self) -> None:
        chance = self._chance
        for _ in range(chance.choice((1, 1, 2, 4))):
            demand = Demand(
                queues=tuple(chance.sample(QUEUES, chance.choice((1, 1, 2, 3)))),
                max_jobs=chance.choice((1, 1, 2, 10)),
                visibility_seconds=chance.choice((2, 20)),
                first_lease_seconds=chance.choice((0, 1)),
                abilities=chance.choice((None, None, frozenset({""}), frozenset(HANDLERS))),
                max_bytes=chance.choice((1, 10_000_000)),
            )
            self._waiting[demand] = asyncio.create_task(self._dequeue(demand))

    async def _dequeue(self, demand: Demand) -> Sequence[Job]:
        jobs = await self._store.dequeue_jobs(demand)
        self._held += jobs
        return jobs

    async def _advance(self) -> None:
        self._clock.advance(self._chance.choice((0.001, 0.5, 1, 2, 5, 30)))

    async def _settle_one(self) -> None:
        if not self._held:
            return
        job = self._held.pop(self._chance.randrange(len(self._held)))
        key, now, chance = AttemptKey(job.job_id, job.attempt), self._clock.now(), self._chance
        try:
            match chance.choice(("complete", "release", "hand back", "cancel")):
                case "complete":
                    await self._store.complete_jobs([Completion(key, make_success())], now)
                case "release":
                    await self._store.release_job(Release(key=key, delay_seconds=chance.choice((0, 3))), now)
                case "hand back":
                    await self._store.release_job(Release(key=key, unstarted=True), now)
                case _:
                    await self._store.cancel_job(job.job_id, now)
        except AirunnerError:
            pass  # of an attempt that lapsed meanwhile

    async def _extend(self) -> None:
        for job in self._held[-2:]:
            key = AttemptKey(job.job_id, job.attempt)
            try:
                await self._store.extend_job(key, self._chance.choice((0, 1, 20)), self._clock.now())
            except AirunnerError:
                self._held.remove(job)

    async def _pause(self) -> None:
        queue, paused = self._chance.choice(QUEUES), self._chance.random() < 0.4
        await self._store.set_paused(queue, paused=paused)

    async def _withdraw(self) -> None:
        if self._waiting:
            await self._store.withdraw(self._chance.choice(list(self._waiting)))

    async def _fail(self) -> None:
        """Let a group fail, of which only one operation is at fault."""

        def fail(tx: Transaction) -> None:
            tx.connection.execute("UPDATE jobs SET wake_at = NULL")
            tx.known.look_up(tx.connection, self._chance.choice(QUEUES))
            raise RuntimeError("a bug")

        await asyncio.gather(self._store._write(fail), self._enqueue(), self._wait(), return_exceptions=True)

    async def _maintain(self) -> None:
        await self._store.maintain(Retention(jobs_ms=DAY_MS, events_ms=DAY_MS), self._clock.now())

    async def _quiet(self) -> None:
        """Let timers ring, and the writer do what they ask for."""
        for _ in range(3):
            await turn(self._store)
            await asyncio.sleep(0)
        self._waiting = {demand: call for demand, call in self._waiting.items() if not call.done()}

    def _check(self) -> None:
        for queue, handler, is_paused, life in self._jobs():
            due_at = life.claimable_from
            if due_at is None or due_at > self._clock.now() or is_paused:
                continue
            in_vain = [
                demand for demand in self._waiting if queue in demand.queues and demand.can_do(handler)
            ]
            assert not in_vain, f"a job of {queue} is due since {due_at}, and {in_vain} wait"
        self._check_lives()

    def _check_lives(self) -> None:
        """See that what is kept of jobs that were claimed is what the file says."""
        assert self._store._writer
        kept = dict(self._store._writer._known.lives._lives.values())
        with closing(sqlite3.connect(self._store._directory / DATABASE)) as connection:
            found = connection.execute(f"SELECT {rows.LIFE}, id FROM jobs").fetchall()  # noqa: S608  our own
        lives = {row[-1]: rows.life_from_row(row) for row in found}
        assert kept == {row_id: lives[row_id] for row_id in kept}

    def _jobs(self) -> list[tuple[str, str, bool, Lifecycle]]:
        with closing(sqlite3.connect(self._store._directory / DATABASE)) as connection:
            paused = {name for (name,) in connection.execute("SELECT name FROM queues WHERE paused")}
            columns = f"queue, handler, {rows.LIFE}"
            found = connection.execute(f"SELECT {columns} FROM jobs").fetchall()  # noqa: S608  our own
        return [(row[0], row[1], row[0] in paused, rows.life_from_row(row[2:])) for row in found]


@pytest.mark.parametrize("seed", range(8))
async def test_nobody_waits_for_a_due_job(
    services: Services, store: SqliteStore, clock: ManualClock, seed: int
) -> None:
    """Random enqueues, delays, releases, lapses, pauses, faults."""
    play = Play(store, services, clock, seed)
    for _ in range(60):
        await play.step()
    await play.end()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 120))
async def test_nobody_waits_for_a_due_job_in_longer_plays(
    services: Services, store: SqliteStore, clock: ManualClock, seed: int
) -> None:
    play = Play(store, services, clock, seed)
    for _ in range(150):
        await play.step()
    await play.end()
