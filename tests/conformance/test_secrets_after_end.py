"""`store.secrets_after_end: drop` on every store: what has ended holds no secret value any more."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from airunner import telemetry
from airunner.domain.errors import FailedPrecondition
from airunner.domain.job import JobParams, JobState
from airunner.stores.base import JobStore
from airunner.stores.memory import MemoryStore
from airunner.stores.sqlite import SqliteStore
from airunner.stores.sqlite.store import DATABASE
from airunner.testing.clock import ManualClock
from airunner.testing.conformance.stores.backend import Api
from airunner.testing.factories import make_line, make_request, make_services
from tests.doubles.aws.faults import FaultKind
from tests.doubles.aws.strict import StrictProxy
from tests.support.aws_stores import BorrowLayout, make_store, more_names
from tests.support.scraping import Change

VALUE = "correct horse battery staple"
PARAMS = JobParams(
    command="true",
    repository_url="https://git:pass-of-git@example.com/a.git",
    environment={"TOKEN": VALUE, "CI": "1"},
    secret_names=("TOKEN",),
)
DROPPED = JobParams(
    command="true",
    repository_url="https://********@example.com/a.git",
    environment={"CI": "1"},
    secret_names=("TOKEN",),
)
End = Callable[[Api, str], Awaitable[object]]
Build = Callable[[], Awaitable[JobStore]]


async def complete(api: Api, _: str) -> None:
    await api.complete(await api.claim())


async def cancel(api: Api, job_id: str) -> None:
    await api.jobs.cancel_job(job_id)


async def release(api: Api, _: str) -> None:
    await api.release(await api.claim(), make_line(1), error="boom")


async def lose(api: Api, _: str) -> None:
    await api.beat(await api.claim(visibility_seconds=10))
    await api.lapse(10)


@pytest.fixture(params=["memory", "sqlite", "aws"])
def build(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Build:
    # Only who needs the emulator starts it.
    aws = request.getfixturevalue("aws") if request.param == "aws" else None
    borrow_layout = request.getfixturevalue("borrow_layout") if aws else None

    async def built() -> JobStore:
        if borrow_layout and aws:
            layout = await borrow_layout(more_names(request), bucket=True)
            return make_store(aws.url, layout, clock, drop_secrets=True)
        if request.param == "memory":
            return MemoryStore(clock, drop_secrets=True)
        return SqliteStore(tmp_path, clock, drop_secrets=True)

    return built


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.mark.parametrize("end", [complete, cancel, release, lose])
@pytest.mark.parametrize("filling", [0, 6_000], ids=["small", "large"])
async def test_secret_values_go_with_the_end_of_a_job(
    build: Build, clock: ManualClock, end: End, filling: int
) -> None:
    store = await build()
    async with make_services(store, clock) as services:
        api = Api(jobs=services.jobs, events=services.events, clock=clock, services=services)
        metadata = {"filling": "x" * filling}
        request = make_request(params=_with(PARAMS, metadata), max_attempts=1)
        other = await api.enqueue(make_request("other", params=PARAMS))
        job_id = await api.enqueue(request)
        await end(api, job_id)
        job = await store.get_job(job_id)
        assert job.state.terminal
        assert job.params == _with(DROPPED, metadata)
        assert (await store.get_job(other)).params == PARAMS
        with pytest.raises(FailedPrecondition, match="TOKEN, the credentials in repository_url") as refused:
            await api.jobs.retry_job(job_id, str(uuid.uuid4()))
        assert VALUE not in str(refused.value)
        # The request is still the same one.
        assert await api.enqueue(request) == job_id


async def test_a_job_goes_to_its_worker_with_its_secrets_and_without_any_it_can_be_retried(
    build: Build, clock: ManualClock
) -> None:
    async with make_services(await build(), clock) as services:
        api = Api(jobs=services.jobs, events=services.events, clock=clock, services=services)
        await api.enqueue(make_request(params=PARAMS))
        held = await api.claim()
        assert held.job.params == PARAMS
        await api.release(held)
        again = await api.claim()
        assert again.job.params == PARAMS
        await api.complete(again)
        plain = await api.new_claim()
        await api.complete(plain)
        retried = await api.jobs.retry_job(plain.job.job_id, str(uuid.uuid4()))
        assert retried.state is JobState.SCHEDULED


async def test_a_job_ends_also_while_its_secrets_cannot_be_removed(
    aws: StrictProxy, borrow_layout: BorrowLayout, clock: ManualClock
) -> None:
    failed = Change(telemetry.aws_follow_ups_failed)
    store = make_store(aws.url, await borrow_layout(), clock, drop_secrets=True)
    async with make_services(store, clock) as services:
        api = Api(jobs=services.jobs, events=services.events, clock=clock, services=services)
        job_id = await api.enqueue(make_request(params=_with(PARAMS, {"filling": "x" * 6_000})))
        aws.faults.next("PutItem", FaultKind.SERVER_ERROR, times=4)
        await complete(api, "")
        assert (await store.get_job(job_id)).state is JobState.COMPLETED
    assert failed() == 1


async def test_nothing_of_a_dropped_secret_is_left_in_the_file(tmp_path: Path, clock: ManualClock) -> None:
    store = SqliteStore(tmp_path, clock, drop_secrets=True)
    async with make_services(store, clock) as services:
        api = Api(jobs=services.jobs, events=services.events, clock=clock, services=services)
        for filling in ("", "x" * 6_000):
            await api.enqueue(make_request(params=_with(PARAMS, {"filling": filling})))
            await complete(api, "")
    connection = sqlite3.connect(tmp_path / DATABASE)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    assert VALUE.encode() not in (tmp_path / DATABASE).read_bytes()


def _with(params: JobParams, metadata: dict[str, str]) -> JobParams:
    return JobParams(
        command=params.command,
        repository_url=params.repository_url,
        environment=params.environment,
        secret_names=params.secret_names,
        metadata=metadata if metadata["filling"] else {},
    )
