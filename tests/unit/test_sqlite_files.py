"""The SQLite store and its files: ownership, modes, versions, backups, and what survives."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
from pathlib import Path

import pytest

from airunner.domain.answers import Enqueued
from airunner.domain.errors import FailedPrecondition, Unavailable
from airunner.domain.job import JobParams, JobState
from airunner.domain.listing import JobQuery
from airunner.domain.requests import CompleteRequest, DequeueRequest, StreamRequest
from airunner.services.composition import Services
from airunner.stores.records import ApiKey
from airunner.stores.sqlite import SqliteStore
from airunner.stores.sqlite.backup import back_up
from airunner.stores.sqlite.migrations import MIGRATIONS
from airunner.stores.sqlite.store import DATABASE
from airunner.testing.clock import ManualClock
from airunner.testing.factories import make_batch, make_request, make_services, make_success


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def reopened(folder: Path, clock: ManualClock) -> Services:
    return make_services(SqliteStore(folder, clock), clock)


async def enqueue(services: Services, params: JobParams | None = None) -> str:
    (outcome,) = await services.jobs.enqueue_jobs([make_request(params=params)])
    assert isinstance(outcome, Enqueued)
    return outcome.job_id


async def dequeue(services: Services) -> str:
    (held,) = await services.jobs.dequeue_jobs(
        DequeueRequest(queue="builds", visibility_timeout_seconds=60, wait_seconds=0)
    )
    return held.task_token


async def test_a_second_owner_is_refused_and_told_why(tmp_path: Path, clock: ManualClock) -> None:
    async with reopened(tmp_path, clock) as first:
        second = SqliteStore(tmp_path, clock)
        with pytest.raises(FailedPrecondition, match="another server uses") as refused:
            await second.open()
        assert str(tmp_path) in str(refused.value)
        await enqueue(first)
    async with reopened(tmp_path, clock) as third:
        assert len((await third.jobs.list_jobs(JobQuery())).jobs) == 1


async def test_a_tool_works_beside_the_owner(tmp_path: Path, clock: ManualClock) -> None:
    key = ApiKey(key_id="k1", name="ci", secret_hash=b"h", scopes=frozenset({"worker"}), created_at=5)
    async with reopened(tmp_path, clock) as owner:
        await enqueue(owner)
        await dequeue(owner)
        clock.advance(30)
        before = (await owner.jobs.list_jobs(JobQuery())).jobs
        tool = SqliteStore(tmp_path, clock, owner=False)
        await tool.open()
        await tool.add_key(key)
        await tool.close()
        assert await owner.store.find_key("k1") == key
        # A tool is no restart: running jobs keep their visibility.
        assert (await owner.jobs.list_jobs(JobQuery())).jobs == before


async def test_files_are_for_their_owners_eyes_only(tmp_path: Path, clock: ManualClock) -> None:
    folder = tmp_path / "deep" / "data"
    async with reopened(folder, clock) as services:
        await enqueue(services)
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()}
        assert set(modes) >= {"airunner.db", "airunner.db-wal", "airunner.db-shm", "airunner.lock"}
        assert set(modes.values()) == {0o600}
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


async def test_a_file_from_the_future_is_refused_and_left_alone(tmp_path: Path, clock: ManualClock) -> None:
    async with reopened(tmp_path, clock) as services:
        await enqueue(services)
    future = len(MIGRATIONS) + 1
    with sqlite3.connect(tmp_path / DATABASE) as connection:
        connection.execute(f"PRAGMA user_version = {future}")
    connection.close()
    with pytest.raises(FailedPrecondition, match=f"version {future}"):
        await SqliteStore(tmp_path, clock).open()
    with sqlite3.connect(tmp_path / DATABASE) as connection:
        assert connection.execute("SELECT count(*) FROM jobs").fetchone() == (1,)
    connection.close()


async def test_a_file_that_is_no_database_is_refused_and_left_alone(
    tmp_path: Path, clock: ManualClock
) -> None:
    text = b"a shopping list, and a long one at that\n" * 100
    (tmp_path / DATABASE).write_bytes(text)
    with pytest.raises(FailedPrecondition, match="not a database") as refused:
        await SqliteStore(tmp_path, clock).open()
    assert (
        open_files(tmp_path) == []
    )  # also while somebody has the error, whose traceback knows the connection
    assert refused.type is FailedPrecondition
    assert (tmp_path / DATABASE).read_bytes() == text


def open_files(folder: Path) -> list[Path]:
    """Return the files below a folder that this process has open."""
    files = [file.readlink() for file in list(Path("/proc/self/fd").iterdir()) if file.is_symlink()]
    return [file for file in files if file.is_relative_to(folder)]


async def test_everything_survives_a_restart(tmp_path: Path, clock: ManualClock) -> None:
    key = ApiKey(
        key_id="k1", name="ci", secret_hash=b"h", scopes=frozenset({"worker"}), queues=frozenset({"builds"})
    )
    async with reopened(tmp_path, clock) as before:
        finished = await enqueue(before)
        token = await dequeue(before)
        await before.events.publish_events(token, [make_batch(1, 50)])
        completion = CompleteRequest(
            task_token=token, result=make_success(final_sequence=60), events=[make_batch(51, 60)]
        )
        await before.jobs.complete_jobs([completion])
        await enqueue(before)
        await before.jobs.set_paused("builds", paused=True)
        await before.store.add_key(key)
        jobs = await before.jobs.list_jobs(JobQuery())
        queues = await before.jobs.list_queues()
        events = [event async for event in before.events.stream_events(StreamRequest(job_id=finished))]
    async with reopened(tmp_path, clock) as after:
        assert await after.jobs.list_jobs(JobQuery()) == jobs
        assert await after.jobs.list_queues() == queues
        assert await after.store.list_keys() == [key]
        assert len(events) == 60
        assert [event async for event in after.events.stream_events(StreamRequest(job_id=finished))] == events
        # The token of before, and the repeat of its completion, are good as well.
        assert await after.jobs.complete_jobs([completion]) == [JobState.COMPLETED]


async def test_downtime_re_runs_no_job(tmp_path: Path, clock: ManualClock) -> None:
    async with reopened(tmp_path, clock) as before:
        job_id = await enqueue(before)
        token = await dequeue(before)
    clock.advance(3600)
    async with reopened(tmp_path, clock) as after:
        assert (await after.jobs.get_job(job_id)).life.visible_until == clock.now() + 60_000
        assert await after.jobs.dequeue_jobs(DequeueRequest(queue="builds", wait_seconds=0)) == []
        outcome = await after.jobs.complete_jobs([CompleteRequest(task_token=token, result=make_success())])
        assert outcome == [JobState.COMPLETED]


async def test_a_worker_that_does_not_come_back_after_downtime_loses_its_job(
    tmp_path: Path, clock: ManualClock
) -> None:
    async with reopened(tmp_path, clock) as before:
        await enqueue(before)
        await dequeue(before)
    clock.advance(3600)
    async with reopened(tmp_path, clock) as after:
        clock.advance(60)
        (again,) = await after.jobs.dequeue_jobs(DequeueRequest(queue="builds", wait_seconds=0))
        assert again.job.attempt == 2


async def test_a_backup_is_whole_while_the_store_is_written(tmp_path: Path, clock: ManualClock) -> None:
    data, copy = tmp_path / "data", tmp_path / "copy"
    copy.mkdir()
    async with reopened(data, clock) as services:
        await asyncio.gather(*(enqueue(services) for _ in range(50)))
        writing = asyncio.create_task(keep_enqueueing(services))
        await asyncio.to_thread(back_up, data, copy / DATABASE)
        writing.cancel()
        await asyncio.wait([writing])
        with pytest.raises(FailedPrecondition, match="exists already"):
            back_up(data, copy / DATABASE)
    assert stat.S_IMODE((copy / DATABASE).stat().st_mode) == 0o600
    async with reopened(copy, clock) as restored:
        assert len((await restored.jobs.list_jobs(JobQuery(page_size=500))).jobs) >= 50
        assert (await restored.jobs.list_queues())[0].name == "builds"
        await enqueue(restored)


async def keep_enqueueing(services: Services) -> None:
    while True:
        await enqueue(services)


async def test_there_is_nothing_to_back_up(tmp_path: Path) -> None:
    with pytest.raises(FailedPrecondition, match="no database"):
        back_up(tmp_path, tmp_path / "copy.db")


@pytest.mark.parametrize("size", [0, 4000, 4096, 4097, 5000, 262_000])
async def test_parameters_of_any_size_come_back(tmp_path: Path, clock: ManualClock, size: int) -> None:
    params = JobParams(command="make", environment={"PAD": "x" * size})
    async with reopened(tmp_path, clock) as services:
        job_id = await enqueue(services, params)
    async with reopened(tmp_path, clock) as services:
        assert (await services.jobs.get_job(job_id)).params == params
        (listed,) = (await services.jobs.list_jobs(JobQuery())).jobs
        assert (listed.params == params) is not listed.abridged
        (held,) = await services.jobs.dequeue_jobs(DequeueRequest(queue="builds", wait_seconds=0))
        assert held.job.params == params
        assert (await services.jobs.cancel_job(job_id)).params == params


async def test_a_purge_leaves_no_row_behind(tmp_path: Path, clock: ManualClock) -> None:
    async with reopened(tmp_path, clock) as services:
        await enqueue(services, JobParams(command="make", environment={"PAD": "x" * 9000}))
        token = await dequeue(services)
        await services.events.publish_events(token, [make_batch(1, 50), make_batch(51, 60)])
        await services.jobs.complete_jobs([CompleteRequest(task_token=token, result=make_success())])
        clock.advance(8 * 24 * 3600)
        await services.maintenance.run_once()
    connection = sqlite3.connect(tmp_path / DATABASE)
    for statement in (
        "SELECT count(*) FROM jobs",
        "SELECT count(*) FROM large_params",
        "SELECT count(*) FROM job_events",
    ):
        assert connection.execute(statement).fetchone() == (0,)
    connection.close()


async def test_a_store_that_is_not_open_says_so(tmp_path: Path, clock: ManualClock) -> None:
    store = SqliteStore(tmp_path, clock)
    with pytest.raises(Unavailable):
        await store.list_queues(limit=1)
    await store.open()
    await store.check()
    await store.close()
    with pytest.raises(Unavailable):
        await store.set_paused("builds", paused=True)


async def test_what_is_committed_is_on_the_disk_before_it_is_answered(
    tmp_path: Path, clock: ManualClock
) -> None:
    store = SqliteStore(tmp_path, clock)
    async with make_services(store, clock):
        found = await store._write(
            lambda tx: [tx.connection.execute(f"PRAGMA {name}").fetchone()[0] for name in _DURABLE]
        )
    assert dict(zip(_DURABLE, found, strict=True)) == _DURABLE


# 2 is FULL: a commit returns after the log was synced.
_DURABLE = {"journal_mode": "wal", "synchronous": 2}
