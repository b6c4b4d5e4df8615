"""The services as a whole: their loops run while they are open, and the store is closed in any case."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

import pytest

from airunner.domain.errors import Unavailable
from airunner.domain.requests import DequeueRequest
from airunner.services import periodic
from airunner.services.composition import ServiceRules, Services
from airunner.services.periodic import Periodic
from airunner.stores.memory import MemoryStore
from airunner.stores.records import Demand, Retention, Upkeep
from airunner.testing.clock import ManualClock
from airunner.testing.conditions import until
from airunner.testing.factories import make_services

INTERVAL = 30


class WatchedStore(MemoryStore):
    """Knows how often it was closed, and does what it is told to instead of its upkeep."""

    closed = 0
    maintained = 0
    upkeep: Callable[[], Awaitable[Upkeep]] | None = None
    withdraw_error: Exception | None = None

    def has_maintained(self, times: int) -> bool:
        return self.maintained == times

    async def close(self) -> None:
        self.closed += 1
        await super().close()

    async def maintain(self, retention: Retention, now: int) -> Upkeep:
        self.maintained += 1
        return await self.upkeep() if self.upkeep else await super().maintain(retention, now)

    async def withdraw(self, demand: Demand) -> None:
        if self.withdraw_error:
            raise self.withdraw_error
        await super().withdraw(demand)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> WatchedStore:
    return WatchedStore(clock)


@pytest.fixture
def services(store: WatchedStore, clock: ManualClock) -> Services:
    return make_services(store, clock, ServiceRules(maintenance_interval_seconds=INTERVAL))


async def fail() -> Upkeep:
    raise RuntimeError("a surprise")


async def hang() -> Upkeep:
    await asyncio.Event().wait()
    raise AssertionError


async def ignore_cancellation() -> Upkeep:
    with suppress(asyncio.CancelledError):
        await hang()
    return await hang()


async def turn(store: WatchedStore, clock: ManualClock) -> None:
    """Let a turn of maintenance begin."""
    count = store.maintained
    await until(lambda: clock.waiting == 1)
    clock.advance(INTERVAL)
    await until(lambda: store.maintained > count)


@pytest.mark.parametrize("upkeep", [fail, hang, ignore_cancellation])
async def test_the_store_is_closed_whatever_a_loop_did(
    services: Services,
    store: WatchedStore,
    clock: ManualClock,
    upkeep: Callable[[], Awaitable[Upkeep]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(periodic, "STOP_SECONDS", 0.05)
    store.upkeep = upkeep
    async with services:
        await turn(store, clock)
    assert store.closed == 1


async def test_the_store_is_closed_after_a_loop_was_cancelled_from_outside(
    services: Services, store: WatchedStore
) -> None:
    async with services:
        (task,) = (task for task in asyncio.all_tasks() if task.get_name() == "maintenance")
        task.cancel()
        await asyncio.wait({task})
        assert services.stuck_loops == ["maintenance"]
    assert store.closed == 1


async def test_the_store_is_closed_when_waiting_calls_cannot_be_ended(
    services: Services, store: WatchedStore
) -> None:
    store.withdraw_error = Unavailable("no answer")
    await services.__aenter__()
    waiting = asyncio.create_task(services.jobs.dequeue_jobs(DequeueRequest(queue="builds")))
    await until(lambda: services.dispatcher.waiting == 1)
    with pytest.raises(Unavailable):
        await services.__aexit__(None, None, None)
    assert store.closed == 1
    await asyncio.wait({waiting})


async def test_every_loop_is_asked_how_it_is(
    services: Services, store: WatchedStore, clock: ManualClock
) -> None:
    turns: list[int] = []

    async def more() -> None:
        turns.append(1)
        await hang()

    services.add_loop(
        Periodic("more", more, clock=clock, interval_seconds=600, failure_event="more.failed", at_once=True)
    )
    async with services:
        await until(lambda: bool(turns))
        store.upkeep = hang
        await turn(store, clock)
        assert services.stuck_loops == []
        clock.advance(100)
        assert services.stuck_loops == ["maintenance"]
        clock.advance(1800)
        assert services.stuck_loops == ["maintenance", "more"]


async def test_a_long_pass_of_maintenance_is_many_turns(
    services: Services, store: WatchedStore, clock: ManualClock
) -> None:
    release = asyncio.Semaphore(0)

    async def purge() -> Upkeep:
        await release.acquire()
        return Upkeep(purged_jobs=1, has_more=True)

    store.upkeep = purge
    async with services:
        await turn(store, clock)
        for steps in range(2, 6):
            clock.advance(100)
            release.release()
            # Nobody has to move the clock for the next step.
            await until(partial(store.has_maintained, steps))
            assert services.stuck_loops == []


async def test_a_failed_step_of_a_long_pass_is_not_repeated_at_once(
    services: Services, store: WatchedStore, clock: ManualClock
) -> None:
    outcomes = [fail, fail]

    async def purge() -> Upkeep:
        return await outcomes.pop()() if store.maintained > 1 else Upkeep(purged_jobs=1, has_more=True)

    store.upkeep = purge
    async with services:
        await turn(store, clock)
        await until(lambda: clock.waiting == 1)
        assert store.maintained == 2
        await turn(store, clock)
        assert store.maintained == 3
