"""One timer for the deadlines of all calls of a loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import cast

import pytest

from airunner.client.http.deadlines import Deadlines
from airunner.client.http.exchange import WholeAnswer
from airunner.domain.errors import DeadlineExceeded


class Timer:
    """A timer that a test lets ring."""

    def __init__(self, at: float, ring: Callable[[], None]) -> None:
        self.at = at
        self.ring = ring
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Loop:
    """A loop whose time stands still, and that remembers its timers."""

    def __init__(self) -> None:
        self.now = 100.0
        self.timers: list[Timer] = []

    def time(self) -> float:
        return self.now

    def call_at(self, at: float, ring: Callable[[], None]) -> Timer:
        self.timers.append(Timer(at, ring))
        return self.timers[-1]

    @property
    def set_for(self) -> list[float]:
        """When the timers ring that were not cancelled and have not rung yet."""
        return [timer.at for timer in self.timers if not timer.cancelled]

    def ring(self, early_seconds: float = 0.0) -> None:
        (timer,) = (timer for timer in self.timers if not timer.cancelled)
        self.now = timer.at - early_seconds
        timer.cancelled = True
        timer.ring()


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
async def deadlines(loop: Loop) -> AsyncIterator[Deadlines]:
    made = Deadlines(cast("asyncio.AbstractEventLoop", loop))
    yield made
    made.close()
    assert loop.set_for == []


def answer() -> WholeAnswer:
    return WholeAnswer(asyncio.get_running_loop())


def expired(answer: WholeAnswer) -> bool:
    return answer.future.done() and isinstance(answer.future.exception(), DeadlineExceeded)


async def test_calls_that_are_over_in_time_share_a_timer(deadlines: Deadlines, loop: Loop) -> None:
    for _ in range(10):
        loop.now += 1
        one = answer()
        deadlines.add(one, loop.now + 30)
        deadlines.remove(one)
    assert loop.set_for == [131]
    loop.ring()
    # There is nothing more to wait for.
    assert loop.set_for == []


async def test_each_call_expires_when_it_is_due(deadlines: Deadlines, loop: Loop) -> None:
    first, second, over = answer(), answer(), answer()
    deadlines.add(first, 130)
    deadlines.add(second, 140)
    deadlines.add(over, 130)
    deadlines.remove(over)
    loop.ring()
    assert [expired(one) for one in (first, second, over)] == [True, False, False]
    assert loop.set_for == [140]
    loop.ring()
    assert expired(second)
    assert not over.future.done()


async def test_an_earlier_deadline_is_not_missed(deadlines: Deadlines, loop: Loop) -> None:
    patient, quick = answer(), answer()
    deadlines.add(patient, 130)
    deadlines.add(quick, 101)
    assert loop.set_for == [101]
    loop.ring()
    assert expired(quick)
    assert loop.set_for == [130]
    assert not patient.future.done()


async def test_a_timer_that_rings_a_little_early_does_not_ring_in_vain(
    deadlines: Deadlines, loop: Loop
) -> None:
    one = answer()
    deadlines.add(one, 130)
    loop.ring(early_seconds=1e-9)
    assert expired(one)


async def test_nothing_expires_after_the_end(deadlines: Deadlines, loop: Loop) -> None:
    one = answer()
    deadlines.add(one, 130)
    deadlines.close()
    assert loop.set_for == []
    assert not one.future.done()


async def test_removing_twice_is_nothing(deadlines: Deadlines) -> None:
    one = answer()
    deadlines.add(one, 130)
    deadlines.remove(one)
    deadlines.remove(one)
