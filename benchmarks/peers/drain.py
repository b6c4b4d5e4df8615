"""Jobs that do nothing, drained by one worker process: airunner beside its peers, in turns.

Everybody finds all jobs enqueued, and is timed from the first call of its handler on (see tally). A peer is
done when its handler is called for the last time: that it has still to acknowledge is in its favour. We are
done when the server says that every job is COMPLETED, which means on disk.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from airunner.codec.gen.job.v1 import job_pb2 as pb
from airunner.codec.jobs import params_to_pb
from airunner.domain.job import JobParams
from airunner.domain.limits import MAX_PAGE_SIZE
from benchmarks.harness import ROOT, ROUNDS, Row, Service, folder, running, server, worker
from benchmarks.peers.contenders import AIRUNNER_HANDLERS, ENVIRONMENT, PEERS, Peer
from benchmarks.peers.provision import ALWAYS_ON_DISK, AS_IT_COMES, Missing, redis
from benchmarks.peers.tally import FILE_VARIABLE, JOBS_VARIABLE

JOBS = 10_000
_QUEUE = "default"
_TALLY = "tally.json"
_LIMIT_SECONDS = 300.0


@dataclass(slots=True)
class Contest:
    """A peer on one kind of store, and its rounds; or why there are none."""

    peer: Peer
    store: str
    redis_options: tuple[str, ...] = AS_IT_COMES
    rates: list[float] = field(default_factory=list)
    missing: str = ""


async def run() -> list[Row]:
    """Let everybody drain in each round, so that a disturbance hits all."""
    contests = [contest for peer in PEERS for contest in _contests(peer)]
    ours = []
    for number in range(ROUNDS):
        ours.append(await _drain_airunner(JOBS))
        for contest in contests:
            await asyncio.to_thread(_play, contest, JOBS)
        _tell_round(number, ours, contests)
    return [row_of(contest, max(ours)) for contest in contests]


def row_of(contest: Contest, ours: float) -> Row:
    """Return the row of a contest, beside our own best rate."""
    peer = contest.peer
    name = f"no-op jobs drained, beside {peer.name} on {contest.store}"
    goal = f">= {peer.goal:.0f}" if peer.goal > 1 else "> 1"
    if contest.missing:
        return Row(name=name, measured=f"not run: {contest.missing}", goal=goal, met=False)
    theirs = max(contest.rates)
    ratio = ours / theirs
    return Row(
        name=name,
        measured=f"{ours:,.0f} jobs/s",
        limit=f"{theirs:,.0f} jobs/s ({peer.how})",
        ratio=ratio,
        goal=goal,
        met=ratio >= peer.goal if peer.goal > 1 else ratio > 1,
    )


def _tell_round(number: int, ours: list[float], contests: list[Contest]) -> None:
    """Say on standard error what this round gave, so that no round is hidden behind the best."""
    rates = [f"airunner {ours[-1]:,.0f}"]
    rates += [
        f"{contest.peer.name} on {contest.store} {contest.rates[-1]:,.0f}"
        for contest in contests
        if contest.rates
    ]
    print(f"drain, round {number + 1} of {ROUNDS}, jobs/s: {'; '.join(rates)}", file=sys.stderr, flush=True)


def _contests(peer: Peer) -> list[Contest]:
    if not peer.on_redis:
        return [Contest(peer, "SQLite")]
    return [
        Contest(peer, "Redis"),
        Contest(peer, "Redis, appendfsync always", redis_options=ALWAYS_ON_DISK),
    ]


def _play(contest: Contest, jobs: int) -> None:
    if contest.missing:
        return
    try:
        contest.peer.install()
        with _store(contest) as url:
            contest.rates.append(_drain(contest.peer, {"BENCH_REDIS": url}, jobs))
    except Missing as missing:
        contest.missing = str(missing)


def _store(contest: Contest) -> AbstractContextManager[str]:
    return redis(*contest.redis_options) if contest.peer.on_redis else nullcontext("")


def _drain(peer: Peer, environment: Mapping[str, str], jobs: int) -> float:
    with folder() as directory:
        told = {
            **ENVIRONMENT,
            **environment,
            **_tally_variables(directory, jobs),
            "BENCH_DATABASE": str(directory / "peer.db"),
        }
        enqueue = [*peer.enqueue, str(jobs)]
        subprocess.run(enqueue, cwd=ROOT, env={**os.environ, **told}, check=True)
        with running(*peer.work, environment=told) as process:
            first, last = _until_tallied(process, directory)
    return jobs / (last - first)


async def _drain_airunner(jobs: int) -> float:
    async with server() as service:
        for start in range(0, jobs, 100):
            await service.jobs.enqueue_jobs(_requests(min(100, jobs - start)))
        with folder() as directory:
            told = _tally_variables(directory, jobs)
            with worker(service.url, *AIRUNNER_HANDLERS, environment=told) as process:
                first, _ = await asyncio.to_thread(_until_tallied, process, directory)
                ended = await _until_drained(service)
        await _check_completed(service, jobs)
    return jobs / (ended - first)


def _requests(count: int) -> pb.EnqueueJobsRequest:
    params = params_to_pb(JobParams(handler="noop"))
    return pb.EnqueueJobsRequest(
        jobs=[
            pb.EnqueueJobRequest(request_id=str(uuid.uuid4()), queue=_QUEUE, job_params=params)
            for _ in range(count)
        ]
    )


async def _until_drained(service: Service) -> float:
    """Return when the server said that no job is queued or running."""
    while True:
        (queue,) = (await service.jobs.list_queues(pb.ListQueuesRequest())).queues
        if not queue.scheduled and not queue.running:
            return time.monotonic()


async def _check_completed(service: Service, jobs: int) -> None:
    completed, cursor = 0, ""
    while True:
        request = pb.ListJobsRequest(
            queue=_QUEUE, state=pb.JOB_STATE_COMPLETED, page_size=MAX_PAGE_SIZE, cursor=cursor
        )
        page = await service.jobs.list_jobs(request)
        completed += len(page.jobs)
        cursor = page.next_cursor
        if not cursor:
            break
    if completed != jobs:
        raise RuntimeError(f"{completed} of {jobs} jobs are COMPLETED")


def _tally_variables(directory: Path, jobs: int) -> dict[str, str]:
    return {FILE_VARIABLE: str(directory / _TALLY), JOBS_VARIABLE: str(jobs)}


def _until_tallied(process: subprocess.Popen[bytes], directory: Path) -> tuple[float, float]:
    """Return when the worker's first and last job began."""
    file, limit = directory / _TALLY, time.monotonic() + _LIMIT_SECONDS
    while not file.is_file():
        if process.poll() is not None or time.monotonic() > limit:
            raise RuntimeError(f"the worker did not drain its queue; exit code {process.poll()}")
        time.sleep(0.01)
    first, last = json.loads(file.read_text())
    return first, last
