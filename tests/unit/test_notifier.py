from __future__ import annotations

import asyncio

import pytest

from airunner.domain.errors import ResourceExhausted
from airunner.services.notifier import Bell, Notifier, holder_bell
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


async def test_a_follower_is_left_alone_at_rings_that_it_deals_with(
    notifier: Notifier, clock: ManualClock
) -> None:
    answers = [True, True, False]
    with notifier.listen("a") as bell:
        following = asyncio.create_task(bell.follow(0, lambda: answers.pop(0), lambda: 1_000_000_000_000_000))
        await until(lambda: clock.waiting == 1)
        for _ in range(2):
            notifier.ring("a")
            await asyncio.sleep(0)
            assert not following.done()
        notifier.ring("a")
        assert await following
        assert await bell.follow(2, lambda: True, lambda: 1_000_000_000_000_000), (
            "a ring between looking and waiting"
        )
    assert clock.waiting == 0


@pytest.mark.parametrize("step_seconds", [0, -3600, 3600])
async def test_a_follower_goes_on_when_it_is_time_whatever_rang(
    notifier: Notifier, clock: ManualClock, step_seconds: int
) -> None:
    due_at = [clock.monotonic() + 1_000]
    with notifier.listen("a") as bell:
        following = asyncio.create_task(bell.follow(0, lambda: True, lambda: due_at[0]))
        await until(lambda: clock.waiting == 1)
        clock.advance(0.6)
        notifier.ring("a")
        due_at[0] += 600
        clock.step(step_seconds)
        for passed in (0.6, 0.3):
            clock.advance(passed)
            notifier.ring("a")
            await asyncio.sleep(0)
            assert not following.done()
            assert clock.waiting == 1
        clock.advance(0.2)
        assert not await following
    assert clock.waiting == 0


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


class Looks:
    """What listeners look at: each look waits until it may end."""

    def __init__(self) -> None:
        self.count = 0
        self.may_end = asyncio.Event()
        self.error: Exception | None = None

    async def look(self) -> int:
        self.count += 1
        number = self.count
        await self.may_end.wait()
        if self.error:
            raise self.error
        return number


async def _look(bell: Bell, looks: Looks, key: str = "here", *, keep: bool = True) -> int:
    return await bell.look_once(key, looks.look, keep=lambda _: keep)


async def test_a_look_is_shared_until_the_next_ring(notifier: Notifier) -> None:
    looks = Looks()
    with notifier.listen("a") as bell, notifier.listen("a"):
        sharing = [asyncio.create_task(_look(bell, looks)) for _ in range(5)]
        elsewhere = asyncio.create_task(_look(bell, looks, "there"))
        await until(lambda: looks.count == 2)
        looks.may_end.set()
        assert await asyncio.gather(*sharing) == [1] * 5
        assert (await elsewhere, await _look(bell, looks)) == (2, 1)
        bell.ring()
        assert await _look(bell, looks) == 3


async def test_a_look_that_began_before_a_ring_is_not_for_those_who_heard_it(notifier: Notifier) -> None:
    looks = Looks()
    with notifier.listen("a") as bell, notifier.listen("a"):
        early = asyncio.create_task(_look(bell, looks))
        await until(lambda: looks.count == 1)
        bell.ring()
        late = asyncio.create_task(_look(bell, looks))
        await until(lambda: looks.count == 2)
        looks.may_end.set()
        assert (await early, await late, await _look(bell, looks)) == (1, 2, 2)


async def test_one_who_leaves_a_shared_look_takes_nobody_along(notifier: Notifier) -> None:
    looks = Looks()
    with notifier.listen("a") as bell, notifier.listen("a"):
        leaving = asyncio.create_task(_look(bell, looks))
        staying = asyncio.create_task(_look(bell, looks))
        await until(lambda: looks.count == 1)
        leaving.cancel()
        await asyncio.wait([leaving])
        looks.may_end.set()
        assert await staying == 1


async def test_a_look_that_fails_or_is_too_large_is_not_kept(notifier: Notifier) -> None:
    looks = Looks()
    looks.may_end.set()
    with notifier.listen("a") as bell, notifier.listen("a"):
        assert [await _look(bell, looks, keep=False) for _ in range(2)] == [1, 2]
        looks.error = ResourceExhausted("test")
        with pytest.raises(ResourceExhausted):
            await _look(bell, looks)
        looks.error = None
        assert await _look(bell, looks) == 4


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
