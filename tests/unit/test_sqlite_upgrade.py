"""A file that an earlier version wrote: brought up to date by its owner alone, with everything in it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from airunner.codec.jobs import encode_params
from airunner.domain.errors import FailedPrecondition, JobNotFound
from airunner.domain.job import JobParams, JobState
from airunner.domain.listing import JobQuery
from airunner.domain.requests import Abilities, DequeueRequest, StreamRequest
from airunner.stores.sqlite import SqliteStore
from airunner.stores.sqlite.migrations import MIGRATIONS
from airunner.stores.sqlite.store import DATABASE
from airunner.testing.clock import ManualClock
from airunner.testing.factories import make_request, make_services

VERSION_1 = (Path(__file__).parents[1] / "data" / "version-1.sql").read_text()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    connection = sqlite3.connect(tmp_path / DATABASE)
    connection.executescript(VERSION_1)
    connection.close()
    return tmp_path


def query(folder: Path, statement: str) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(folder / DATABASE)
    try:
        return connection.execute(statement).fetchall()
    finally:
        connection.close()


async def test_everything_is_there_after_the_upgrade(folder: Path, clock: ManualClock) -> None:
    async with make_services(SqliteStore(folder, clock), clock) as services:
        jobs = {job.request_id[-1]: job for job in (await services.jobs.list_jobs(JobQuery())).jobs}
        states = {number: job.state for number, job in jobs.items()}
        assert states == {
            "1": JobState.COMPLETED,
            "2": JobState.RUNNING,
            "3": JobState.CANCELLED,
            "4": JobState.SCHEDULED,
            "5": JobState.SCHEDULED,
            "6": JobState.SCHEDULED,
        }
        large = await services.jobs.get_job(jobs["5"].job_id)
        assert len(large.params.metadata["filling"]) == 6000
        stream = services.events.stream_events(StreamRequest(job_id=jobs["1"].job_id))
        assert [event.sequence async for event in stream] == [1, 2, 3]
        paused = [queue for queue in await services.jobs.list_queues() if queue.paused]
        assert [(queue.name, queue.paused_by, queue.paused_at) for queue in paused] == [("paused", "", 0)]
        assert (jobs["3"].life.cancelled_by, jobs["2"].life.silent_attempts) == ("", 0)
        assert [key.name for key in await services.store.list_keys()] == ["ci"]
        request = DequeueRequest(queue="tools", wait_seconds=0)
        assert [taken.job.job_id for taken in await services.jobs.dequeue_jobs(request)] == [jobs["4"].job_id]
    assert query(folder, "PRAGMA user_version") == [(len(MIGRATIONS),)]
    assert query(folder, "PRAGMA integrity_check") == [("ok",)]


async def test_jobs_know_their_handlers_after_the_upgrade(folder: Path, clock: ManualClock) -> None:
    large = encode_params(JobParams(handler="Scan", metadata={"filling": "x" * 6000}))
    connection = sqlite3.connect(folder / DATABASE)
    connection.execute("UPDATE large_params SET params = ?", (large,))
    connection.execute("UPDATE jobs SET params = x'ff' WHERE queue = 'paused'")
    connection.commit()
    connection.close()
    async with make_services(SqliteStore(folder, clock), clock) as services:
        for queue, handler in (("tools", "RESIZE"), ("large", "scan")):
            for abilities, count in ((Abilities(commands=True), 0), (Abilities(handlers=(handler,)), 1)):
                request = DequeueRequest(queue=queue, wait_seconds=0, abilities=abilities)
                assert len(await services.jobs.dequeue_jobs(request)) == count
    known = query(folder, "SELECT queue, handler FROM jobs WHERE handler <> ''")
    assert known == [("tools", "resize"), ("large", "scan")]


async def test_a_tool_beside_a_server_changes_nothing(folder: Path, clock: ManualClock) -> None:
    (folder / "airunner.lock").touch()
    import fcntl

    with (folder / "airunner.lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(FailedPrecondition, match="restart the server"):
            await SqliteStore(folder, clock, owner=False).open()
    assert query(folder, "PRAGMA user_version") == [(1,)]


async def test_a_tool_alone_brings_the_file_up_to_date(folder: Path, clock: ManualClock) -> None:
    store = SqliteStore(folder, clock, owner=False)
    await store.open()
    assert [key.name for key in await store.list_keys()] == ["ci"]
    await store.close()
    assert query(folder, "PRAGMA user_version") == [(len(MIGRATIONS),)]


async def test_the_number_of_a_purged_job_is_not_used_again(tmp_path: Path, clock: ManualClock) -> None:
    async with make_services(SqliteStore(tmp_path, clock), clock) as services:
        for _ in range(2):
            (outcome,) = await services.jobs.enqueue_jobs([make_request()])
            await services.jobs.cancel_job(outcome.job_id)  # type: ignore[union-attr]  # it is no error
            clock.advance(8 * 24 * 3600)
            await services.maintenance.run_once()
            with pytest.raises(JobNotFound):
                await services.jobs.get_job(outcome.job_id)  # type: ignore[union-attr]  # same
        (outcome,) = await services.jobs.enqueue_jobs([make_request()])
    assert query(tmp_path, "SELECT id FROM jobs") == [(3,)]
