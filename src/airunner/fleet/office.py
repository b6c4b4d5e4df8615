"""What a server tells of a fleet, and asks of it, by its records and queues: no machines, no parameters."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from airunner.config import FleetPart
from airunner.domain.fleet import PoolReport
from airunner.domain.outcomes import single
from airunner.fleet.messages.housekeeping import HousekeepingMessage, format_housekeeping
from airunner.queues.messages import NewMessage

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from airunner.domain.clock import Clock
    from airunner.domain.fleet import HousekeepingRun, TaskType
    from airunner.fleet.aws.connection import FleetConnection


MAX_LISTED_ACTIONS: Final = 4_000
"""How many actions one answer tells of: it stays well below what a client takes."""


class FleetDesk:
    """Implements FleetOffice over a connection that others open and close."""

    def __init__(self, fleet: FleetConnection, clock: Clock) -> None:
        self._fleet = fleet
        self._clock = clock

    async def list_runs(self, limit: int) -> Sequence[HousekeepingRun]:
        """Return the last runs, newest first; of all their actions a bounded number, of the first ones."""
        return list(_bounded(await self._fleet.records.list_runs(limit)))

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


def _bounded(runs: Sequence[HousekeepingRun]) -> Iterator[HousekeepingRun]:
    left = MAX_LISTED_ACTIONS
    for run in runs:
        shown = run.actions[:left]
        left -= len(shown)
        left_out = run.actions_left_out + len(run.actions) - len(shown)
        yield replace(run, actions=shown, actions_left_out=left_out)
