"""Upkeep of the store, and the watch over what it stands on."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from airunner import telemetry
from airunner.domain.errors import AirunnerError
from airunner.services import metrics
from airunner.services.periodic import Periodic
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from airunner.domain.clock import Clock
    from airunner.services.notifier import Notifier
    from airunner.services.worker_registry import WorkerRegistry
    from airunner.stores.abilities import RemoteParts
    from airunner.stores.base import JobStore
    from airunner.stores.records import Retention

_log = get_logger("airunner.maintenance")

_PARTS_SECONDS: Final = 1.0


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
        self._has_more = False

    def periodic(self) -> Periodic:
        """Return the loop of this. A turn is one step, so that a long pass is not taken for a stuck one."""
        return Periodic(
            "maintenance",
            self.step,
            clock=self._clock,
            interval_seconds=lambda: 0.0 if self._has_more else self._interval_seconds,
            failure_event="maintenance.failed",
        )

    async def run_once(self) -> None:
        """Run one whole pass, in as many bounded steps as it takes."""
        await self.step()
        while self._has_more:
            await self.step()

    async def step(self) -> None:
        """Run one bounded step."""
        # A step that fails is not repeated at once.
        self._has_more = False
        self._workers.forget_lapsed(self._clock.now())
        upkeep = await self._store.maintain(self._retention, self._clock.now())
        for job_id in upkeep.ended_jobs:
            self._workers.left(job_id)
            self._notifier.ring_job(job_id)
        await self._count_ends(upkeep.ended_jobs)
        # Not whenever something was done: where jobs always come of age, that would be always.
        self._has_more = upkeep.has_more
        if upkeep.ended_jobs or upkeep.purged_jobs or upkeep.purged_events:
            _log.info(
                "maintenance.pass",
                ended=len(upkeep.ended_jobs),
                purged_jobs=upkeep.purged_jobs,
                purged_events=upkeep.purged_events,
            )

    async def _count_ends(self, job_ids: Sequence[str]) -> None:
        """Look how jobs ended, which is rare enough to ask for each; what cannot be read is not counted."""
        for job_id in job_ids:
            with suppress(AirunnerError):
                life = await self._store.get_life(job_id)
                metrics.expired(life)
                self._notifier.changed(job_id, life)


class PartsWatch:
    """Asks the parts of a store in time.

    Each loop waits for its own answers only: one part that hangs must not keep another from being asked.
    """

    def __init__(self, parts: RemoteParts, clock: Clock) -> None:
        self._parts = parts
        self._clock = clock

    def loops(self) -> list[Periodic]:
        """Return the loop that asks the part which decides about jobs, and the one that asks all others."""
        return [
            self._periodic("store_wellness", self._parts.keep_well),
            self._periodic("store_parts", self.ask_next),
        ]

    async def ask_next(self) -> None:
        """Ask the next of the other parts, and show how all of them are."""
        await self._parts.ask_next()
        troubles = self._parts.troubles
        telemetry.store_part_up.show({(name,): float(not trouble) for name, trouble in troubles.items()})

    def _periodic(self, name: str, run_once: Callable[[], Awaitable[None]]) -> Periodic:
        return Periodic(
            name,
            run_once,
            clock=self._clock,
            interval_seconds=_PARTS_SECONDS,
            failure_event="parts.failed",
            at_once=True,
        )
