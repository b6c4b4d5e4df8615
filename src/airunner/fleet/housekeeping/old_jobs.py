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
        """Purge what ended before the retention; in a dry run, count the first portion of it."""
        before = run.now - self._retention_ms
        left, purged = run.limit(_MAX_CHANGES), 0
        has_more = True
        why = f"they ended before {to_iso(before)}"
        run.announce(run.plan(ActionKind.PURGED, f"up to {left} jobs", why, ""))
        try:
            while has_more and left > 0:
                await run.keep()
                portion = await self._jobs.purge_jobs(before, limit=min(_AT_ONCE, left), dry_run=run.dry_run)
                purged += portion.jobs
                left -= portion.jobs
                # A dry run would find the same ones again and again.
                has_more = portion.has_more and not run.dry_run
                if not run.dry_run:
                    fleet_metrics.jobs_archived.add(portion.jobs)
        finally:
            run.listed += purged
            if purged:
                run.record(run.plan(ActionKind.PURGED, f"{purged} jobs", why, ""))
