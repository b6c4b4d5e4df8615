"""A clock that somebody sets forward or back: nothing is trusted, waited for or held the longer for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from airunner.domain import lifecycle
from airunner.domain.clock import StepWatch, SystemClock
from airunner.domain.errors import Unauthenticated, Unavailable
from airunner.domain.job import JobState
from airunner.domain.lifecycle import Lifecycle
from airunner.domain.requests import DequeueRequest
from airunner.domain.retry import RetryPolicy, retry
from airunner.rpc.auth import Authenticator, Scope, mint_key
from airunner.services.periodic import Periodic
from airunner.stores.base import JobStore
from airunner.stores.memory import MemoryStore
from airunner.stores.sqlite import SqliteStore
from airunner.testing.clock import ManualClock
from airunner.testing.conditions import until
from airunner.testing.factories import NOON, make_request, make_services

HOUR = 3600
YEARS = 5 * 365 * 24 * HOUR


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def test_a_step_moves_the_wall_clock_alone(clock: ManualClock) -> None:
    before = clock.monotonic()
    clock.step(-HOUR)
    assert (clock.now(), clock.monotonic()) == (NOON - HOUR * 1000, before)
    clock.advance(1)
    assert clock.monotonic() == before + 1000


def test_the_machine_s_monotonic_clock_does_not_fall() -> None:
    clock = SystemClock()
    assert clock.monotonic() <= clock.monotonic()


@pytest.mark.parametrize(("seconds", "noticed"), [(-61, True), (-59, False), (HOUR, False)])
def test_a_step_back_is_looked_into_at_once_and_anything_else_within_the_hour(
    clock: ManualClock, seconds: float, noticed: bool
) -> None:
    steps = StepWatch(clock)
    assert steps.look_due()
    clock.advance(HOUR - 1)
    assert not steps.look_due()
    clock.step(seconds)
    assert steps.look_due() is noticed
    assert not steps.look_due()
    clock.advance(HOUR)
    assert steps.look_due()


@pytest.mark.parametrize("seconds", [-HOUR, HOUR])
async def test_a_revoked_key_is_not_trusted_longer(clock: ManualClock, seconds: float) -> None:
    store = MemoryStore(clock)
    minted = mint_key("ci", [Scope.READ], [], clock.now())
    await store.add_key(minted.key)
    authenticator = Authenticator(store, clock)
    await authenticator.authenticate(f"Bearer {minted.text}")
    await store.revoke_key(minted.key.key_id, clock.now())
    clock.step(seconds)
    clock.advance(1)
    with pytest.raises(Unauthenticated):
        await authenticator.authenticate(f"Bearer {minted.text}")


@pytest.mark.parametrize("seconds", [-HOUR, HOUR])
async def test_a_deadline_comes_neither_sooner_nor_later(clock: ManualClock, seconds: float) -> None:
    calls: list[int] = []

    async def fail() -> None:
        calls.append(clock.monotonic())
        raise Unavailable("away")

    deadline = clock.monotonic() + 10_000
    policy = RetryPolicy(first_seconds=1, factor=1, jitter=0)
    trying = asyncio.ensure_future(retry(policy, clock, fail, retry_if=lambda _: True, give_up_at=deadline))
    await until(lambda: clock.waiting == 1)
    clock.step(seconds)
    while not trying.done():
        clock.advance(1)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    with pytest.raises(Unavailable):
        await trying
    assert len(calls) == 10


@pytest.mark.parametrize("seconds", [-HOUR, HOUR])
async def test_the_health_of_a_loop_goes_by_what_has_passed(clock: ManualClock, seconds: float) -> None:
    stuck = asyncio.Event()
    loop = Periodic(
        "work", stuck.wait, clock=clock, interval_seconds=10, failure_event="work.failed", at_once=True
    )
    loop.start()
    try:
        clock.step(seconds)
        assert loop.healthy
        clock.advance(121)
        assert not loop.healthy
    finally:
        await loop.stop()


running = Lifecycle(
    max_attempts=3,
    due_at=NOON,
    updated_at=NOON,
    state=JobState.RUNNING,
    attempt=1,
    visible_until=NOON + 60_000,
    visibility_seconds=60,
)


@pytest.mark.parametrize("change", [lifecycle.recall, lifecycle.survive_downtime])
def test_a_visibility_of_a_wrong_clock_is_brought_back(change: Callable[..., Lifecycle]) -> None:
    wrong = replace(running, visible_until=NOON + 43_200_001)
    assert change(wrong, now=NOON).visible_until == NOON + 60_000
    longest = replace(running, visible_until=NOON + 43_200_000)
    assert change(longest, now=NOON).visible_until == NOON + 43_200_000


def test_only_running_jobs_are_recalled() -> None:
    scheduled = replace(running, state=JobState.SCHEDULED, visible_until=0, due_at=NOON + YEARS * 1000)
    assert lifecycle.recall(scheduled, now=NOON) is scheduled
    assert lifecycle.recall(running, now=NOON) is running


Build = Callable[[Path, ManualClock], JobStore]


@pytest.mark.parametrize(
    "build", [lambda _, clock: MemoryStore(clock), SqliteStore], ids=["memory", "sqlite"]
)
async def test_a_job_that_was_claimed_under_a_wrong_clock_comes_back(
    build: Build, tmp_path: Path, clock: ManualClock
) -> None:
    store = build(tmp_path, clock)
    async with make_services(store, clock) as services:
        await services.maintenance.run_once()
        clock.step(YEARS)
        await services.maintenance.run_once()
        await services.jobs.enqueue_jobs([make_request("q")])
        request = DequeueRequest(queue="q", wait_seconds=0, visibility_timeout_seconds=60)
        (held,) = await services.jobs.dequeue_jobs(request)
        clock.step(-YEARS)
        await services.maintenance.run_once()
        visible_until = (await services.jobs.get_job(held.job.job_id)).life.visible_until
        assert visible_until == clock.now() + 60_000
        assert await services.jobs.dequeue_jobs(request) == []
        clock.advance(60)
        assert [taken.job.attempt for taken in await services.jobs.dequeue_jobs(request)] == [2]


async def test_one_who_waits_gets_the_job_that_was_brought_back(tmp_path: Path, clock: ManualClock) -> None:
    async with make_services(SqliteStore(tmp_path, clock), clock) as services:
        clock.step(YEARS)
        await services.jobs.enqueue_jobs([make_request("q")])
        request = DequeueRequest(queue="q", wait_seconds=0, visibility_timeout_seconds=10)
        await services.jobs.dequeue_jobs(request)
        clock.step(-YEARS)
        await services.maintenance.run_once()
        waiting: Awaitable[object] = asyncio.ensure_future(
            services.jobs.dequeue_jobs(replace(request, wait_seconds=20))
        )
        await until(lambda: services.dispatcher.waiting == 1)
        clock.advance(11)
        async with asyncio.timeout(30):
            assert len(await waiting) == 1  # type: ignore[arg-type]  # jobs


async def test_a_restart_brings_a_visibility_back(tmp_path: Path, clock: ManualClock) -> None:
    request = DequeueRequest(queue="q", wait_seconds=0, visibility_timeout_seconds=60)
    ahead = ManualClock(NOON + YEARS * 1000)
    async with make_services(SqliteStore(tmp_path, ahead), ahead) as services:
        await services.jobs.enqueue_jobs([make_request("q")])
        (held,) = await services.jobs.dequeue_jobs(request)
    async with make_services(SqliteStore(tmp_path, clock), clock) as services:
        job = await services.jobs.get_job(held.job.job_id)
        assert job.life.visible_until == clock.now() + 60_000


async def test_a_manual_clock_may_move_right_after_a_sleep_was_cancelled() -> None:
    clock = ManualClock()
    sleeping = asyncio.create_task(clock.sleep(1))
    await asyncio.sleep(0)
    sleeping.cancel()
    clock.advance(2)
    with pytest.raises(asyncio.CancelledError):
        await sleeping
    assert clock.waiting == 0
