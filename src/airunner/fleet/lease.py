"""One run of a task across replicas: a lease that is renewed as the run goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from airunner.domain.errors import FailedPrecondition

if TYPE_CHECKING:
    from airunner.domain.clock import Clock
    from airunner.fleet.messages.housekeeping import TaskType
    from airunner.fleet.ports import FleetRecords

LEASE_MS: Final = 120_000
"""How long a replica that died keeps others from running its task."""
_RENEW_AFTER_MS: Final = LEASE_MS // 3


class LeaseLost(FailedPrecondition):
    """Another replica runs this task by now."""


class LeaseTaken(FailedPrecondition):
    """Another replica runs this task."""

    def __init__(self, holder: str) -> None:
        super().__init__(f"{holder} is running this task")
        self.holder = holder


class TaskLease:
    """The right to run a task. A run calls `keep` between its steps, and before each that changes something.

    Nothing runs beside it: a run that hangs in one call for longer than the lease loses it, and learns that
    before its next step.
    """

    def __init__(self, records: FleetRecords, clock: Clock, task: TaskType, holder: str) -> None:
        self._records = records
        self._clock = clock
        self._task = task
        self._holder = holder
        self._renewed_at = 0

    async def take(self) -> None:
        """Take the lease, or raise LeaseTaken. It is free once its holder left it or let it expire."""
        self._renewed_at = self._clock.monotonic()
        now = self._clock.now()
        holder = await self._records.take_lease(self._task, self._holder, now, now + LEASE_MS)
        if holder != self._holder:
            raise LeaseTaken(holder)

    async def keep(self) -> None:
        """Renew the lease if a third of it is over; raise LeaseLost if it is another's by now."""
        begun_at = self._clock.monotonic()
        if begun_at < self._renewed_at + _RENEW_AFTER_MS:
            return
        if not await self._records.extend_lease(self._task, self._holder, self._clock.now() + LEASE_MS):
            raise LeaseLost
        self._renewed_at = begun_at

    async def leave(self) -> None:
        """Give the lease back."""
        await self._records.leave_lease(self._task, self._holder)
