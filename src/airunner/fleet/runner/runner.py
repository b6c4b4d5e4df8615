"""What a runner does around its worker: watch for the end of the machine, and report that of the job."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from airunner.fleet.runner.attempts import ObservedJobs
from airunner.fleet.runner.metadata import POLL_SECONDS, SpotWatch
from airunner.fleet.runner.report import send_reports
from airunner.services.periodic import Periodic
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from airunner.domain.clock import Clock
    from airunner.fleet.runner.metadata import InstanceMetadata
    from airunner.queues.messages import MessageQueue
    from airunner.services.api import HoldingApi

_log = get_logger("airunner.fleet")


class FleetRunner:
    """One instance of the fleet. The worker gets its jobs through `observe`; `report` comes after its end."""

    def __init__(
        self, instance_id: str, metadata: InstanceMetadata, termination: MessageQueue, clock: Clock
    ) -> None:
        self._instance_id = instance_id
        self._metadata = metadata
        self._termination = termination
        self._clock = clock
        self._observed: ObservedJobs | None = None

    def observe(self, jobs: HoldingApi) -> HoldingApi:
        """Return the same jobs; what becomes of them is noted."""
        self._observed = ObservedJobs(jobs, self._clock)
        return self._observed

    @asynccontextmanager
    async def watching(self, stop: Callable[[], object]) -> AsyncIterator[None]:
        """Call `stop` when EC2 is about to take the instance away."""
        watch = SpotWatch(self._metadata, stop)
        looking = Periodic(
            "spot notice",
            watch.look,
            clock=self._clock,
            interval_seconds=POLL_SECONDS,
            failure_event="runner.spot_watch_failed",
            at_once=True,
        )
        looking.start()
        try:
            yield
        finally:
            await looking.stop()

    async def report(self) -> None:
        """Report how each attempt ended; without any, nothing is sent."""
        attempts = self._observed.attempts if self._observed else ()
        if not attempts:
            _log.info("runner.no_job")
            return
        now = self._clock.now()
        messages = [attempt.message(self._instance_id, now) for attempt in attempts]
        await send_reports(self._termination, messages, self._clock)
