"""What a server tells of a fleet, and asks of it, by its records and queues: no machines, no parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airunner.config import FleetPart
from airunner.domain.fleet import PoolReport
from airunner.domain.outcomes import single
from airunner.fleet.messages.housekeeping import HousekeepingMessage, format_housekeeping
from airunner.queues.messages import NewMessage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airunner.domain.clock import Clock
    from airunner.domain.fleet import HousekeepingRun, TaskType
    from airunner.fleet.aws.connection import FleetConnection


class FleetDesk:
    """Implements FleetOffice over a connection that others open and close."""

    def __init__(self, fleet: FleetConnection, clock: Clock) -> None:
        self._fleet = fleet
        self._clock = clock

    async def list_runs(self, limit: int) -> Sequence[HousekeepingRun]:
        """Return the last runs, newest first."""
        return await self._fleet.records.list_runs(limit)

    async def report(self, audits: int) -> PoolReport:
        """Return the pools, and so many of the last audits."""
        records = self._fleet.records
        return PoolReport(pools=await records.list_pools(), audits=await records.last_audits(audits))

    async def request_run(self, task: TaskType, *, dry_run: bool, limit: int) -> str:
        """Send the message of a task; return the slot of the run that it asks for."""
        message = HousekeepingMessage(
            task_type=task, timestamp=self._clock.now(), dry_run=dry_run, limit=limit
        )
        queue = await self._fleet.queue(FleetPart.HOUSEKEEPING)
        single(await queue.send([NewMessage(body=format_housekeeping(message))]))
        return message.slot
