"""Counting and timing attempts, around whatever processes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airunner import telemetry
from airunner.domain.errors import VisibilityLost, permanent_failure

if TYPE_CHECKING:
    from airunner.domain.clock import Clock
    from airunner.queues.base import Delivery
    from airunner.queues.task_runner import ProcessDelivery
    from airunner.worker.attempt import Attempt, JobOutcome


class AttemptMetrics:
    """Counts how attempts end and measures how long they take, and leaves the rest to another `process`."""

    def __init__(self, process: ProcessDelivery[Attempt, JobOutcome], clock: Clock) -> None:
        self._process = process
        self._clock = clock

    async def process(self, delivery: Delivery[Attempt]) -> JobOutcome:
        """Process an attempt."""
        attempt, end = delivery.body, "released"
        started_at = attempt.started_at if attempt.call else self._clock.now()
        try:
            outcome = await self._process(delivery)
            end = outcome.result.outcome.name.lower()
            return outcome
        except VisibilityLost:
            end = "lost"
            raise
        except Exception as error:
            end = "failure" if permanent_failure(error) else end
            raise
        finally:
            telemetry.attempts_ended.add(1, "lost" if delivery.lost else end)
            telemetry.attempt_time.record((self._clock.now() - started_at) / 1000)
