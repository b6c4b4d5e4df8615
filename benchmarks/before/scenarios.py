"""What is measured of a tree: `PYTHON -m benchmarks.before.scenarios NAME [SCALE]`, PYTHON being the tree's.

The tree is that of the `airunner` which the interpreter imports. This file is the same for all trees: it uses
the public names, the command line, and what earlier versions have too. Figures are printed as JSON, by name.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Coroutine, Mapping
from contextlib import aclosing
from pathlib import Path

from airunner import AsyncClient, EnqueueRequest, Event, Job, JobParams, JobQuery, Output
from benchmarks.callers import DISPATCH, Order, call, hold
from benchmarks.cpu import CpuMeter
from benchmarks.harness import Service, folder, rate, server, worker
from benchmarks.samples import LINE, output_of

Figures = Mapping[str, float]

_WATCHERS = 10
_PUBLISHERS = 8
_QUEUE = "measured"
_WAIT_SECONDS = 600
# Seldom, since what a look costs the server is counted too.
_POLL_SECONDS = 0.25
HANDLERS = (
    *("--handlers", "benchmarks.before.handlers", "--no-commands"),
    *("--concurrency", "400", "--queue", _QUEUE),
)
"""What a worker that drains is started with."""


async def replay(scale: float) -> Figures:
    """The last 1,000 of 10,000 lines in batches of 50, and 1,000 single events, read by a client."""
    times = _scaled(30, scale)
    async with server() as service, AsyncClient(service.url) as client:
        in_batches = await _publish_all(client, output_of(200))
        singly = await _publish_all(client, output_of(1_000, size=1))
        batches = [await _replayed(client, in_batches, 9_001) for _ in range(times)]
        singles = [await _replayed(client, singly, 1) for _ in range(times)]
    return {
        "line_cpu_us": min(cpu for cpu, _ in batches) / 1_000 * 1e6,
        "lines_ms": statistics.median(wall for _, wall in batches) * 1e3,
        "singles_ms": statistics.median(wall for _, wall in singles) * 1e3,
    }


async def logs(scale: float) -> Figures:
    """`airunner logs` of a job that wrote 1,000,000 lines, three times."""
    lines = _scaled(1_000_000, scale)
    size = sum(len(str(number)) + 1 for number in range(1, lines + 1))
    async with server() as service, AsyncClient(service.url) as client:
        with worker(service.url):
            job = await client.run("seq", "1", str(lines))
        with folder() as directory:
            took = [await _print_logs(service, job.job_id, directory / "log", size) for _ in range(3)]
    return {"logs_s": statistics.median(took), "logs_best_s": min(took)}


async def fan_out(scale: float) -> Figures:
    """A line to ten watchers: until the last has it, and the CPU of all processes."""
    lines = _scaled(300, scale)
    async with server() as service, AsyncClient(service.url) as client:
        job_id, token = await hold(client)
        arrivals: asyncio.Queue[float] = asyncio.Queue()
        watching = [asyncio.create_task(_watch(client, job_id, lines, arrivals)) for _ in range(_WATCHERS)]
        await _publish_one(client, token, 1, arrivals)
        meter = CpuMeter({"server": service.pid, "client": os.getpid()})
        took = [await _publish_one(client, token, number, arrivals) for number in range(2, lines + 1)]
        spent = sum(meter.spent().values())
        await asyncio.gather(*watching)
    return {"fan_out_ms": statistics.median(took) * 1e3, "fan_out_cpu_ms": spent / (lines - 1) * 1e3}


async def drain(scale: float) -> Figures:
    """Jobs with equal results, with distinct ones, with a printed line: CPU of server and worker, rate."""
    figures: dict[str, float] = {}
    async with server() as service, AsyncClient(service.url) as client:
        with worker(service.url, *HANDLERS) as process:
            for kind, jobs in (("equal", 10_000), ("distinct", 10_000), ("printed", 4_000)):
                await _enqueue(client, kind, 200)
                await _until_drained(client)
                count = _scaled(jobs, scale)
                meter, seconds = await drain_jobs(client, kind, count, (service.pid, process.pid))
                figures[f"{kind}_cpu_us"] = sum(meter.values()) / count * 1e6
                figures[f"{kind}_rate"] = count / seconds
    return figures


async def drain_jobs(
    client: AsyncClient, kind: str, jobs: int, pids: tuple[int, int]
) -> tuple[dict[str, float], float]:
    """Enqueue jobs in a paused queue and let them go; return the CPU seconds by process and the seconds.

    The ids are those of the server and of a worker with HANDLERS.
    """
    await client.set_paused(_QUEUE, paused=True)
    await _enqueue(client, kind, jobs)
    # The ends of jobs are told in milliseconds of the wall clock, which all processes share.
    meter, began = CpuMeter(dict(zip(("server", "worker"), pids, strict=True))), time.time()
    await client.set_paused(_QUEUE, paused=False)
    await _until_drained(client)
    spent = meter.spent()
    return spent, await _last_end(client, jobs) - began


async def dispatch(scale: float) -> Figures:
    """A job every 30 ms, from its enqueue to its handler."""
    async with server() as service:
        with worker(service.url, "--handlers", "benchmarks.noted_handler"):
            jobs = _scaled(300, scale)
            load = await call(Order(what=DISPATCH, address=service.url, calls=jobs, gap_seconds=0.03))
    took = sorted(load.took)
    return {"dispatch_ms": statistics.median(took) * 1e3, "dispatch_p99_ms": took[int(jobs * 0.99)] * 1e3}


async def calls(scale: float) -> Figures:
    """Enqueues in batches of 100, single ones by 16 callers, and lines that 8 publish at once."""
    async with server() as service, AsyncClient(service.url) as client:
        hundreds = [_requests("equal", 100) for _ in range(_scaled(200, scale))]
        meter = CpuMeter({"server": service.pid, "client": os.getpid()})
        batches = await rate(hundreds, 4, client.enqueue_jobs)
        spent = sum(meter.spent().values()) / (100 * len(hundreds))
        params = [JobParams(command="true")] * _scaled(4_000, scale)
        singles = await rate(params, 16, client.enqueue)
        tokens = [(await hold(client))[1] for _ in range(_PUBLISHERS)]
        output = output_of(_scaled(300, scale))
        began = time.perf_counter()
        await asyncio.gather(*(_publish(client, token, output) for token in tokens))
        lines = _PUBLISHERS * len(output) * 50 / (time.perf_counter() - began)
    return {
        "batch_enqueue_cpu_us": spent * 1e6,
        "batch_enqueue_rate": 100 * batches,
        "single_enqueue_rate": singles,
        "published_rate": lines,
    }


SCENARIOS: Mapping[str, Callable[[float], Coroutine[object, object, Figures]]] = {
    "replay": replay,
    "logs": logs,
    "fan_out": fan_out,
    "drain": drain,
    "dispatch": dispatch,
    "calls": calls,
}


async def _publish_all(client: AsyncClient, output: list[list[Event]]) -> str:
    """Store a job's output as its worker would, and leave the job running."""
    job_id, token = await hold(client)
    await _publish(client, token, output)
    return job_id


async def _publish(client: AsyncClient, token: str, output: list[list[Event]]) -> None:
    for events in output:
        await client.publish_events(token, events)


async def _replayed(client: AsyncClient, job_id: str, first: int) -> tuple[float, float]:
    """Replay 1,000 events; return the CPU seconds of this process and the seconds."""
    cpu, wall = time.process_time(), time.perf_counter()
    events = client.monitor(job_id, from_sequence=first, follow=False)
    sequences = [event.sequence async for event in events]
    took = time.process_time() - cpu, time.perf_counter() - wall
    assert sequences == list(range(first, first + 1_000))
    return took


async def _print_logs(service: Service, job_id: str, file: Path, size: int) -> float:
    program = str(Path(sys.executable).with_name("airunner"))
    began = time.perf_counter()
    with file.open("wb") as log:
        printing = await asyncio.create_subprocess_exec(
            *(program, "logs", job_id, "--server", service.url), stdin=subprocess.DEVNULL, stdout=log
        )
        code = await asyncio.wait_for(printing.wait(), _WAIT_SECONDS)
    took = time.perf_counter() - began
    assert code == 0
    assert _size_of(file) == size
    return took


def _size_of(file: Path) -> int:
    return file.stat().st_size


async def _watch(client: AsyncClient, job_id: str, lines: int, arrivals: asyncio.Queue[float]) -> None:
    async with aclosing(client.monitor(job_id)) as events:
        async for event in events:
            arrivals.put_nowait(time.perf_counter())
            if event.sequence == lines:
                return


async def _publish_one(client: AsyncClient, token: str, number: int, arrivals: asyncio.Queue[float]) -> float:
    """Publish a line; return how long it took to the last watcher."""
    # The watchers must be waiting, as those of a job that is silent are.
    await asyncio.sleep(0.005)
    event = Event(sequence=number, timestamp=1_700_000_000_000, data=Output(output=LINE))
    began = time.perf_counter()
    publishing = asyncio.create_task(client.publish_events(token, [event]))
    last = max([await asyncio.wait_for(arrivals.get(), _WAIT_SECONDS) for _ in range(_WATCHERS)])
    await publishing
    return last - began


async def _last_end(client: AsyncClient, jobs: int) -> float:
    """Return when the last of the newest jobs ended; each must have succeeded, at its first attempt."""
    ended: list[Job] = []
    cursor = ""
    while len(ended) < jobs:
        page = await client.list_jobs(JobQuery(queue=_QUEUE, page_size=500, cursor=cursor))
        ended += page.jobs
        cursor = page.next_cursor
    results = [job.result for job in ended[:jobs] if job.attempt == 1 and job.result and job.result.success]
    if len(results) != jobs:
        raise RuntimeError(f"{jobs - len(results)} of {jobs} jobs failed or were handed out again")
    return max(result.completed_at for result in results) / 1000


async def _enqueue(client: AsyncClient, kind: str, jobs: int) -> None:
    for left in range(jobs, 0, -100):
        outcomes = await client.enqueue_jobs(_requests(kind, min(100, left)))
        assert not any(isinstance(outcome, Exception) for outcome in outcomes)


def _requests(kind: str, count: int) -> list[EnqueueRequest]:
    params = JobParams(handler=kind)
    return [EnqueueRequest(request_id=str(uuid.uuid4()), queue=_QUEUE, params=params) for _ in range(count)]


async def _until_drained(client: AsyncClient) -> None:
    async with asyncio.timeout(_WAIT_SECONDS):
        while any(queue.scheduled or queue.running for queue in await client.list_queues()):  # noqa: ASYNC110  nothing tells when a queue is empty
            await asyncio.sleep(_POLL_SECONDS)


def _scaled(count: int, scale: float) -> int:
    return max(10, round(count * scale))


if __name__ == "__main__":
    _scenario, _scale = SCENARIOS[sys.argv[1]], float(sys.argv[2]) if len(sys.argv) > 2 else 1
    print(json.dumps(asyncio.run(_scenario(_scale))))
