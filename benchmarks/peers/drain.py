"""One drain: a contender's worker does all jobs of a queue, with everything it needs in processes of its own.

All jobs are enqueued first. Time and CPU begin with the first call of a handler (see tally). A peer is done
when its handler is called for the last time: that it has still to acknowledge is in its favour. airunner is
done when its server says that every job is COMPLETED, which means on disk. CPU is that of the server, Redis
included, and of all processes of the workers. No process is pinned to a core.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from airunner.codec.gen.job.v1 import job_pb2 as pb
from airunner.domain.limits import MAX_PAGE_SIZE
from benchmarks.cpu import cpu_seconds
from benchmarks.harness import ROOT, Service, folder, running, server
from benchmarks.peers.contenders import ENVIRONMENT, Contender, Storage, Way
from benchmarks.peers.processes import tally
from benchmarks.peers.processes.enqueue import SERVER_VARIABLE
from benchmarks.peers.processes.jobs import JOB_VARIABLE
from benchmarks.peers.processes.tally import FOLDER_VARIABLE, Tally
from benchmarks.peers.provision import ALWAYS_ON_DISK, redis
from benchmarks.peers.turns import Sample

CALLERS = 16
_LIMIT_SECONDS = 90.0
_GLANCE_SECONDS = 0.005


@dataclass(frozen=True, slots=True)
class Store:
    """Where the jobs are, what the contender's processes are told of it, and whose CPU counts."""

    directory: Path
    environment: Mapping[str, str]
    pids: tuple[int, ...] = ()
    service: Service | None = None


async def drain(
    contender: Contender, way: Way, kind: str, jobs: int, redis_options: tuple[str, ...] = ALWAYS_ON_DISK
) -> Sample:
    """Enqueue jobs of a kind, then let the contender's worker do them in one of its ways."""
    async with store_of(contender, kind, redis_options) as store:
        await enqueue(contender, store, jobs, CALLERS)
        with workers(way, store) as processes:
            await until_begun(store, processes, 1)
            meter = SessionsMeter(store.pids, [process.pid for process in processes])
            noted = await until_begun(store, processes, jobs)
            ended = await _until_completed(store.service) if store.service else noted.latest
            cpu = meter.spent()
        if store.service:
            await _check_completed(store.service, jobs)
    return Sample(jobs, ended - noted.first, cpu)


@asynccontextmanager
async def store_of(
    contender: Contender, kind: str, redis_options: tuple[str, ...] = ALWAYS_ON_DISK
) -> AsyncIterator[Store]:
    """Start what a contender keeps its jobs in."""
    await asyncio.to_thread(contender.install)
    with folder() as directory:
        told = {**ENVIRONMENT, JOB_VARIABLE: kind, FOLDER_VARIABLE: str(directory)}
        if contender.storage is Storage.SERVER:
            async with server(own_core=False) as service:
                told |= {"BENCH_AIRUNNER": service.url, "AIRUNNER_SERVER": service.url}
                yield Store(directory, {**told, SERVER_VARIABLE: str(service.pid)}, (service.pid,), service)
        elif contender.storage is Storage.REDIS:
            with redis(*redis_options) as running_redis:
                told |= {"BENCH_REDIS": running_redis.url, SERVER_VARIABLE: str(running_redis.pid)}
                yield Store(directory, told, (running_redis.pid,))
        else:
            yield Store(directory, {**told, "BENCH_DATABASE": str(directory / "peer.db")})


async def enqueue(
    contender: Contender, store: Store, jobs: int, callers: int, gap_seconds: float = 0
) -> Sample:
    """Enqueue so many jobs, one a call; return what that cost the client and the server."""
    numbers = map(str, (jobs, callers, *([gap_seconds] if gap_seconds else [])))
    spent = await answer_of((*contender.enqueue, *numbers), store)
    return Sample(spent["calls"], spent["seconds"], spent["cpu"])


async def answer_of(command: Sequence[str], store: Store) -> dict[str, float]:
    """Run a program of a contender; return what its last line says."""
    done = await asyncio.to_thread(
        subprocess.run,
        command,
        cwd=ROOT,
        env={**os.environ, **store.environment},
        stdout=subprocess.PIPE,
        check=True,
        timeout=_LIMIT_SECONDS,
    )
    answer: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return answer


@contextmanager
def workers(way: Way, store: Store) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Run a contender's workers while the block runs."""
    environment = {**store.environment, **way.environment}
    with ExitStack() as stack:
        yield [stack.enter_context(running(*way.command, environment=environment)) for _ in range(way.copies)]


async def until_begun(store: Store, processes: Sequence[subprocess.Popen[bytes]], jobs: int) -> Tally:
    """Wait until the workers have begun so many jobs; return what they noted."""
    limit = time.monotonic() + _LIMIT_SECONDS
    while (noted := tally.read(store.directory)).jobs < jobs:
        codes = [process.poll() for process in processes]
        if any(code is not None for code in codes) or time.monotonic() > limit:
            raise RuntimeError(f"the worker began {noted.jobs} of {jobs} jobs; exit codes: {codes}")
        await asyncio.sleep(_GLANCE_SECONDS)
    return tally.read(store.directory)


class SessionsMeter:
    """The CPU, from its making on, of processes and of all that belong to the sessions of others."""

    def __init__(self, pids: Sequence[int], sessions: Sequence[int]) -> None:
        self._pids, self._sessions = pids, set(sessions)
        self._before = self._now()

    def spent(self) -> float:
        """Return the CPU seconds since then."""
        return sum(now - self._before.get(pid, 0) for pid, now in self._now().items())

    def _now(self) -> dict[int, float]:
        spent = {}
        for pid in (*self._pids, *_members(self._sessions)):
            # One that has ended meanwhile is not among those that work.
            with suppress(OSError):
                spent[pid] = cpu_seconds(pid)
        return spent


async def _until_completed(service: Service) -> float:
    """Return when the server said that no job is queued or running."""
    limit = time.monotonic() + _LIMIT_SECONDS
    while time.monotonic() < limit:
        (queue,) = (await service.jobs.list_queues(pb.ListQueuesRequest())).queues
        if not queue.scheduled and not queue.running:
            return time.monotonic()
    raise RuntimeError("jobs are still queued or running long after the last one was begun")


async def _check_completed(service: Service, jobs: int) -> None:
    completed, cursor = 0, ""
    while True:
        request = pb.ListJobsRequest(state=pb.JOB_STATE_COMPLETED, page_size=MAX_PAGE_SIZE, cursor=cursor)
        page = await service.jobs.list_jobs(request)
        completed += len(page.jobs)
        cursor = page.next_cursor
        if not cursor:
            break
    if completed != jobs:
        raise RuntimeError(f"{completed} of {jobs} jobs are COMPLETED")


def _members(sessions: set[int]) -> list[int]:
    members = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # The name, in parentheses, may have any character; the session is the fourth number after it.
            session = int(file.read_text().rpartition(")")[2].split()[3])
            if session in sessions:
                members.append(int(file.parent.name))
    return members
