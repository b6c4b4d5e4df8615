"""The workers that call this server, and the jobs that they hold."""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from airunner.domain.answers import WorkerSeen
from airunner.domain.splitting import take_by_size

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from airunner.domain.job import Job
    from airunner.domain.requests import Abilities
    from airunner.stores.records import Demand

MAX_REMEMBERED: Final = 10_000
"""Names are whatever callers say, and each costs memory, and time whenever the workers are counted."""
_FORGOTTEN_AFTER_MS = 5 * 60 * 1000
# Beyond its visibility, in which its holder may still be heard of.
_LAPSED_FOR_MS = 60 * 1000
_MAX_LISTED_JOBS = 100
_MAX_LISTED_HANDLERS = 100
_MAX_LISTED_HANDLER_BYTES = 4 * 1024
_NOBODY = ("", 0, 0)


@dataclass(slots=True)
class _Worker:
    instance_id: str
    queues: tuple[str, ...]
    last_seen_at: int
    abilities: Abilities | None
    more_handlers: int
    # Each with the queue that it is of.
    job_ids: dict[str, str] = field(default_factory=dict)


class WorkerRegistry:
    """Remembers workers for five minutes, or as long as they hold jobs; so many, and no more.

    Of jobs it knows who holds them since when, also if the holder gave no name. A job that was finished on
    another server is forgotten when its visibility has passed without a heartbeat here.
    """

    def __init__(self) -> None:
        self._workers: dict[str, _Worker] = {}
        self._holders: dict[str, tuple[str, int, int]] = {}

    def requested(self, demand: Demand, abilities: Abilities | None, now: int) -> None:
        """Note that a worker asks for jobs, and what it says that it can do."""
        if not demand.worker_id:
            return
        # Those who called longest ago are the first, and are forgotten first.
        worker = self._workers.pop(demand.worker_id, None)
        if len(self._workers) >= MAX_REMEMBERED:
            self._forget_one()
        job_ids = worker.job_ids if worker else {}
        self._workers[demand.worker_id] = _Worker(
            demand.instance_id, demand.queues, now, *_bounded(abilities), job_ids
        )

    def took(self, worker_id: str, jobs: Collection[Job]) -> int:
        """Note that a worker got jobs; return how many of them another held and never released."""
        taken = {job.job_id: (worker_id, job.life.updated_at, job.life.visible_until) for job in jobs}
        lost = sum([self.left(job_id) > 0 for job_id in taken.keys() & self._holders.keys()])
        self._holders.update(taken)
        worker = self._workers.get(worker_id)
        if worker:
            worker.job_ids.update({job.job_id: job.queue for job in jobs})
        return lost

    def beat(self, job_id: str, now: int, visible_until: int = 0) -> None:
        """Note a sign of life of the holder of a job, which may have extended its visibility."""
        worker_id, since, until = self._holders.get(job_id, _NOBODY)
        if visible_until > until and since:
            self._holders[job_id] = (worker_id, since, visible_until)
        worker = self._workers.get(worker_id)
        if worker:
            worker.last_seen_at = now

    def forget_lapsed(self, now: int) -> None:
        """Let go of the jobs whose visibility is long over: whatever became of them happened elsewhere."""
        lapsed = [job_id for job_id, (_, _, until) in self._holders.items() if until + _LAPSED_FOR_MS < now]
        for job_id in lapsed:
            self.left(job_id)

    def left(self, job_id: str) -> int:
        """Note that nobody holds a job any more; return when it was claimed, 0 if that is not known."""
        worker_id, since, _ = self._holders.pop(job_id, _NOBODY)
        worker = self._workers.get(worker_id)
        if worker:
            worker.job_ids.pop(job_id, None)
        return since

    def list(
        self, now: int, queues: Collection[str] = (), *, after: str = "", limit: int
    ) -> Sequence[WorkerSeen]:
        """Return workers that called lately or hold jobs, by name, each with some jobs and handlers.

        The first so many whose names come after another. With `queues`, those that serve or hold something of
        these, and of each worker no more than that.
        """
        for worker_id, worker in list(self._workers.items()):
            if now - worker.last_seen_at > _FORGOTTEN_AFTER_MS and not worker.job_ids:
                del self._workers[worker_id]
        later = sorted(worker_id for worker_id in self._workers if worker_id > after)
        seen = (_seen(worker_id, self._workers[worker_id], queues) for worker_id in later)
        visible = (worker for worker in seen if not queues or worker.queues or worker.job_ids)
        return list(itertools.islice(visible, limit))

    def _forget_one(self) -> None:
        idle = (worker_id for worker_id, worker in self._workers.items() if not worker.job_ids)
        del self._workers[next(idle, next(iter(self._workers)))]


def _seen(worker_id: str, worker: _Worker, queues: Collection[str]) -> WorkerSeen:
    job_ids = (job_id for job_id, queue in worker.job_ids.items() if not queues or queue in queues)
    return WorkerSeen(
        worker_id=worker_id,
        instance_id=worker.instance_id,
        queues=tuple(queue for queue in worker.queues if not queues or queue in queues),
        last_seen_at=worker.last_seen_at,
        job_ids=tuple(itertools.islice(job_ids, _MAX_LISTED_JOBS)),
        abilities=worker.abilities,
        more_handlers=worker.more_handlers,
    )


def _bounded(abilities: Abilities | None) -> tuple[Abilities | None, int]:
    """Return what is kept of abilities, and how many handlers are not: there may be many workers."""
    if abilities is None:
        return None, 0
    first = heapq.nsmallest(_MAX_LISTED_HANDLERS, abilities.handlers)
    listed = take_by_size(first, lambda name: len(name.encode()), _MAX_LISTED_HANDLER_BYTES)
    return replace(abilities, handlers=tuple(listed)), len(abilities.handlers) - len(listed)
