from __future__ import annotations

import asyncio

import pytest

from airunner.domain.errors import ResourceExhausted
from airunner.services.notifier import Notifier, holder_bell
from airunner.services.watchers import Watchers
from airunner.testing.clock import ManualClock
from airunner.testing.conditions import until


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def notifier(clock: ManualClock) -> Notifier:
    return Notifier(clock)


async def test_a_ring_wakes_everybody_who_waits(notifier: Notifier, clock: ManualClock) -> None:
    with notifier.listen("a") as bell, notifier.listen("a") as same:
        waits = [asyncio.create_task(each.wait(0, clock.now() + 1000)) for each in (bell, same)]
        await until(lambda: clock.waiting == 2)
        notifier.ring("b")
        assert not any(wait.done() for wait in waits)
        notifier.ring("a")
        assert await asyncio.gather(*waits) == [True, True]
    assert clock.waiting == 0


async def test_a_ring_between_looking_and_waiting_is_not_missed(
    notifier: Notifier, clock: ManualClock
) -> None:
    with notifier.listen("a") as bell:
        noted = bell.rings
        notifier.ring("a")
        assert await bell.wait(noted, clock.now() + 1000)


async def test_waiting_ends_at_its_time(notifier: Notifier, clock: ManualClock) -> None:
    with notifier.listen("a") as bell:
        wait = asyncio.create_task(bell.wait(0, clock.now() + 1000))
        await until(lambda: clock.waiting == 1)
        clock.advance(1)
        assert not await wait


async def test_one_who_gives_up_takes_nobody_along(notifier: Notifier, clock: ManualClock) -> None:
    with notifier.listen("a") as bell:
        leaving = asyncio.create_task(bell.wait(0, clock.now() + 1000))
        staying = asyncio.create_task(bell.wait(0, clock.now() + 1000))
        await until(lambda: clock.waiting == 2)
        leaving.cancel()
        await asyncio.wait([leaving])
        notifier.ring("a")
        assert await staying


async def test_a_bell_exists_only_while_somebody_listens(notifier: Notifier) -> None:
    with notifier.listen("a") as bell:
        notifier.ring("a")
        with notifier.listen("a") as same:
            assert same is bell
    with notifier.listen("a") as fresh:
        assert fresh is not bell
        assert fresh.rings == 0


async def test_all_bells_can_be_rung(notifier: Notifier) -> None:
    with notifier.listen("a") as one, notifier.listen("b") as other:
        notifier.ring_all()
        assert (one.rings, other.rings) == (1, 1)


async def test_the_holder_is_told_when_the_first_watcher_comes_and_the_last_goes(notifier: Notifier) -> None:
    watchers = Watchers(notifier, max_streams=10)
    with notifier.listen(holder_bell("job")) as bell:
        with watchers.watch("me", "job"):
            assert (watchers.watched("job"), bell.rings, watchers.streams) == (True, 1, 1)
            with watchers.watch("you", "job"):
                assert (bell.rings, watchers.streams) == (1, 2)
        assert (watchers.watched("job"), bell.rings, watchers.streams) == (False, 2, 0)


async def test_streams_are_limited_by_principal_and_job(notifier: Notifier) -> None:
    watchers = Watchers(notifier, max_streams=1)
    with watchers.watch("me", "job"):
        with pytest.raises(ResourceExhausted), watchers.watch("me", "job"):
            pass
        with watchers.watch("you", "job"), watchers.watch("me", "other"):
            pass
    with watchers.watch("me", "job"):
        pass
