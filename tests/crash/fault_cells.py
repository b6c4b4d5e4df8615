"""What clients do before, during and after a fault, and what they must find: a generator for each operation.

A cell yields twice: when the fault may begin, and when it may end. Until then a call may be refused, and only
in ways that say "again later"; afterwards it is repeated, and has to be answered as if nothing had been.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar, cast

from airunner.client import AsyncClient
from airunner.domain.answers import DequeuedJob
from airunner.domain.errors import AirunnerError, DeadlineExceeded, Unavailable
from airunner.domain.event import Event, Output
from airunner.domain.job import JobParams, JobResult, JobState, Outcome
from airunner.domain.retry import RetryPolicy
from airunner.services.composition import Services
from airunner.testing.clock import ManualClock
from airunner.testing.conditions import until
from airunner.testing.conformance.stores.backend import Api
from airunner.testing.factories import make_line, make_request, make_start
from tests.crash.faults import Fault
from tests.crash.witness import Witness
from tests.support.processes import LIMIT_SECONDS, Stack
from tests.support.scraping import Scrape, health, scrape

T = TypeVar("T")
Cell = Callable[["Rig"], AsyncGenerator[None, None]]

TOKEN_KEY: Final = "a-key-only-for-the-fault-matrix"
_ONCE = RetryPolicy(attempts=1)
_SOON = RetryPolicy(first_seconds=0.01, max_seconds=0.2)
# Beyond the steps of the clock.
_VISIBILITY_SECONDS = 7_200
_FILLING = JobParams(command="true", metadata={"filling": "x" * 20_000})
_LOOK_AGAIN_SECONDS = 0.05


class Rig:
    """One server, the fault that meets it, and clients of whom a witness keeps record.

    `api` asks once, so that it sees every refusal; `persistent` asks again, as real clients do.
    """

    def __init__(self, stack: Stack, fault: Fault, once: AsyncClient, persistent: AsyncClient) -> None:
        self.stack = stack
        self.fault = fault
        self.persistent = persistent
        self.witness = Witness(TOKEN_KEY.encode())
        # Of the whole, only the calls are used: the clock and the services are another process's.
        api = Api(jobs=once, events=once, clock=ManualClock(), services=cast("Services", None))
        self.api = self.witness.accompany(api, "the server")

    async def tried(self, call: Awaitable[T]) -> T | AirunnerError:
        """Return what a call answers under a fault: it may be refused, but only for now."""
        try:
            return await call
        except (Unavailable, DeadlineExceeded) as error:
            return error

    async def refused(self) -> None:
        """Return once the server cannot write any more: what it still has room for is used up."""
        while not isinstance(await self.tried(self.fill()), AirunnerError):
            pass

    async def fill(self) -> str:
        return await self.api.enqueue(make_request("filling", params=_FILLING))

    async def claim(self, queue: str, *, visibility_seconds: int = _VISIBILITY_SECONDS) -> DequeuedJob:
        """Have a job that nobody else can get, with one try."""
        await self.api.enqueue(make_request(queue, max_attempts=1))
        return await self.api.claim(queue, visibility_seconds=visibility_seconds)

    async def finish(self, queue: str, jobs: Sequence[str]) -> None:
        """Claim exactly these jobs, at once, and end them: none is in the hands of nobody."""
        taken: list[DequeuedJob] = []
        while len(taken) < len(jobs) and (more := await self.api.dequeue(queue, max_jobs=100)):
            taken += more
        assert sorted(held.job.job_id for held in taken) == sorted(jobs)
        for held in taken:
            await self.complete(held)

    async def complete(self, held: DequeuedJob, *events: Event) -> None:
        assert await self.api.complete(held, result_of(*events)) is JobState.COMPLETED

    async def watch(self, job_id: str, watcher: str) -> None:
        """Watch a job to its end, over all connections that it takes."""
        watch = self.witness.history.watch(watcher, job_id)
        async for event in self.persistent.monitor(job_id):
            watch.events.append(event)
        watch.ended = True

    async def until_waiting(self, count: int) -> None:
        """Return once so many dequeues wait."""
        async with asyncio.timeout(LIMIT_SECONDS):
            while (await self.metrics()).value("airunner_dequeues_waiting") < count:
                await asyncio.sleep(_LOOK_AGAIN_SECONDS)

    async def metrics(self) -> Scrape:
        return await asyncio.to_thread(scrape, self.stack.url)

    async def judge(self) -> None:
        """Fail unless all that anybody was told is true, now that every job has ended."""
        # Some of these may be there though nobody was told so.
        while filled := await self.api.dequeue("filling", max_jobs=100):
            for held in filled:
                await self.complete(held)
        assert await self.witness.judge(self.api) == []
        assert (await asyncio.to_thread(health, self.stack.url))["status"] == "ok"


async def enqueue(rig: Rig) -> AsyncGenerator[None, None]:
    """Whether or not it was answered: repeated, there is one job for each request."""
    requests = [make_request("enqueue") for _ in range(5)]
    yield
    told = await asyncio.gather(*(rig.tried(rig.api.enqueue(request)) for request in requests))
    yield
    jobs = [await rig.api.enqueue(request) for request in requests]
    for before, after in zip(told, jobs, strict=True):
        assert isinstance(before, AirunnerError) or before == after
    await rig.finish("enqueue", jobs)


async def waiting_dequeue(rig: Rig) -> AsyncGenerator[None, None]:
    """Who waited, in vain or not, or went, leaves no ghost that takes the jobs that come later."""
    waiting = [asyncio.create_task(rig.tried(_dequeue(rig, "ghosts", 1))) for _ in range(5)]
    vanishing = [asyncio.create_task(_dequeue(rig, "ghosts", 20)) for _ in range(2)]
    ready_to_wait = asyncio.create_task(rig.tried(_dequeue(rig, "patience", 20)))
    await rig.until_waiting(3)
    yield
    for task in vanishing:
        task.cancel()
    while (await asyncio.wait(waiting, timeout=_LOOK_AGAIN_SECONDS))[1]:
        # Writes, which may fail, share their commits with the ends of these waits.
        await rig.tried(rig.fill())
    assert all(not task.result() or isinstance(task.result(), AirunnerError) for task in waiting)
    await asyncio.wait(vanishing)
    yield
    await rig.finish("ghosts", [await rig.api.enqueue(queue="ghosts") for _ in range(10)])
    job_id = await rig.api.enqueue(queue="patience")
    taken = await ready_to_wait
    if isinstance(taken, AirunnerError) or not taken:
        # Refused, or the fault lasted longer than it was ready to wait.
        await rig.finish("patience", [job_id])
    else:
        assert [held.job.job_id for held in taken] == [job_id]
        await rig.complete(taken[0])


async def publish(rig: Rig) -> AsyncGenerator[None, None]:
    """What was published once is there once, however often it was said."""
    held = await rig.claim("publish")
    await rig.api.publish(held, make_start())
    lines = [make_line(number) for number in range(2, 12)]
    yield
    await asyncio.gather(*(rig.tried(_published(rig, held, lines[:count])) for count in (1, 3, 5)))
    yield
    assert (await rig.api.publish(held, *lines)).next_sequence == 12
    await rig.complete(held, make_start(), *lines)


async def complete(rig: Rig) -> AsyncGenerator[None, None]:
    """A completion may be repeated until it is answered, and is the one that counts."""
    held = await rig.claim("complete")
    events = (make_start(), make_line(2), make_line(3))
    result = result_of(*events)
    yield
    told = await rig.tried(rig.api.complete(held, result, *events))
    assert isinstance(told, AirunnerError) or told is JobState.COMPLETED
    yield
    assert await rig.api.complete(held, result, *events) is JobState.COMPLETED


async def stream(rig: Rig) -> AsyncGenerator[None, None]:
    """Who watched before and who begins meanwhile see all of it once."""
    held = await rig.claim("stream")
    job_id = held.job.job_id
    await rig.api.publish(held, make_start())
    watching = [asyncio.create_task(rig.watch(job_id, "early"))]
    await until(lambda: any(watch.events for watch in rig.witness.history.watches if watch.job_id == job_id))
    yield
    watching.append(asyncio.create_task(rig.watch(job_id, "late")))
    await rig.tried(_published(rig, held, [make_line(2)]))
    yield
    await rig.api.publish(held, make_line(2), make_line(3))
    await rig.complete(held, make_start(), make_line(2), make_line(3))
    async with asyncio.timeout(LIMIT_SECONDS):
        await asyncio.gather(*watching)


async def upkeep(rig: Rig) -> AsyncGenerator[None, None]:
    """Passes go on: what lapsed before, and what lapses after, is ended as lost."""
    before = await _forgotten(rig)
    yield
    yield
    for job_id in (before, await _forgotten(rig)):
        job = await rig.persistent.wait_for_end(job_id, timeout_seconds=LIMIT_SECONDS)
        assert job.result
        assert job.result.outcome is Outcome.LOST
    assert 0 <= (await rig.metrics()).value("airunner_loop_last_success_age_seconds", loop="maintenance") < 10


CELLS: Final[dict[str, Cell]] = {
    "enqueue": enqueue,
    "waiting dequeue": waiting_dequeue,
    "publish": publish,
    "complete": complete,
    "stream": stream,
    "upkeep": upkeep,
}
"""Every operation but the shutdown, which ends the server; see test_fault_matrix."""


def result_of(*events: Event) -> JobResult:
    """Return the success of a process that wrote these events."""
    digest = hashlib.sha256(b"".join(event.data.output for event in events if isinstance(event.data, Output)))
    return JobResult(
        success=True, outcome=Outcome.SUCCESS, final_sequence=len(events), output_sha256=digest.digest()
    )


def once(url: str) -> AsyncClient:
    return AsyncClient(url, retry=_ONCE, timeout_seconds=LIMIT_SECONDS)


def persistent(url: str) -> AsyncClient:
    return AsyncClient(url, retry=_SOON, timeout_seconds=LIMIT_SECONDS)


async def _forgotten(rig: Rig) -> str:
    """Return a job that was begun, and that nobody speaks of any more."""
    held = await rig.claim("upkeep", visibility_seconds=1)
    await rig.api.publish(held, make_start())
    return held.job.job_id


async def _dequeue(rig: Rig, queue: str, wait_seconds: int) -> Sequence[DequeuedJob]:
    return await rig.api.dequeue(
        queue, max_jobs=100, wait_seconds=wait_seconds, visibility_seconds=_VISIBILITY_SECONDS
    )


async def _published(rig: Rig, held: DequeuedJob, events: Sequence[Event]) -> Any:
    return await rig.api.publish(held, *events)
