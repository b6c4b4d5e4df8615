"""Purging in small steps, between which every other write gets its turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from airunner.domain.answers import Enqueued
from airunner.domain.event import Event, Output
from airunner.domain.job import JobParams
from airunner.domain.requests import CompleteRequest, DequeueRequest
from airunner.services.composition import Services
from airunner.stores.records import Retention
from airunner.stores.sqlite import SqliteStore
from airunner.testing.clock import ManualClock
from airunner.testing.factories import NOON, make_line, make_request, make_services, make_success

RETENTION = Retention()
LONG_AGO = 8 * 24 * 3600
STEP_ROWS = 500
STEP_BYTES = 4 * 1024 * 1024


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def services(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Services]:
    async with make_services(SqliteStore(tmp_path, clock), clock) as services:
        yield services


async def finish_a_job(services: Services, events: list[Event], params: JobParams | None = None) -> None:
    await services.jobs.enqueue_jobs([make_request(params=params)])
    (held,) = await services.jobs.dequeue_jobs(DequeueRequest(queue="builds"))
    for first in range(0, len(events), 50):
        await services.events.publish_events(held.task_token, events[first : first + 50])
    await services.jobs.complete_jobs([CompleteRequest(held.task_token, make_success())])


async def steps(services: Services, clock: ManualClock) -> list[tuple[int, int]]:
    """Run steps until there is nothing left; return the jobs and events of each."""
    done: list[tuple[int, int]] = []
    while not done or done[-1] != (0, 0):
        upkeep = await services.store.maintain(RETENTION, clock.now())
        done.append((upkeep.purged_jobs, upkeep.purged_events))
    return done[:-1]


async def test_events_go_in_steps_of_rows(services: Services, clock: ManualClock) -> None:
    await finish_a_job(services, [make_line(sequence) for sequence in range(1, 1202)])
    clock.advance(LONG_AGO)
    assert await steps(services, clock) == [(1, 0), (0, STEP_ROWS), (0, STEP_ROWS), (0, 201)]


async def test_events_go_in_steps_of_bytes(services: Services, clock: ManualClock) -> None:
    large = Output(b"x" * 300_000)
    events = [Event(sequence=number, timestamp=NOON, data=large) for number in range(1, 31)]
    await finish_a_job(services, events)
    clock.advance(LONG_AGO)
    purged = [count for _, count in (await steps(services, clock))[1:]]
    assert sum(purged) == 30
    assert max(purged) <= STEP_BYTES // 300_000


async def test_large_parameters_go_in_steps_too(services: Services, clock: ManualClock) -> None:
    params = JobParams(command="true", metadata={"filling": "x" * 1_000_000})
    for _ in range(9):
        await finish_a_job(services, [], params)
    clock.advance(LONG_AGO)
    assert [jobs for jobs, _ in await steps(services, clock)] == [4, 4, 1]


async def test_other_writes_get_their_turn_between_steps(services: Services, clock: ManualClock) -> None:
    await finish_a_job(services, [make_line(sequence) for sequence in range(1, 2001)])
    clock.advance(LONG_AGO)
    order: list[str] = []

    async def purge() -> None:
        for _ in range(4):
            await services.store.maintain(RETENTION, clock.now())
            order.append("step")

    async def write() -> None:
        for _ in range(4):
            (outcome,) = await services.jobs.enqueue_jobs([make_request()])
            assert isinstance(outcome, Enqueued)
            order.append("write")

    await asyncio.gather(purge(), write())
    longest = max(len(run) for run in "".join(entry[0] for entry in order).split("w"))
    assert longest <= 2, order
