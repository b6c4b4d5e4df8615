"""Clients that use one stack all at once and write down what they see."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from airunner.client import AsyncClient, ConnectionState, JobQuery
from airunner.domain.errors import Unavailable
from airunner.domain.job import Job, JobParams
from airunner.testing.conditions import until
from tests.support.history import History, Watch, problems
from tests.support.processes import LIMIT_SECONDS, Stack

_TALK = str(Path(__file__).with_name("talk.py"))


class Crowd:
    """Submitters, watchers and readers; all of them end once there is nothing left to see."""

    def __init__(self, stack: Stack, client: AsyncClient, chance: random.Random) -> None:
        self.stack = stack
        self.client = client
        self.chance = chance
        self.history = History()
        self.patience_seconds = LIMIT_SECONDS
        self.accounts = stack.folder / "accounts"
        self.accounts.mkdir()
        self.events_seen = 0
        self.reconnections = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def talk(
        self, lines: int, pause: float = 0.0, *, hold_at: int = -1, hold_file: Path | None = None
    ) -> JobParams:
        """Return a job that prints; see talk.py."""
        seed = self.chance.randrange(2**32)
        hold = (str(hold_at), str(hold_file)) if hold_file else ()
        args = ("-I", "-S", _TALK, str(self.accounts), str(seed), str(lines), str(pause), *hold)
        return JobParams(command=sys.executable, args=args)

    async def submit(self, params: JobParams, *, watchers: int = 1) -> str:
        """Submit a job that is watched from its first moment."""
        job_id = (await self.client.enqueue(params)).job_id
        self.history.accept(job_id)
        for number in range(watchers):
            self.begin(self._watch(self.history.watch(f"watcher {number}", job_id)))
        return job_id

    async def keep_submitting(self, enough: asyncio.Event) -> None:
        """Submit jobs, a few at a time, until there are enough."""
        while not enough.is_set():
            jobs = [
                await self.submit(self._some_job(), watchers=self.chance.choice((0, 1, 1, 2)))
                for _ in range(3)
            ]
            await asyncio.gather(*map(self.end_of, jobs))

    async def keep_reading(self, enough: asyncio.Event) -> None:
        """Read jobs again and again, the ended ones too."""
        while not enough.is_set():
            await until(lambda: bool(self.history.accepted), limit_seconds=LIMIT_SECONDS)
            try:
                self.history.read(await self.client.get_job(self.chance.choice(self.history.accepted)))
            except Unavailable:
                continue

    async def end_of(self, job_id: str) -> Job:
        """Wait for the end of a job."""
        job = await self.client.wait_for_end(job_id, timeout_seconds=self.patience_seconds)
        self.history.read(job)
        return job

    def begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def process_of(self, job_id: str, attempt: int) -> int | None:
        """The pid of an attempt's process, None before it has begun."""
        file = self.accounts / f"{job_id}.{attempt}.pid"
        return int(file.read_text() or 0) or None if file.exists() else None

    async def finish(self) -> dict[str, Job]:
        """Wait until every job has ended and every watcher was told; check all that was seen."""
        for job_id in list(self.history.accepted):
            await self.end_of(job_id)
        async with asyncio.timeout(LIMIT_SECONDS):
            await asyncio.gather(*self._tasks)
        self.history.collect(self.accounts)
        jobs = await self.all_jobs()
        assert problems(self.history, jobs) == []
        assert sorted(jobs) == sorted(self.history.accepted)
        assert all(watch.ended for watch in self.history.watches)
        return jobs

    async def all_jobs(self) -> dict[str, Job]:
        """Every job that the server knows."""
        jobs: dict[str, Job] = {}
        cursor = ""
        while True:
            page = await self.client.list_jobs(JobQuery(page_size=500, cursor=cursor))
            jobs.update((job.job_id, job) for job in page.jobs)
            cursor = page.next_cursor
            if not cursor:
                return jobs

    def cancel(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _some_job(self) -> JobParams:
        kind = self.chance.random()
        if kind < 0.4:
            return self.talk(self.chance.randrange(20))
        if kind < 0.9:
            return self.talk(self.chance.randrange(10, 60), 0.02)
        return self.talk(60, 0.05)

    async def _watch(self, watch: Watch) -> None:
        async for event in self.client.monitor(watch.job_id, on_state=self._on_state):
            watch.events.append(event)
            self.events_seen += 1
        watch.ended = True

    def _on_state(self, state: ConnectionState, _: str) -> None:
        self.reconnections += state is ConnectionState.RECONNECTING


@asynccontextmanager
async def gathered_crowd(stack: Stack, seed: int) -> AsyncIterator[Crowd]:
    """Give a crowd; what it still does at the end is cancelled."""
    async with stack.client() as client:
        crowd = Crowd(stack, client, random.Random(seed))
        try:
            yield crowd
        finally:
            crowd.cancel()
