"""Waiting for jobs, and giving back what nobody is there to take."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from airunner.domain.background import BackgroundTasks
from airunner.domain.clock import wait_until
from airunner.domain.errors import Unavailable, error_text
from airunner.stores.records import AttemptKey, Release

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airunner.domain.clock import Clock
    from airunner.domain.job import Job
    from airunner.stores.base import JobStore
    from airunner.stores.records import Demand

_log = structlog.get_logger("airunner.dispatcher")


class Dispatcher:
    """Sees every claim through: it is delivered, or it is handed back at no cost to the job's tries."""

    def __init__(self, store: JobStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._waiting: set[Demand] = set()
        self._background_tasks = BackgroundTasks(_log_failure)
        self._stopping = False

    @property
    def waiting(self) -> int:
        """How many calls wait for jobs."""
        return len(self._waiting)

    async def dequeue(self, demand: Demand, wait_seconds: int) -> Sequence[Job]:
        """Claim jobs, waiting at most so long for the first; a cancelled call hands back what it got."""
        self._refuse_when_stopping()
        claim = asyncio.ensure_future(self._store.dequeue_jobs(demand))
        self._waiting.add(demand)
        try:
            if demand.waits:
                await wait_until(self._clock, self._clock.now() + wait_seconds * 1000, claim)
                if not claim.done():
                    await self._store.withdraw(demand)
            jobs = await asyncio.shield(claim)
        except asyncio.CancelledError:
            self._background_tasks.begin("retract", self._retract(demand, claim))
            raise
        finally:
            self._waiting.discard(demand)
        if not jobs:
            self._refuse_when_stopping()
        return jobs

    def hand_back(self, jobs: Sequence[Job]) -> None:
        """Give back claimed jobs that reached nobody."""
        if jobs:
            self._background_tasks.begin("hand back", self._release(jobs))

    async def stop(self) -> None:
        """End all waiting, and finish handing back."""
        self._stopping = True
        for demand in list(self._waiting):
            await self._store.withdraw(demand)
        await self._background_tasks.finish()

    async def _retract(self, demand: Demand, claim: asyncio.Future[Sequence[Job]]) -> None:
        if not claim.done():
            await self._store.withdraw(demand)
        await self._release(await claim)

    async def _release(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            key = AttemptKey(job.job_id, job.attempt, job.receipt)
            try:
                await self._store.release_job(Release(key=key, unstarted=True), self._clock.now())
            except Exception as error:  # noqa: BLE001  the others are handed back; this one lapses in time
                _log.warning("dequeue.hand_back_failed", job_id=job.job_id, error=error_text(error))

    def _refuse_when_stopping(self) -> None:
        if self._stopping:
            raise Unavailable("the server is shutting down")


def _log_failure(_task: str, error: BaseException) -> None:
    """Say that a claim could not even be looked at; what it took lapses by itself."""
    _log.warning("dequeue.hand_back_failed", error=error_text(error))
