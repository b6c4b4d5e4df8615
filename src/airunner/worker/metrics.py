"""Counting and timing attempts, around whatever handles them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airunner import telemetry
from airunner.domain.errors import PermanentFailure, VisibilityLost

if TYPE_CHECKING:
    from airunner.domain.clock import Clock
    from airunner.queues.base import Delivery
    from airunner.queues.consumer import Handler
    from airunner.worker.attempt import Attempt, JobOutcome


class MeasuredHandler:
    """A handler of attempts that counts how they end, and leaves the rest to another."""

    def __init__(self, handle: Handler[Attempt, JobOutcome], clock: Clock) -> None:
        self._handle = handle
        self._clock = clock

    async def __call__(self, delivery: Delivery[Attempt]) -> JobOutcome:
        """Handle an attempt."""
        call, ending = delivery.body.call, "released"
        began = call.started_at if call else self._clock.now()
        try:
            outcome = await self._handle(delivery)
            ending = outcome.result.outcome.name.lower()
            return outcome
        except VisibilityLost:
            ending = "lost"
            raise
        except PermanentFailure:
            ending = "failure"
            raise
        finally:
            telemetry.attempts_ended.add(1, "lost" if delivery.lost else ending)
            telemetry.attempt_time.record((self._clock.now() - began) / 1000)
