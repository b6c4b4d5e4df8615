"""Many jobs claimed and completed at once: what they share is saved together, what is their own is not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, cast

import pytest

from airunner.codec.events import encode_event
from airunner.domain.errors import FailedPrecondition
from airunner.domain.event import Position
from airunner.domain.job import Job, JobState
from airunner.domain.lifecycle import Lifecycle
from airunner.domain.record import altered
from airunner.services.composition import Services
from airunner.stores.records import AttemptKey, Completion, Demand, EventQuery, Release
from airunner.stores.sqlite import SqliteStore, rows
from airunner.testing.clock import ManualClock
from airunner.testing.factories import (
    make_end,
    make_failure,
    make_request,
    make_services,
    make_start,
    make_success,
)

JOBS = 230
DEMAND = {"queues": ("builds",), "max_jobs": JOBS, "visibility_seconds": 60, "waits": False}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def services(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Services]:
    async with make_services(SqliteStore(tmp_path, clock), clock) as services:
        yield services


async def claim(services: Services) -> list[Job]:
    return list(await services.store.dequeue_jobs(Demand(**DEMAND)))  # type: ignore[arg-type]  # as above


def completion(job: Job, number: int) -> Completion:
    """Return an end that differs from its neighbour's in result and events."""
    key = AttemptKey(job_id=job.job_id, attempt=job.attempt)
    if number % 3 == 0:
        return Completion(key=key, result=make_failure(exit_code=number + 1))
    events = [encode_event(event) for event in (make_start(1), make_end(2))][: number % 3]
    return Completion(key=key, result=make_success(output_json=str(number)), events=events)


def test_the_columns_of_a_life_are_in_the_order_of_its_fields() -> None:
    columns = rows.LIFE.split(", ")
    assert columns == [field.name for field in fields(Lifecycle)][: len(columns)]


async def test_each_of_many_jobs_ends_with_its_own_result_and_events(
    services: Services, clock: ManualClock
) -> None:
    await services.jobs.enqueue_jobs([make_request() for _ in range(JOBS)])
    for job in (await claim(services))[::7]:
        # Some come to their second attempt, so that lives differ too.
        key = AttemptKey(job_id=job.job_id, attempt=1)
        await services.store.release_job(Release(key=key, error=job.job_id), clock.now())
    clock.advance(60)
    jobs = await claim(services)
    assert len(jobs) == JOBS
    ends = [completion(job, number) for number, job in enumerate(jobs)]
    outcomes = await services.store.complete_jobs(ends, clock.now())
    assert [getattr(outcome, "result", outcome) for outcome in outcomes] == [end.result for end in ends]
    for job, end in zip(jobs, ends, strict=True):
        kept = await services.store.get_job(job.job_id)
        assert kept.result == end.result
        assert kept.state is (JobState.COMPLETED if end.result.success else JobState.FAILED)
        assert kept.life.last_error == job.life.last_error
        assert (kept.attempt, kept.life.completed_by) == (job.attempt, job.attempt)
        page = await services.store.read_events(EventQuery(job_id=job.job_id, after=Position(0, 0)))
        assert [event.payload for event in page.events] == [event.payload for event in end.events]


def test_what_ends_alike_differs_in_its_result_alone() -> None:
    # Each field has another value, whatever its type.
    values = range(1, len(fields(Lifecycle)) + 1)
    life = Lifecycle(*cast("Any", values))
    result = make_success(output_json="[1]")
    assert altered(life, result=result, attempt=7) == replace(life, result=result, attempt=7)
    assert life == Lifecycle(*cast("Any", values))
    with pytest.raises(AttributeError):
        altered(life, no_field=1)  # type: ignore[call-arg]  # which mypy sees too
    changed = result.with_output("2", b"3")
    assert changed == replace(result, output_json="2", output_sha256=b"3")
    assert changed.common == result.common
    others: list[Any] = [
        replace(result, **{field.name: cast("Any", "other")})
        for field in fields(result)
        if field.name not in {"output_json", "output_sha256"}
    ]
    assert all(other.common != result.common for other in others)


async def test_what_ends_alike_but_for_its_output_is_saved_by_one_statement(
    services: Services, clock: ManualClock
) -> None:
    await services.jobs.enqueue_jobs([make_request() for _ in range(50)])
    events = [encode_event(event) for event in (make_start(1), make_end(2))]
    ends = [
        Completion(AttemptKey(job.job_id, job.attempt), make_success(output_json=str(number)), events)
        for number, job in enumerate(await claim(services))
    ]
    statements: list[str] = []
    store = services.store
    assert isinstance(store, SqliteStore)
    await store._write(lambda tx: tx.connection.set_trace_callback(statements.append))
    statements.clear()
    outcomes = await store.complete_jobs(ends, clock.now())
    assert [getattr(outcome, "result", None) for outcome in outcomes] == [end.result for end in ends]
    assert sum(statement.startswith("UPDATE") for statement in statements) == 1
    jobs = [await store.get_job(end.key.job_id) for end in ends]
    assert [job.result for job in jobs] == [end.result for end in ends]
    repeated = await store.complete_jobs([*ends[:1], replace(ends[1], result=ends[2].result)], clock.now())
    assert repeated[0] == outcomes[0]
    assert isinstance(repeated[1], FailedPrecondition)


async def test_entries_of_one_job_meet_it_as_the_one_before_left_it(
    services: Services, clock: ManualClock
) -> None:
    await services.jobs.enqueue_jobs([make_request(), make_request()])
    first, second = await claim(services)
    once, other = completion(first, 1), completion(second, 2)
    contradiction = Completion(key=once.key, result=other.result)
    outcomes = await services.store.complete_jobs([once, other, once, contradiction], clock.now())
    assert outcomes[2] == outcomes[0]
    assert isinstance(outcomes[3], Exception)
    assert (await services.store.get_job(first.job_id)).result == once.result
