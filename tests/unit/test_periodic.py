"""The background loop: what it does at its pace, and what does not stop it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import structlog

from airunner import telemetry
from airunner.domain.errors import Unavailable
from airunner.services import periodic
from airunner.services.periodic import Periodic
from airunner.testing.clock import ManualClock
from airunner.testing.conditions import until

INTERVAL = 60.0


class Work:
    """Counts its turns; each does what it is told to."""

    def __init__(self) -> None:
        self.turns = 0
        self.act: Callable[[], Awaitable[object]] | None = None

    async def run_once(self) -> None:
        self.turns += 1
        if self.act:
            await self.act()

    def fails_with(self, error: Exception) -> None:
        async def fail() -> None:
            raise error

        self.act = fail

    def hangs(self) -> asyncio.Event:
        release = asyncio.Event()
        self.act = release.wait
        return release


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def work() -> Work:
    return Work()


def make_loop(work: Work, clock: ManualClock, **differences: Any) -> Periodic:
    arguments: dict[str, Any] = {"interval_seconds": INTERVAL, "failure_event": "work.failed"} | differences
    return Periodic("work", work.run_once, clock=clock, **arguments)


@pytest.fixture
async def loop(work: Work, clock: ManualClock) -> AsyncIterator[Periodic]:
    loop = make_loop(work, clock)
    loop.start()
    yield loop
    await loop.stop()


async def advance(clock: ManualClock, seconds: float) -> None:
    """Move the clock once the loop sleeps, and return when it sleeps again."""
    await until(lambda: clock.waiting == 1)
    clock.advance(seconds)
    await until(lambda: clock.waiting == 1)


async def test_turns_come_after_a_pause_each(loop: Periodic, work: Work, clock: ManualClock) -> None:
    await advance(clock, INTERVAL - 1)
    assert work.turns == 0
    await advance(clock, 1)
    assert work.turns == 1
    await advance(clock, INTERVAL)
    assert work.turns == 2
    assert loop.last_turn_at == loop.last_success_at == clock.now()
    assert (loop.last_error, loop.healthy) == ("", True)


async def test_the_first_turn_can_come_at_once(work: Work, clock: ManualClock) -> None:
    loop = make_loop(work, clock, at_once=True)
    loop.start()
    await until(lambda: clock.waiting == 1)
    assert work.turns == 1
    await loop.stop()


async def test_the_interval_may_differ_from_turn_to_turn(work: Work, clock: ManualClock) -> None:
    loop = make_loop(work, clock, interval_seconds=lambda: 10.0 * (work.turns + 1))
    loop.start()
    await advance(clock, 10)
    assert work.turns == 1
    await advance(clock, 19)
    assert work.turns == 1
    await advance(clock, 1)
    assert work.turns == 2
    await loop.stop()


@pytest.mark.parametrize(
    ("error", "text", "is_surprise"),
    [
        (RuntimeError("a surprise"), "RuntimeError: a surprise", True),
        (Unavailable("the store is away"), "the store is away", False),
    ],
)
async def test_a_failed_turn_is_logged_and_the_next_one_comes(
    loop: Periodic, work: Work, clock: ManualClock, error: Exception, text: str, is_surprise: bool
) -> None:
    started_at = clock.now()
    work.fails_with(error)
    with structlog.testing.capture_logs() as logs:
        await advance(clock, INTERVAL)
    assert (loop.last_turn_at, loop.last_success_at) == (clock.now(), started_at)
    assert (loop.last_error, loop.healthy) == (text, True)
    (entry,) = logs
    assert (entry["event"], entry["log_level"], entry["error"]) == ("work.failed", "warning", text)
    assert (entry["loop"], entry["exc_info"]) == ("work", error if is_surprise else None)
    work.act = None
    await advance(clock, INTERVAL)
    assert (work.turns, loop.last_error, loop.last_success_at) == (2, "", clock.now())


async def test_a_failure_is_logged_under_the_name_of_the_loop_where_no_other_is_given(
    work: Work, clock: ManualClock
) -> None:
    loop = Periodic("work", work.run_once, clock=clock, interval_seconds=INTERVAL)
    work.fails_with(RuntimeError("a surprise"))
    loop.start()
    with structlog.testing.capture_logs() as logs:
        await advance(clock, INTERVAL)
    await loop.stop()
    assert [entry["event"] for entry in logs] == ["work_failed"]


async def test_a_failure_can_have_a_pause_of_its_own(work: Work, clock: ManualClock) -> None:
    loop = make_loop(work, clock, interval_seconds=1, failure_pause_seconds=30)
    loop.start()
    work.fails_with(Unavailable())
    await advance(clock, 1)
    await advance(clock, 29)
    assert work.turns == 1
    work.act = None
    await advance(clock, 1)
    await advance(clock, 1)
    assert work.turns == 3
    await loop.stop()


async def test_a_log_line_that_raises_stops_nothing(
    loop: Periodic, work: Work, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []

    class FullDisk:
        def warning(self, event: str, **_: object) -> None:
            lines.append(event)
            raise OSError("no space left on device")

    monkeypatch.setattr(periodic, "_log", FullDisk())
    work.fails_with(RuntimeError("a surprise"))
    await advance(clock, INTERVAL)
    await advance(clock, INTERVAL)
    assert (work.turns, loop.healthy, lines) == (2, True, ["work.failed"] * 2)


async def test_failing_for_ever_is_healthy_and_shows_in_the_metric(
    loop: Periodic, work: Work, clock: ManualClock
) -> None:
    work.fails_with(RuntimeError("a surprise"))
    with structlog.testing.capture_logs():
        for _ in range(10):
            await advance(clock, INTERVAL)
    assert loop.healthy
    assert telemetry.loop_last_success_age.read()["work",] == 10 * INTERVAL


@pytest.mark.parametrize(("interval", "patience"), [(1, 120), (INTERVAL, 180)])
async def test_a_turn_that_never_ends_is_not_healthy(
    work: Work, clock: ManualClock, interval: float, patience: float
) -> None:
    loop = make_loop(work, clock, interval_seconds=interval)
    loop.start()
    release = work.hangs()
    await until(lambda: clock.waiting == 1)
    clock.advance(interval)
    await until(lambda: work.turns == 1)
    clock.advance(patience - interval)
    health = [loop.healthy]
    clock.advance(0.001)
    assert [*health, loop.healthy] == [True, False]
    assert telemetry.loop_last_success_age.read()["work",] == pytest.approx(patience + 0.001)
    release.set()
    await until(lambda: clock.waiting == 1)
    assert loop.healthy
    await loop.stop()


@pytest.mark.parametrize("seconds", [3_600, -3_600])
async def test_a_step_of_the_clock_makes_no_loop_look_stuck_or_lively(
    work: Work, clock: ManualClock, seconds: float
) -> None:
    loop = make_loop(work, clock)
    loop.start()
    release = work.hangs()
    await until(lambda: clock.waiting == 1)
    clock.advance(INTERVAL)
    await until(lambda: work.turns == 1)
    clock.step(seconds)
    health = [loop.healthy]
    assert telemetry.loop_last_success_age.read()["work",] == INTERVAL
    clock.advance(3 * INTERVAL)
    assert [*health, loop.healthy] == [True, False]
    release.set()
    await until(lambda: clock.waiting == 1)
    assert loop.healthy
    await loop.stop()


async def test_a_loop_that_was_cancelled_from_outside_is_not_healthy(
    loop: Periodic, work: Work, clock: ManualClock
) -> None:
    work.hangs()
    await until(lambda: clock.waiting == 1)
    clock.advance(INTERVAL)
    await until(lambda: work.turns == 1)
    (task,) = (task for task in asyncio.all_tasks() if task.get_name() == "work")
    with structlog.testing.capture_logs() as logs:
        task.cancel()
        await asyncio.wait({task})
    assert not loop.healthy
    assert [(entry["event"], entry["loop"]) for entry in logs] == [("loop.ended", "work")]


async def test_a_loop_that_cannot_tell_its_pace_ends_and_is_not_healthy(
    work: Work, clock: ManualClock
) -> None:
    loop = make_loop(work, clock, interval_seconds=lambda: 10.0 / (1 - work.turns))
    loop.start()
    await until(lambda: clock.waiting == 1)
    with structlog.testing.capture_logs() as logs:
        clock.advance(10)
        await until(lambda: not loop.healthy)
    assert [entry["error"] for entry in logs] == ["ZeroDivisionError: float division by zero"]
    await loop.stop()


async def test_a_turn_that_may_be_cancelled_is_when_it_takes_too_long(work: Work, clock: ManualClock) -> None:
    loop = make_loop(work, clock, turn_seconds=0.01, at_once=True)
    work.hangs()
    with structlog.testing.capture_logs() as logs:
        loop.start()
        await until(lambda: clock.waiting == 1)
    assert [(entry["event"], entry["error"]) for entry in logs] == [("work.failed", "TimeoutError")]
    assert (work.turns, loop.healthy, loop.last_error) == (1, True, "TimeoutError")
    await loop.stop()


async def test_what_a_turn_waits_for_may_be_cancelled(loop: Periodic, work: Work, clock: ManualClock) -> None:
    async def wait_for_a_cancelled_one() -> None:
        gone = asyncio.get_running_loop().create_future()
        gone.cancel()
        await gone

    work.act = wait_for_a_cancelled_one
    with structlog.testing.capture_logs():
        await advance(clock, INTERVAL)
        await advance(clock, INTERVAL)
    assert (work.turns, loop.last_error, loop.healthy) == (2, "CancelledError", True)


async def test_stopping_waits_for_a_turn_to_clean_up(loop: Periodic, work: Work, clock: ManualClock) -> None:
    cleaned: list[str] = []

    async def clean_up() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append("up")

    work.act = clean_up
    await until(lambda: clock.waiting == 1)
    clock.advance(INTERVAL)
    await until(lambda: work.turns == 1)
    with structlog.testing.capture_logs() as logs:
        await loop.stop()
        await loop.stop()
    assert (cleaned, logs, loop.healthy) == (["up"], [], True)
    assert ("work",) not in telemetry.loop_last_success_age.read()


async def test_stopping_does_not_wait_for_ever(
    loop: Periodic, work: Work, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = asyncio.Event()

    async def ignore_cancellation() -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    monkeypatch.setattr(periodic, "STOP_SECONDS", 0.01)
    work.act = ignore_cancellation
    await until(lambda: clock.waiting == 1)
    clock.advance(INTERVAL)
    await until(lambda: work.turns == 1)
    with structlog.testing.capture_logs() as logs:
        await loop.stop()
    assert [(entry["event"], entry["loop"]) for entry in logs] == [("loop.abandoned", "work")]
    (task,) = (task for task in asyncio.all_tasks() if task.get_name() == "work")
    release.set()
    await asyncio.wait({task})
    assert work.turns == 1
