"""Waiting for jobs, and giving back what nobody is there to take."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from airunner.domain.background import BackgroundTasks
from airunner.domain.clock import wait_until
from airunner.domain.errors import DeadlineExceeded, ResourceExhausted, Unavailable, error_text
from airunner.domain.retry import RetryPolicy, retry
from airunner.stores.records import AttemptKey, Release
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airunner.domain.clock import Clock
    from airunner.domain.job import Job
    from airunner.stores.base import JobStore
    from airunner.stores.records import Demand

_log = get_logger("airunner.dispatcher")

_HAND_BACK: Final = RetryPolicy(first_seconds=0.2, max_seconds=5.0)
_PASSING: Final = (Unavailable, DeadlineExceeded, ResourceExhausted)
_STOP_MS: Final = 5_000


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
        except BaseException:
            # Whatever went wrong, nobody is there for what the claim may still bring.
            if not claim.done() or not claim.exception():
                self._background_tasks.begin("retract", self._retract(demand, claim))
            raise
        finally:
            self._waiting.discard(demand)
        if not jobs:
            self._refuse_when_stopping()
        return jobs

    def hand_back(self, jobs: Sequence[Job]) -> None:
        """Give back claimed jobs that reached nobody."""
        for job in jobs:
            # Each by itself: one that cannot be written now holds up no other.
            self._background_tasks.begin(job.job_id, self._release(job))

    async def stop(self) -> None:
        """End all waiting, and finish handing back, within a few seconds: what is left lapses."""
        self._stopping = True
        for demand in list(self._waiting):
            await self._store.withdraw(demand)
        finishing = asyncio.ensure_future(self._background_tasks.finish())
        if not await wait_until(self._clock, self._clock.now() + _STOP_MS, finishing):
            self._background_tasks.cancel()
        await finishing

    async def _retract(self, demand: Demand, claim: asyncio.Future[Sequence[Job]]) -> None:
        if not claim.done():
            await self._store.withdraw(demand)
        self.hand_back(await claim)

    async def _release(self, job: Job) -> None:
        """Give a job back, however long the store cannot write, until it lapses anyway."""
        release = Release(key=AttemptKey(job.job_id, job.attempt, job.receipt), unstarted=True)
        await retry(
            _HAND_BACK,
            self._clock,
            lambda: self._store.release_job(release, self._clock.now()),
            retry_if=lambda error: isinstance(error, _PASSING),
            on_failure=lambda error, _: _log_failure(job.job_id, error),
            give_up_at=self._clock.monotonic() + job.life.visible_until - self._clock.now(),
        )

    def _refuse_when_stopping(self) -> None:
        if self._stopping:
            raise Unavailable("the server is shutting down")


def _log_failure(task: str, error: BaseException) -> None:
    _log.warning("dequeue.hand_back_failed", job_id=task, error=error_text(error))
