"""Exponential back-off: one policy and one loop for whatever is tried again."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from airunner.domain.errors import retry_after_seconds

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from airunner.domain.clock import Clock

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Exponential delays, capped, each shortened by up to `jitter` of itself."""

    first_seconds: float = 0.1
    factor: float = 2.0
    max_seconds: float = 5.0
    attempts: int | None = None
    jitter: float = 0.5

    def delay(self, failures: int, draw: float | None = None, *, at_least: float = 0.0) -> float:
        """Return the pause after this many failures (1 or more); `draw` in [0, 1) fixes the jitter.

        A server may have said how long to wait at least: then jitter lengthens that, so that those who were
        refused together do not come back together.
        """
        full = min(self.max_seconds, self.first_seconds * self.factor ** min(failures - 1, 64))
        share = _draw() if draw is None else draw
        return max(full * (1 - self.jitter * share), at_least * (1 + self.jitter * share))

    def exhausted(self, failures: int) -> bool:
        """Return whether no further attempt is allowed after this many failures."""
        return self.attempts is not None and failures >= self.attempts


def _draw() -> float:
    """Return a random number in [0, 1), without the module for it, which takes long to load."""
    return int.from_bytes(os.urandom(4), "big") / 2**32


async def retry(
    policy: RetryPolicy,
    clock: Clock,
    call: Callable[[], Awaitable[T]],
    *,
    retry_if: Callable[[Exception], bool],
    on_failure: Callable[[Exception, int], None] | None = None,
    give_up_at: int | None = None,
) -> T:
    """Repeat `call` until it answers, and pause between two calls as the policy says, or the error.

    The last error is raised when `retry_if` refuses it, when the policy allows no further attempt, or when
    the pause would not end before `give_up_at` of the monotonic clock. Before each pause, and only then,
    `on_failure` is called with the error and the number of failures so far; what it raises ends the retries.
    """
    failures = 0
    while True:
        try:
            return await call()
        except Exception as error:
            failures += 1
            if not retry_if(error) or policy.exhausted(failures):
                raise
            pause = policy.delay(failures, at_least=retry_after_seconds(error))
            if give_up_at is not None and clock.monotonic() + pause * 1000 >= give_up_at:
                raise
            if on_failure:
                on_failure(error, failures)
        await clock.sleep(pause)


class StoppableRetry:
    """Retries that somebody else may stop: then neither a call under way nor a pause is waited for."""

    def __init__(self) -> None:
        self._is_stopped = False
        self._task: asyncio.Task[Any] | None = None

    @property
    def is_stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._is_stopped

    async def run(
        self,
        policy: RetryPolicy,
        clock: Clock,
        call: Callable[[], Awaitable[T]],
        *,
        retry_if: Callable[[Exception], bool],
        on_failure: Callable[[Exception, int], None] | None = None,
    ) -> T | None:
        """Do as `retry` does; return None if it is stopped before the call answers. May be repeated.

        The call is cancelled with a stop, and has to undo what it did by half.
        """
        if self._is_stopped:
            return None
        # A driver may swallow the cancellation of a call: at least no pause follows then.
        retries = retry(
            policy,
            clock,
            call,
            retry_if=lambda error: not self._is_stopped and retry_if(error),
            on_failure=on_failure,
        )
        task = asyncio.create_task(retries)
        self._task = task
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait({task})
            raise
        is_unanswered = task.cancelled() or task.exception() is not None
        return None if is_unanswered and self.is_stopped else task.result()

    def stop(self) -> None:
        """End the retries, now or once they begin. May be repeated."""
        self._is_stopped = True
        if self._task:
            self._task.cancel()
