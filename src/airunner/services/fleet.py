"""The fleet's part of the AdminService: its runs, its pools, and wishes for a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from airunner.domain import limits
from airunner.domain.errors import FailedPrecondition, PermissionDenied
from airunner.services.caller import current_caller

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airunner.domain.fleet import HousekeepingRun, PoolReport, TaskType

DEFAULT_RUNS: Final = 20
MAX_RUNS: Final = 100
DEFAULT_AUDITS: Final = 24
MAX_AUDITS: Final = 168
MAX_CHANGES: Final = 1_000_000


class FleetOffice(Protocol):
    """What a fleet tells, and what it can be asked for."""

    async def list_runs(self, limit: int) -> Sequence[HousekeepingRun]:
        """Return the last runs, newest first."""

    async def report(self, audits: int) -> PoolReport:
        """Return the pools, and so many of the last audits."""

    async def request_run(self, task: TaskType, *, dry_run: bool, limit: int) -> str:
        """Send the message of a task; return the slot of the run that it asks for."""


class FleetService:
    """Calls about a fleet, not for keys that are bound to queues; a server without one says what to set."""

    def __init__(self) -> None:
        self._fleet: FleetOffice | None = None

    def attach(self, fleet: FleetOffice) -> None:
        """Let calls reach a fleet. Before the services are opened."""
        self._fleet = fleet

    async def list_runs(self, max_runs: int = 0) -> Sequence[HousekeepingRun]:
        """Return the last runs, newest first; zero is the default number."""
        limit = limits.in_range_or_default(max_runs, "max_runs", DEFAULT_RUNS, 1, MAX_RUNS)
        return await self._office.list_runs(limit)

    async def report(self, max_audits: int = 0) -> PoolReport:
        """Return the pools and the last audits; zero is the default number."""
        limit = limits.in_range_or_default(max_audits, "max_audits", DEFAULT_AUDITS, 1, MAX_AUDITS)
        return await self._office.report(limit)

    async def request_run(self, task: TaskType, *, dry_run: bool = False, limit: int = 0) -> str:
        """Ask for a run of a task, never with force; return its slot."""
        limits.check_range(limit, "limit", 0, MAX_CHANGES)
        return await self._office.request_run(task, dry_run=dry_run, limit=limit)

    @property
    def _office(self) -> FleetOffice:
        if current_caller.get().queues:
            raise PermissionDenied("this API key is bound to queues, but a fleet serves all queues")
        if self._fleet is None:
            raise FailedPrecondition("this server has no fleet: set fleet.table")
        return self._fleet
