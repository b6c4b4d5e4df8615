"""Tasks that nobody awaits, and a wake-up for everybody who waits."""

from __future__ import annotations

import asyncio

import pytest

from airunner.domain.background import BackgroundTasks, WakeUp
from airunner.testing.clock import ManualClock
from airunner.testing.conditions import until


class Failures(list[tuple[str, str]]):
    def note(self, name: str, error: BaseException) -> None:
        self.append((name, str(error)))


@pytest.fixture
def failures() -> Failures:
    return Failures()


@pytest.fixture
def tasks(failures: Failures) -> BackgroundTasks:
    return BackgroundTasks(failures.note)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def wake_up(clock: ManualClock) -> WakeUp:
    return WakeUp(clock)


async def test_finish_waits_for_what_is_begun_meanwhile(tasks: BackgroundTasks) -> None:
    done: list[str] = []

    async def second() -> None:
        for _ in range(5):
            await asyncio.sleep(0)
        done.append("second")

    async def first() -> None:
        await asyncio.sleep(0)
        tasks.begin("second", second())
        done.append("first")

    tasks.begin("first", first())
    assert len(tasks) == 1
    await tasks.finish()
    assert done == ["first", "second"]
    assert len(tasks) == 0


@pytest.mark.parametrize("error", [RuntimeError("a surprise"), ValueError("a surprise")])
async def test_an_error_is_reported_and_goes_no_further(
    tasks: BackgroundTasks, failures: Failures, error: Exception
) -> None:
    async def fail() -> None:
        raise error

    task = tasks.begin("fragile", fail())
    await asyncio.wait({task})
    await tasks.finish()
    assert failures == [("fragile", "a surprise")]


async def test_a_report_that_fails_is_dropped() -> None:
    def report(_name: str, _error: BaseException) -> None:
        raise OSError("the log is full")

    async def fail() -> None:
        raise RuntimeError

    tasks, complaints = BackgroundTasks(report), loop_complaints()
    tasks.begin("fragile", fail())
    await tasks.finish()
    assert complaints == []


async def test_cancelled_tasks_end_without_a_report(tasks: BackgroundTasks, failures: Failures) -> None:
    complaints = loop_complaints()
    begun = tasks.begin("begun", asyncio.sleep(3600))
    await asyncio.sleep(0)
    unbegun = tasks.begin("unbegun", asyncio.sleep(3600))
    tasks.cancel()
    await tasks.finish()
    assert (begun.cancelled(), unbegun.cancelled()) == (True, True)
    assert failures == complaints == []


async def test_a_wake_up_reaches_everybody_who_waits(wake_up: WakeUp, clock: ManualClock) -> None:
    waits = [
        asyncio.create_task(wake_up.wait()),
        asyncio.create_task(wake_up.wait(clock.now() + 1000)),
    ]
    await until(lambda: clock.waiting == 1)
    wake_up.notify()
    assert await asyncio.gather(*waits) == [True, True]
    assert clock.waiting == 0


async def test_a_wake_up_is_not_kept_for_later(wake_up: WakeUp, clock: ManualClock) -> None:
    wake_up.notify()
    wait = asyncio.create_task(wake_up.wait(clock.now() + 1000))
    await until(lambda: clock.waiting == 1)
    clock.advance(1)
    assert not await wait


@pytest.mark.parametrize("seconds", [None, 5])
async def test_one_who_gives_up_takes_nobody_along(
    wake_up: WakeUp, clock: ManualClock, seconds: int | None
) -> None:
    deadline = None if seconds is None else clock.now() + seconds * 1000
    leaving, staying = (asyncio.create_task(wake_up.wait(deadline)) for _ in range(2))
    await asyncio.sleep(0)
    leaving.cancel()
    await asyncio.wait({leaving})
    wake_up.notify()
    assert await staying


def loop_complaints() -> list[object]:
    """Return where the event loop puts the errors that nobody takes."""
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    return complaints
