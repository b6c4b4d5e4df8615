"""A store in memory that several servers share: what they learn of each other, they have to ask for."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from airunner.domain.clock import Clock
from airunner.domain.errors import AirunnerError, JobNotFound
from airunner.domain.lifecycle import Lifecycle
from airunner.stores.abilities import SharedState
from airunner.stores.memory import MemoryStore
from airunner.stores.records import EventPage, EventQuery, JobMark


class SharedMemoryStore(MemoryStore):
    """Counts what is read. `failure` is raised by what servers ask of each other."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.marks_read: list[str] = []
        self.lives_read = 0
        self.pages_read = 0
        self.noted: list[str] = []
        self.failure: AirunnerError | None = None

    @property
    def shared(self) -> SharedState:  # type: ignore[override]  # others have none
        return self

    async def open(self) -> None:
        """Running jobs keep their visibility: other servers were there for them."""

    async def read_marks(self, job_ids: Sequence[str]) -> Mapping[str, JobMark]:
        self.marks_read += job_ids
        if self.failure:
            raise self.failure
        found = {}
        for job_id in job_ids:
            try:
                found[job_id] = JobMark.of(await super().get_life(job_id))
            except JobNotFound:
                continue
        return found

    async def note_watched(self, job_ids: Sequence[str], until: int) -> Mapping[str, Lifecycle]:
        if self.failure:
            raise self.failure
        self.noted += job_ids
        for job_id in job_ids:
            job = self._jobs[job_id]
            self._jobs[job_id] = replace(job, life=replace(job.life, watched_until=until))
        return {job_id: self._jobs[job_id].life for job_id in job_ids}

    async def get_life(self, job_id: str, *, queues: Collection[str] = ()) -> Lifecycle:
        self.lives_read += 1
        return await super().get_life(job_id, queues=queues)

    async def read_events(self, query: EventQuery) -> EventPage:
        self.pages_read += 1
        return await super().read_events(query)
