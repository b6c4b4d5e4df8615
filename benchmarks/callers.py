"""Whoever calls, in a process of its own on the standard loop: `python -m benchmarks.callers ORDERS`.

The orders and what came of them are JSON. CPU is counted from after the first tenth of the calls on, which
opens the connections and warms the code.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from airunner import AsyncClient, JobParams
from airunner.domain.requests import EnqueueRequest, OverviewQuery
from benchmarks import echo, noted_handler
from benchmarks.cpu import CpuMeter
from benchmarks.harness import ROOT
from benchmarks.samples import PARAMS, output_of

CLIENT = "client"
DISPATCH = "dispatch"
REPLAYED_LINES = 1_000
"""Of each call of a replay: the second half of what is stored."""
BATCHED_JOBS = 100
"""Of each call of a batched enqueue."""
WATCHERS = 10
"""Of the job of a fan-out."""
_WAIT_SECONDS = 60

Caller = Callable[[int], Awaitable[None]]
"""Makes so many calls, one after the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What shall be called; `processes` are those whose CPU counts too, by name."""

    what: str
    address: str
    calls: int
    callers: int = 1
    gap_seconds: float = 0
    processes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What the calls of an order cost: seconds in all, CPU seconds by process, and what each call took.

    The last is known of calls with gaps only.
    """

    calls: int
    seconds: float
    cpu: Mapping[str, float]
    took: list[float]

    @property
    def rate(self) -> float:
        """Calls per second."""
        return self.calls / self.seconds

    @property
    def cpu_of_a_call(self) -> float:
        """CPU seconds of a call, of all processes together."""
        return sum(self.cpu.values()) / self.calls


def carry_out(*orders: Order, seconds: float = 300) -> list[Load]:
    """Let a process of its own carry out orders, one after the other."""
    command = [sys.executable, "-m", "benchmarks.callers", json.dumps([asdict(order) for order in orders])]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True, text=True, timeout=seconds)
    return [Load(**load) for load in json.loads(done.stdout)]


async def call(order: Order) -> Load:
    """Carry out an order in this process."""
    return await (_dispatch if order.what == DISPATCH else _call)(order)


async def hold(client: AsyncClient) -> tuple[str, str]:
    """Enqueue a job and dequeue it, as its worker would; return its id and its task token."""
    queue = f"held-{uuid.uuid4()}"
    await client.enqueue(PARAMS, queue=queue)
    (held,) = await client.dequeue(queue)
    return held.job.job_id, held.task_token


async def _dispatch(order: Order) -> Load:
    """Enqueue jobs with gaps between; each took until a worker's handler ran, which its result says when.

    The monotonic clock is the machine's, the same in every process.
    """
    began_at: dict[str, float] = {}
    params = JobParams(handler=noted_handler.NAME)
    async with AsyncClient(order.address) as client:
        # The worker is there once it has done the first.
        first = await client.enqueue(params)
        await client.wait_for_end(first.job_id, timeout_seconds=_WAIT_SECONDS)
        meter, began = CpuMeter({CLIENT: os.getpid(), **order.processes}), time.monotonic()
        for _ in range(order.calls):
            await asyncio.sleep(order.gap_seconds)
            enqueued_at = time.monotonic()
            job = await client.enqueue(params)
            began_at[job.job_id] = enqueued_at
        elapsed, cpu = time.monotonic() - began, meter.spent()
        ended = [await client.wait_for_end(job_id, timeout_seconds=_WAIT_SECONDS) for job_id in began_at]
    took = [noted_handler.noted(job) - began_at[job.job_id] for job in ended]
    return Load(calls=order.calls, seconds=elapsed, cpu=cpu, took=took)


async def _call(order: Order) -> Load:
    async with _KINDS[order.what](order) as callers:
        each = order.calls // len(callers)
        await asyncio.gather(*(caller(max(1, each // 10)) for caller in callers))
        meter = CpuMeter({CLIENT: os.getpid(), **order.processes})
        began = time.perf_counter()
        if order.gap_seconds:
            took = [await _timed(callers[0], order.gap_seconds) for _ in range(order.calls)]
        else:
            took = []
            await asyncio.gather(*(caller(each) for caller in callers))
        elapsed = time.perf_counter() - began
        return Load(calls=each * len(callers), seconds=elapsed, cpu=meter.spent(), took=took)


@asynccontextmanager
async def _echoes(order: Order) -> AsyncIterator[list[Caller]]:
    clients = [await echo.connect(int(order.address)) for _ in range(order.callers)]
    yield [client.exchange for client in clients]
    for client in clients:
        client.close()


@asynccontextmanager
async def _no_ops(order: Order) -> AsyncIterator[list[Caller]]:
    query = OverviewQuery()
    async with AsyncClient(order.address) as client:

        async def call_often(times: int) -> None:
            for _ in range(times):
                await client.page_workers(query)

        yield [call_often] * order.callers


@asynccontextmanager
async def _enqueues(order: Order) -> AsyncIterator[list[Caller]]:
    """Each caller has a client of its own, so that none shares a call."""
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(AsyncClient(order.address)) for _ in range(order.callers)]
        yield [partial(_enqueue_often, client) for client in clients]


@asynccontextmanager
async def _shared_enqueues(order: Order) -> AsyncIterator[list[Caller]]:
    """All callers have the same client, as the tasks of a program do."""
    async with AsyncClient(order.address) as client:
        yield [partial(_enqueue_often, client)] * order.callers


async def _enqueue_often(client: AsyncClient, times: int) -> None:
    for _ in range(times):
        await client.enqueue(PARAMS)


@asynccontextmanager
async def _replays(order: Order) -> AsyncIterator[list[Caller]]:
    async with AsyncClient(order.address) as client:
        job_id, token = await hold(client)
        for events in output_of(2 * REPLAYED_LINES // 50):
            await client.publish_events(token, events)

        async def call_often(times: int) -> None:
            for _ in range(times):
                events = client.monitor(job_id, from_sequence=REPLAYED_LINES + 1, follow=False)
                assert len([event async for event in events]) == REPLAYED_LINES

        yield [call_often]


@asynccontextmanager
async def _batched_enqueues(order: Order) -> AsyncIterator[list[Caller]]:
    from airunner.domain.job import mint_uuid  # late: earlier versions, which are measured too, lack it

    def request() -> EnqueueRequest:
        now = time.time_ns() // 1_000_000
        return EnqueueRequest(request_id=mint_uuid(now), queue="default", params=PARAMS)

    async with AsyncClient(order.address) as client:

        async def call_often(times: int) -> None:
            for _ in range(times):
                await client.enqueue_jobs([request() for _ in range(BATCHED_JOBS)])

        yield [call_often] * order.callers


@asynccontextmanager
async def _publishes(order: Order) -> AsyncIterator[list[Caller]]:
    """Each caller has a job of its own."""
    each = order.calls // order.callers
    async with AsyncClient(order.address) as client:

        async def publisher() -> Caller:
            _, token = await hold(client)
            waiting = iter(output_of(each + max(1, each // 10)))

            async def call_often(times: int) -> None:
                for _ in range(times):
                    await client.publish_events(token, next(waiting))

            return call_often

        yield [await publisher() for _ in range(order.callers)]


@asynccontextmanager
async def _fan_outs(order: Order) -> AsyncIterator[list[Caller]]:
    """A call is a line that has come to all watchers."""
    async with AsyncClient(order.address) as client:
        job_id, token = await hold(client)
        waiting = iter(output_of(order.calls + max(1, order.calls // 10), size=1))
        arrivals = asyncio.Semaphore(0)

        async def watch() -> None:
            async for _ in client.monitor(job_id):
                arrivals.release()

        async def call_often(times: int) -> None:
            for _ in range(times):
                await client.publish_events(token, next(waiting))
                for _ in range(WATCHERS):
                    await arrivals.acquire()

        watching = [asyncio.create_task(watch()) for _ in range(WATCHERS)]
        yield [call_often]
        for task in watching:
            task.cancel()
        await asyncio.wait(watching)


async def _timed(caller: Caller, gap_seconds: float) -> float:
    await asyncio.sleep(gap_seconds)
    began = time.perf_counter()
    await caller(1)
    return time.perf_counter() - began


_KINDS: Mapping[str, Callable[[Order], AbstractAsyncContextManager[list[Caller]]]] = {
    "echo": _echoes,
    "no-op": _no_ops,
    "enqueue": _enqueues,
    "shared enqueue": _shared_enqueues,
    "batched enqueue": _batched_enqueues,
    "publish": _publishes,
    "replay": _replays,
    "fan-out": _fan_outs,
}


async def _main(orders: list[dict[str, Any]]) -> list[Load]:
    return [await call(Order(**order)) for order in orders]


if __name__ == "__main__":
    print(json.dumps([asdict(load) for load in asyncio.run(_main(json.loads(sys.argv[1])))]))
