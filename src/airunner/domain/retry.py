"""When to try again: one policy for publishing, redelivery, reconnects and every poller."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

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

    def delay(self, failures: int, draw: float | None = None) -> float:
        """Return the pause after this many failures (1 or more); `draw` in [0, 1) fixes the jitter."""
        full = min(self.max_seconds, self.first_seconds * self.factor ** min(failures - 1, 64))
        share = random.random() if draw is None else draw  # noqa: S311  spreads load, guards nothing
        return full * (1 - self.jitter * share)

    def exhausted(self, failures: int) -> bool:
        """Tell whether no further attempt is allowed after this many failures."""
        return self.attempts is not None and failures >= self.attempts


async def retry(
    policy: RetryPolicy,
    clock: Clock,
    call: Callable[[], Awaitable[T]],
    *,
    retryable: Callable[[Exception], bool],
) -> T:
    """Repeat `call` until it answers, or raise its last error when it fails for good or too often."""
    failures = 0
    while True:
        try:
            return await call()
        except Exception as error:
            failures += 1
            if not retryable(error) or policy.exhausted(failures):
                raise
        await clock.sleep(policy.delay(failures))
