from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airunner.domain.errors import Overloaded
from airunner.domain.retry import RetryPolicy, StoppableRetry, retry
from airunner.testing.clock import ManualClock
from airunner.testing.conditions import until

STEADY = RetryPolicy(first_seconds=1, factor=2, max_seconds=5, jitter=0)


class Flaky:
    """Fails a number of times before it answers."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.calls = 0

    async def __call__(self) -> str:
        self.calls += 1
        if self.calls <= self.failures:
            raise OSError(f"failure {self.calls}")
        return "answer"


def test_delays_double_up_to_their_limit() -> None:
    assert [STEADY.delay(failures) for failures in range(1, 6)] == [1, 2, 4, 5, 5]
    assert STEADY.delay(10**6) == 5


@given(failures=st.integers(1, 1000), draw=st.floats(0, 1, exclude_max=True), jitter=st.floats(0, 1))
def test_jitter_only_shortens(failures: int, draw: float, jitter: float) -> None:
    policy = RetryPolicy(jitter=jitter)
    full = RetryPolicy(jitter=0).delay(failures)
    assert full * (1 - jitter) <= policy.delay(failures, draw) <= full <= policy.max_seconds


@given(
    failures=st.integers(1, 1000),
    draw=st.floats(0, 1, exclude_max=True),
    jitter=st.floats(0, 1),
    at_least=st.floats(0, 600),
)
def test_what_a_server_asks_for_is_only_lengthened(
    failures: int, draw: float, jitter: float, at_least: float
) -> None:
    policy = RetryPolicy(jitter=jitter)
    pause = policy.delay(failures, draw, at_least=at_least)
    assert at_least <= pause <= max(policy.max_seconds, 2 * at_least)
    assert pause >= policy.delay(failures, draw)


async def test_a_call_is_repeated_when_the_server_wants_it() -> None:
    clock = ManualClock()
    answers: list[Exception | str] = [Overloaded(retry_after_seconds=30), "answer"]

    async def call() -> str:
        if isinstance(answer := answers.pop(0), Exception):
            raise answer
        return answer

    task = asyncio.create_task(retry(STEADY, clock, call, retry_if=lambda _: True))
    await until(lambda: clock.waiting == 1)
    clock.advance(29.999)
    await until(lambda: clock.waiting == 1)
    assert answers
    clock.advance(0.001)
    assert await task == "answer"


def test_a_policy_without_a_number_of_attempts_is_never_exhausted() -> None:
    assert not RetryPolicy().exhausted(10**9)
    three = RetryPolicy(attempts=3)
    assert [three.exhausted(failures) for failures in (1, 2, 3, 4)] == [False, False, True, True]


async def test_a_call_is_repeated_at_the_times_of_the_policy() -> None:
    clock, call = ManualClock(), Flaky(failures=2)
    task = asyncio.create_task(retry(STEADY, clock, call, retry_if=lambda _: True))
    await until(lambda: clock.waiting == 1)
    clock.advance(0.999)
    await until(lambda: call.calls == 1)
    clock.advance(0.001)
    await until(lambda: clock.waiting == 1 and call.calls == 2)
    clock.advance(2)
    assert await task == "answer"
    assert call.calls == 3


async def test_an_error_that_is_not_to_be_retried_is_raised_at_once() -> None:
    call = Flaky(failures=1)
    with pytest.raises(OSError, match="failure 1"):
        await retry(STEADY, ManualClock(), call, retry_if=lambda error: not isinstance(error, OSError))
    assert call.calls == 1


async def test_the_last_error_is_raised_when_it_failed_too_often() -> None:
    clock, call = ManualClock(), Flaky(failures=5)
    policy = RetryPolicy(first_seconds=1, attempts=2, jitter=0)
    task = asyncio.create_task(retry(policy, clock, call, retry_if=lambda _: True))
    await until(lambda: clock.waiting == 1)
    clock.advance(1)
    with pytest.raises(OSError, match="failure 2"):
        await task


async def test_cancelling_is_not_retried() -> None:
    clock, call = ManualClock(), Flaky(failures=5)
    task = asyncio.create_task(retry(STEADY, clock, call, retry_if=lambda _: True))
    await until(lambda: clock.waiting == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (call.calls, clock.waiting) == (1, 0)


async def test_each_failure_is_told_before_its_pause_and_the_last_one_is_not() -> None:
    clock, call = ManualClock(), Flaky(failures=5)
    told: list[tuple[str, int, int]] = []
    task = asyncio.create_task(
        retry(
            RetryPolicy(first_seconds=1, attempts=3, jitter=0),
            clock,
            call,
            retry_if=lambda _: True,
            on_failure=lambda error, failures: told.append((str(error), failures, clock.waiting)),
        )
    )
    for seconds in (1, 2):
        await until(lambda: clock.waiting == 1)
        clock.advance(seconds)
    with pytest.raises(OSError, match="failure 3"):
        await task
    assert told == [("failure 1", 1, 0), ("failure 2", 2, 0)]


async def test_an_error_that_is_raised_at_once_is_not_told() -> None:
    told: list[int] = []
    with pytest.raises(OSError, match="failure 1"):
        await retry(
            STEADY,
            ManualClock(),
            Flaky(failures=1),
            retry_if=lambda _: False,
            on_failure=lambda _, failures: told.append(failures),
        )
    assert told == []


async def test_whoever_is_told_may_end_the_retries() -> None:
    def refuse(error: Exception, failures: int) -> None:
        raise LookupError(failures) from error

    call = Flaky(failures=5)
    with pytest.raises(LookupError, match="1") as raised:
        await retry(STEADY, ManualClock(), call, retry_if=lambda _: True, on_failure=refuse)
    assert (call.calls, str(raised.value.__cause__)) == (1, "failure 1")


@pytest.mark.parametrize(("give_up_at", "calls"), [(1000, 1), (1001, 2), (3000, 2), (3001, 3)])
async def test_no_pause_lasts_until_the_instant_to_give_up(give_up_at: int, calls: int) -> None:
    clock, call = ManualClock(0), Flaky(failures=9)
    task = asyncio.create_task(retry(STEADY, clock, call, retry_if=lambda _: True, give_up_at=give_up_at))
    for seconds in (1, 2)[: calls - 1]:
        await until(lambda: clock.waiting == 1)
        clock.advance(seconds)
    with pytest.raises(OSError, match=f"failure {calls}"):
        await task


class TestStop:
    async def test_a_stop_ends_the_pause_at_once(self) -> None:
        clock, call, retries = ManualClock(), Flaky(failures=5), StoppableRetry()
        task = asyncio.create_task(retries.run(STEADY, clock, call, retry_if=lambda _: True))
        await until(lambda: clock.waiting == 1)
        retries.stop()
        assert await task is None
        assert (call.calls, clock.waiting) == (1, 0)

    async def test_a_stop_ends_a_call_that_gets_no_answer(self) -> None:
        retries, calls = StoppableRetry(), 0

        async def hang() -> str:
            nonlocal calls
            calls += 1
            await asyncio.Event().wait()
            return "answer"

        task = asyncio.create_task(retries.run(STEADY, ManualClock(), hang, retry_if=lambda _: True))
        await until(lambda: calls == 1)
        retries.stop()
        assert await task is None

    async def test_a_call_that_swallows_its_cancellation_is_not_repeated(self) -> None:
        clock, retries, calls = ManualClock(), StoppableRetry(), 0

        async def fail_late() -> str:
            nonlocal calls
            calls += 1
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise OSError("away") from None
            return "answer"

        task = asyncio.create_task(retries.run(STEADY, clock, fail_late, retry_if=lambda _: True))
        await until(lambda: calls == 1)
        retries.stop()
        assert await task is None
        assert (calls, clock.waiting) == (1, 0)

    async def test_what_is_stopped_before_it_begins_calls_nobody(self) -> None:
        call, retries = Flaky(failures=0), StoppableRetry()
        retries.stop()
        assert await retries.run(STEADY, ManualClock(), call, retry_if=lambda _: True) is None
        assert call.calls == 0

    async def test_without_a_stop_it_is_a_retry(self) -> None:
        clock, call, retries = ManualClock(), Flaky(failures=1), StoppableRetry()
        task = asyncio.create_task(retries.run(STEADY, clock, call, retry_if=lambda _: True))
        await until(lambda: clock.waiting == 1)
        clock.advance(1)
        assert await task == "answer"
        with pytest.raises(OSError, match="failure 1"):
            await retries.run(STEADY, clock, Flaky(failures=1), retry_if=lambda _: False)

    async def test_whoever_is_cancelled_has_ended_the_call(self) -> None:
        retries, ended = StoppableRetry(), []

        async def hang() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(True)

        task = asyncio.create_task(retries.run(STEADY, ManualClock(), hang, retry_if=lambda _: True))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended == [True]
