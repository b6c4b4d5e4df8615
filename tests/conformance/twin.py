"""Two stores that are asked the same: the model, and the one under test. Their answers must be equal."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from airunner.domain import lifecycle
from airunner.domain.answers import DequeuedJob, Enqueued
from airunner.domain.errors import AirunnerError, SequenceMismatch
from airunner.domain.event import Event
from airunner.domain.job import Job, JobState
from airunner.domain.listing import JobPage
from airunner.services.composition import ServiceRules
from airunner.stores.memory import MemoryStore
from airunner.stores.sqlite import SqliteStore
from airunner.testing.clock import ManualClock
from airunner.testing.conditions import until
from airunner.testing.conformance.stores.backend import Api
from airunner.testing.factories import NEVER_SECONDS
from tests.conformance.conftest import Reach, in_process

RULES = ServiceRules(maintenance_interval_seconds=NEVER_SECONDS)
MEMORY_FOLDER = Path("/dev/shm")  # noqa: S108  a folder of our own is made in it

Call: TypeAlias = Callable[[Api], Awaitable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """The same thing, as each of the two names it."""

    model: Any
    subject: Any


class Twin:
    """The memory store and a SQLite store on one clock, and what both were asked."""

    def __init__(self, reach: Reach) -> None:
        self._runner = asyncio.Runner()
        self._reach = reach
        self._folder = Path(tempfile.mkdtemp(dir=MEMORY_FOLDER if MEMORY_FOLDER.is_dir() else None))
        self._open = AsyncExitStack()
        # The names that the store under test gave, and those of the model for the same.
        self._names: dict[str, str] = {}
        self.clock = ManualClock()
        self.memory = self.make_memory()
        self.jobs: list[Pair] = []
        self.model, self.subject = self._runner.run(self._enter())

    def close(self) -> None:
        self._runner.run(self._open.aclose())
        self._runner.close()
        shutil.rmtree(self._folder)

    def run(self, work: Awaitable[Any]) -> Any:
        async def awaited() -> Any:
            return await work

        return self._runner.run(awaited())

    def ask(self, model: Call, subject: Call | None = None) -> Pair:
        """Ask both, compare what they say, and return it."""
        return self.run(self.ask_async(model, subject or model))  # type: ignore[no-any-return]  # run is untyped

    async def ask_async(self, model: Call, subject: Call) -> Pair:
        expected = await answer(model(self.model))
        given = await answer(subject(self.subject))
        self.learn(expected, given)
        self.compare(expected, given)
        return Pair(model=expected, subject=given)

    def learn(self, expected: Any, given: Any) -> None:
        """Remember which job of the one is which of the other."""
        pairs = (
            zip(expected, given, strict=False) if isinstance(expected, list | tuple) else [(expected, given)]
        )
        for mine, theirs in pairs:
            if isinstance(mine, Enqueued | Job) and isinstance(theirs, Enqueued | Job):
                if theirs.job_id not in self._names:
                    self.jobs.append(Pair(model=mine.job_id, subject=theirs.job_id))
                self._names.setdefault(theirs.job_id, mine.job_id)

    def compare(self, expected: Any, given: Any) -> None:
        assert self._plain(given) == self._plain(expected)

    def restart(self) -> None:
        """Close the store under test and open it again; the model's holders get the same grace."""
        for job in list(self.memory._jobs.values()):
            if job.state is JobState.RUNNING:
                self.memory._save(job, lifecycle.survive_downtime(job.life, now=self.clock.now()))
        self.reopen()

    def reopen(self) -> None:
        self._runner.run(self._open.aclose())
        self._open = AsyncExitStack()
        self.model, self.subject = self._runner.run(self._enter())

    def make_memory(self) -> MemoryStore:
        return MemoryStore(self.clock)

    async def waited(self, call: Call, meanwhile: Callable[[], Awaitable[None]]) -> Pair | None:
        """Let both wait for something, do something, and compare whether it was what they waited for."""
        tasks = [asyncio.ensure_future(call(api)) for api in (self.model, self.subject)]
        apis = (self.model, self.subject)
        await until(lambda: all(api.services.dispatcher.waiting for api in apis))
        await meanwhile()
        await asyncio.sleep(0)
        if tasks[0].done() or tasks[1].done():
            mine, theirs = await asyncio.gather(*tasks)
            self.compare(mine, theirs)
            return Pair(model=mine, subject=theirs)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await until(lambda: not any(api.services.dispatcher.waiting for api in apis))
        return None

    async def _enter(self) -> tuple[Api, Api]:
        model = await self._open.enter_async_context(in_process(self.memory, self.clock, RULES))
        store = SqliteStore(self._folder, self.clock)
        return model, await self._open.enter_async_context(self._reach(store, self.clock, RULES))

    def _plain(self, value: Any) -> Any:
        """Return an answer without what the two may name differently, or the wire does not tell."""
        match value:
            case Job():
                life = replace(value.life, completed_by=0, finished_at=0)
                return replace(
                    value,
                    job_id=self._name(value.job_id),
                    retried_from=self._name(value.retried_from),
                    principal="",
                    life=life,
                )
            case Enqueued():
                return replace(value, job_id=self._name(value.job_id))
            case DequeuedJob():
                return self._plain(value.job)
            case JobPage():
                return [self._plain(value.jobs), value.last_page, bool(value.next_cursor)]
            case SequenceMismatch():
                return (SequenceMismatch, value.expected)
            case AirunnerError():
                return verdict(value)
            case Event() | str():
                return value
            case Sequence():
                return [self._plain(item) for item in value]
        return value

    def _name(self, job_id: str) -> str:
        return self._names.get(job_id, job_id)


async def answer(call: Awaitable[Any]) -> Any:
    """Return what a call answers, an error included."""
    try:
        return await call
    except AirunnerError as error:
        return error


def verdict(error: AirunnerError) -> type:
    """Return the class of an error as the contract tells it apart."""
    lineage = type(error).__mro__
    return lineage[lineage.index(AirunnerError) - 1]
