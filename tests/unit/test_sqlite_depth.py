"""The limit of scheduled jobs: what it costs, and that it is right whatever was undone."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from airunner.domain.answers import Enqueued
from airunner.domain.errors import AirunnerError, ResourceExhausted
from airunner.domain.job import JobState
from airunner.services.composition import ServiceRules, Services
from airunner.services.job_requests import JobRules
from airunner.stores.records import Demand
from airunner.stores.sqlite import SqliteStore, operations, schema
from airunner.stores.sqlite.depth import count_scheduled
from airunner.stores.sqlite.migrations import migrate
from airunner.stores.sqlite.store import DATABASE
from airunner.stores.sqlite.transaction import Transaction
from airunner.testing.clock import ManualClock
from airunner.testing.factories import NEVER_SECONDS, NOON, make_new_job, make_request, make_services

LIMIT = 10_000
DEMAND = Demand(queues=("builds",), max_jobs=100, visibility_seconds=60)


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[schema.SqliteConnection]:
    with closing(schema.connect(tmp_path / DATABASE)) as connection:
        migrate(connection)
        yield connection


def enqueue(connection: schema.SqliteConnection, count: int) -> None:
    outcomes = operations.enqueue(Transaction(connection), [make_new_job() for _ in range(count)], LIMIT)
    assert all(isinstance(outcome, Enqueued) for outcome in outcomes)


def steps_of_an_enqueue(connection: schema.SqliteConnection) -> int:
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    connection.set_progress_handler(count, 1)
    try:
        enqueue(connection, 1)
    finally:
        connection.set_progress_handler(None, 0)
    return steps


def counted(connection: sqlite3.Connection) -> int:
    row = connection.execute(
        "SELECT count(*) FROM jobs WHERE queue = 'builds' AND state = ?", (int(JobState.SCHEDULED),)
    ).fetchone()
    return int(row[0])


def test_an_enqueue_costs_the_same_however_many_jobs_are_scheduled(
    connection: schema.SqliteConnection,
) -> None:
    connection.execute("BEGIN")  # a sync for each job would take its time
    enqueue(connection, 10)
    few = steps_of_an_enqueue(connection)
    enqueue(connection, 3_000)
    assert steps_of_an_enqueue(connection) <= few + 20


def test_what_is_undone_is_not_counted(connection: schema.SqliteConnection) -> None:
    enqueue(connection, 3)
    connection.execute("BEGIN")
    enqueue(connection, 4)
    connection.execute("SAVEPOINT operation")
    operations.claim(Transaction(connection), DEMAND, NOON)
    assert count_scheduled(connection, "builds") == counted(connection) == 0
    connection.execute("ROLLBACK TO operation")
    assert count_scheduled(connection, "builds") == counted(connection) == 7
    connection.execute("ROLLBACK")
    assert count_scheduled(connection, "builds") == counted(connection) == 3


def test_a_count_that_was_begun_in_vain_begins_again(connection: schema.SqliteConnection) -> None:
    connection.execute("BEGIN")
    enqueue(connection, 2)
    connection.execute("ROLLBACK")
    enqueue(connection, 1)
    assert count_scheduled(connection, "builds") == counted(connection) == 1


def test_rows_that_are_deleted_are_not_counted(connection: schema.SqliteConnection) -> None:
    enqueue(connection, 3)
    connection.execute("DELETE FROM jobs WHERE id = 1")
    assert count_scheduled(connection, "builds") == counted(connection) == 2


def opened(folder: Path, clock: ManualClock) -> Services:
    rules = ServiceRules(jobs=JobRules(max_queued=5), maintenance_interval_seconds=NEVER_SECONDS)
    return make_services(SqliteStore(folder, clock), clock, rules)


async def test_a_start_counts_anew(tmp_path: Path) -> None:
    clock = ManualClock()
    async with opened(tmp_path, clock) as services:
        await services.jobs.enqueue_jobs([make_request() for _ in range(3)])
    async with opened(tmp_path, clock) as services:
        outcomes = await services.jobs.enqueue_jobs([make_request() for _ in range(4)])
        refused = [outcome for outcome in outcomes if isinstance(outcome, AirunnerError)]
        assert [type(error) for error in refused] == [ResourceExhausted, ResourceExhausted]


async def test_a_write_that_fails_leaves_the_count_as_it_was(tmp_path: Path) -> None:
    clock = ManualClock()
    async with opened(tmp_path, clock) as services:
        store = services.store
        assert isinstance(store, SqliteStore)

        def broken(tx: Transaction) -> None:
            tx.connection.execute("UPDATE jobs SET state = ?", (int(JobState.RUNNING),))
            raise ZeroDivisionError

        await services.jobs.enqueue_jobs([make_request() for _ in range(3)])
        with pytest.raises(AirunnerError):
            await store._write(broken)
        outcomes = await services.jobs.enqueue_jobs([make_request() for _ in range(3)])
        assert [isinstance(outcome, Enqueued) for outcome in outcomes] == [True, True, False]
