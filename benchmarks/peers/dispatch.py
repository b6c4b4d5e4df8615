"""From the call that enqueues a job to its handler, a job every 30 ms, beside peers that sync to the disk."""

from __future__ import annotations

import statistics
from functools import partial
from pathlib import Path

from benchmarks.harness import Row
from benchmarks.peers import tuning
from benchmarks.peers.contenders import AIRUNNER, PEERS, Contender
from benchmarks.peers.drain import SessionsMeter, enqueue, store_of, until_begun, workers
from benchmarks.peers.processes.jobs import LATENCIES
from benchmarks.peers.promises import DISPATCH
from benchmarks.peers.turns import Sample, in_turns, time_row

_GAP_SECONDS = 0.03
_WARM_JOBS = 5


async def run(rounds: int, jobs: int) -> list[Row]:
    """Everybody in turns; the median of each round's median counts."""
    peers = [peer for peer in PEERS if peer.name in DISPATCH]
    title = f"dispatch, a job every {_GAP_SECONDS * 1000:.0f} ms, p50"
    played = await in_turns(
        title, rounds, {each.name: partial(_dispatch, each, jobs) for each in (AIRUNNER, *peers)}
    )
    return [
        time_row(
            f"{title}, beside {peer.name}",
            played[AIRUNNER.name],
            played[peer.name],
            note="appendfsync always",
            promise=DISPATCH[peer.name],
        )
        for peer in peers
    ]


async def _dispatch(contender: Contender, jobs: int) -> Sample:
    """Return the median from call to handler, and the CPU of client, server and worker for a job."""
    async with store_of(contender, "stamp") as store:
        with workers(tuning.best_way(contender, "noop", tuning.load()), store) as processes:
            await enqueue(contender, store, _WARM_JOBS, 1, _GAP_SECONDS)
            await until_begun(store, processes, _WARM_JOBS)
            meter = SessionsMeter((), [process.pid for process in processes])
            calls = await enqueue(contender, store, jobs, 1, _GAP_SECONDS)
            await until_begun(store, processes, _WARM_JOBS + jobs)
            cpu = meter.spent() + calls.cpu
        took = _latencies(store.directory)[_WARM_JOBS:]
    return Sample(1, statistics.median(took), cpu / jobs)


def _latencies(directory: Path) -> list[float]:
    return [int(line) / 1e9 for line in (directory / LATENCIES).read_text().splitlines()]
