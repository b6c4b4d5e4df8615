"""Calls that are repeated while what they need is away, and the knowledge that something is."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, TypeVar

from airunner.domain.errors import (
    DeadlineExceeded,
    MessageTooLarge,
    ResourceExhausted,
    Unavailable,
    error_text,
)
from airunner.domain.retry import RetryPolicy, retry
from airunner.fleet.progress import MessageProgress
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from airunner.domain.clock import Clock

T = TypeVar("T")

_log = get_logger("airunner.fleet")

CALL_SECONDS: Final = 30.0
"""How long one try of a call may take; one that takes longer is away."""
_POLICY: Final = RetryPolicy(first_seconds=1.0, max_seconds=30.0)


class Dependencies:
    """What a processor needs beside its queue.

    A dependency that is away or throttles is no failure of a message: the call is repeated, however long that
    takes, and the message is held and extended meanwhile. Whoever receives asks `are_there` first.
    """

    def __init__(self, clock: Clock, *, policy: RetryPolicy = _POLICY) -> None:
        self._clock = clock
        self._policy = policy
        self._repeated = 0
        self.progress = MessageProgress(clock)

    @property
    def are_there(self) -> bool:
        """Whether no call is being repeated."""
        return not self._repeated

    async def call(
        self, name: str, call: Callable[[], Awaitable[T]], *, seconds: float | None = CALL_SECONDS
    ) -> T:
        """Make a call, again and again while its dependency is away; whatever else it raises is raised.

        `seconds` is how long one try may take; None for what bounds itself.
        """
        has_failed = False

        def note(error: Exception, failures: int) -> None:
            nonlocal has_failed
            self._repeated += not has_failed
            has_failed = True
            self.progress.note()
            _log.warning("fleet.dependency_away", call=name, failures=failures, error=error_text(error))

        try:
            return await retry(
                self._policy, self._clock, lambda: _in_time(call, seconds), retry_if=_is_away, on_failure=note
            )
        finally:
            self._repeated -= has_failed
            self.progress.note()


async def _in_time(call: Callable[[], Awaitable[T]], seconds: float | None) -> T:
    try:
        async with asyncio.timeout(seconds):
            return await call()
    except TimeoutError:
        raise DeadlineExceeded(f"no answer within {seconds} s") from None


def _is_away(error: Exception) -> bool:
    may_pass = isinstance(error, Unavailable | ResourceExhausted | DeadlineExceeded)
    return may_pass and not isinstance(error, MessageTooLarge)
