"""Upkeep of the store, again and again."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import structlog

from airunner.domain.errors import AirunnerError, NotFound
from airunner.services import metrics as counting
from airunner.services.notifier import holder_bell, job_bell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airunner.domain.clock import Clock
    from airunner.services.notifier import Notifier
    from airunner.services.worker_registry import WorkerRegistry
    from airunner.stores.base import JobStore
    from airunner.stores.records import Retention

_PASSES_MISSED = 4
_log = structlog.get_logger("airunner.maintenance")


class Maintenance:
    """Ends lost jobs and purges old ones; whoever watches them is told."""

    def __init__(
        self,
        *,
        store: JobStore,
        clock: Clock,
        notifier: Notifier,
        workers: WorkerRegistry,
        retention: Retention,
        interval_seconds: float,
    ) -> None:
        self._store = store
        self._clock = clock
        self._notifier = notifier
        self._workers = workers
        self._retention = retention
        self._interval_seconds = interval_seconds
        self._last_pass_at = clock.now()

    @property
    def alive(self) -> bool:
        """Whether passes come as often as they should, give or take a few."""
        return self._clock.now() - self._last_pass_at <= self._interval_seconds * 1000 * _PASSES_MISSED

    async def run(self) -> None:
        """Go on until cancelled; a pass that fails is tried again with the next."""
        while True:
            await self._clock.sleep(self._interval_seconds)
            try:
                await self.run_once()
            except AirunnerError as error:
                _log.warning("maintenance.failed", error=error.text)

    async def run_once(self) -> None:
        """One whole pass, in as many bounded steps as it takes."""
        self._workers.forget_lapsed(self._clock.now())
        busy = True
        while busy:
            upkeep = await self._store.maintain(self._retention, self._clock.now())
            for job_id in upkeep.ended_jobs:
                self._workers.left(job_id)
                self._notifier.ring(job_bell(job_id))
                self._notifier.ring(holder_bell(job_id))
            await self._count_ends(upkeep.ended_jobs)
            busy = bool(upkeep.ended_jobs or upkeep.purged_jobs or upkeep.purged_events)
            if busy:
                _log.info(
                    "maintenance.pass",
                    ended=len(upkeep.ended_jobs),
                    purged_jobs=upkeep.purged_jobs,
                    purged_events=upkeep.purged_events,
                )
        self._last_pass_at = self._clock.now()

    async def _count_ends(self, job_ids: Sequence[str]) -> None:
        """Look how jobs ended; this is rare enough to ask for each."""
        for job_id in job_ids:
            with suppress(NotFound):
                counting.expired((await self._store.get_job(job_id)).life)
