"""Purges jobs whose retention is over, with events and payloads: by the store's one purge, in portions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from airunner.fleet.records import ActionKind
from airunner.reading.instants import to_iso
from airunner.telemetry import fleet_metrics

if TYPE_CHECKING:
    from airunner.fleet.ports import OldJobs
    from airunner.fleet.task_run import TaskRun

_AT_ONCE: Final = 25
_MAX_CHANGES: Final = 100_000


class PurgedOldJobs:
    """Implements HousekeepingTask. What a run leaves, by its limit or its end, the next one takes up."""

    def __init__(self, jobs: OldJobs, *, retention_ms: int) -> None:
        self._jobs = jobs
        self._retention_ms = retention_ms

    async def run(self, run: TaskRun) -> None:
        """Purge what ended before the retention; in a dry run, count what a run would purge."""
        before, limit = run.now - self._retention_ms, run.limit(_MAX_CHANGES)
        why = f"they ended before {to_iso(before)}"
        await run.keep()
        if run.dry_run:
            await self._count(run, before, limit, why)
            return
        run.announce(run.plan(ActionKind.PURGED, f"up to {limit} jobs", why, ""))
        await self._purge(run, before, limit, why)

    async def _count(self, run: TaskRun, before: int, limit: int, why: str) -> None:
        """Tell of what would be purged. In one call: a second one would find the same jobs again."""
        found = await self._jobs.purge_jobs(before, limit=limit, dry_run=True)
        run.listed += found.jobs
        if not found.jobs:
            return
        # A store may have ended its count before the limit, since that took too long.
        is_cut = found.has_more and found.jobs < limit
        target = f"at least {found.jobs} jobs" if is_cut else f"{found.jobs} jobs"
        action = run.plan(ActionKind.PURGED, target, why, "there may be more" if found.has_more else "")
        run.announce(action)
        run.record(action)

    async def _purge(self, run: TaskRun, before: int, limit: int, why: str) -> None:
        purged, has_more = 0, True
        try:
            while has_more and purged < limit:
                await run.keep()
                portion = await self._jobs.purge_jobs(before, limit=min(_AT_ONCE, limit - purged))
                purged += portion.jobs
                has_more = portion.has_more
                fleet_metrics.jobs_archived.add(portion.jobs)
        finally:
            run.listed += purged
            if purged:
                run.record(run.plan(ActionKind.PURGED, f"{purged} jobs", why, ""))
