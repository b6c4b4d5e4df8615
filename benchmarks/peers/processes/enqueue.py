"""Enqueue jobs, one a call: python -m benchmarks.peers.processes.enqueue MODULE COUNT CALLERS [GAP_SECONDS].

MODULE has a function `enqueue(number)`, which threads call, or a coroutine function of that name, which tasks
on one uvloop call between `open_queue()` and `close_queue()`. What it cost is printed as JSON: how many calls
were counted, their seconds, and the CPU seconds of this process and of the server whose id the environment
tells. The first half is enqueued but not counted: it opens the connections, warms the code, and lets files
grow to their size. With a gap before each call nothing is left out, there is one caller, and the number of a
job is the instant of its call in nanoseconds.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType

import uvloop

from benchmarks.cpu import cpu_seconds

SERVER_VARIABLE = "BENCH_SERVER_PID"
_WARM_SHARE = 2


class Meter:
    """What is spent from its making on."""

    def __init__(self) -> None:
        self._began, self._cpu = time.monotonic(), _cpu_now()

    def spent(self, calls: int) -> dict[str, float]:
        """Return the seconds and the CPU seconds of so many calls."""
        return {"calls": calls, "seconds": time.monotonic() - self._began, "cpu": _cpu_now() - self._cpu}


def in_threads(enqueue: Callable[[int], object], count: int, callers: int) -> dict[str, float]:
    """Call from so many threads."""

    def lane(numbers: range) -> None:
        for number in numbers:
            enqueue(number)

    with ThreadPoolExecutor(callers) as threads:
        warm = count // _WARM_SHARE
        list(threads.map(lane, _shares(range(warm), callers)))
        meter = Meter()
        list(threads.map(lane, _shares(range(warm, count), callers)))
        return meter.spent(count - warm)


async def in_tasks(enqueue: Callable[[int], Awaitable[object]], count: int, callers: int) -> dict[str, float]:
    """Call from so many tasks."""

    async def lane(numbers: Iterator[int]) -> None:
        for number in numbers:
            await enqueue(number)

    async def lanes(numbers: Iterator[int]) -> None:
        await asyncio.gather(*(lane(numbers) for _ in range(callers)))

    warm = count // _WARM_SHARE
    await lanes(iter(range(warm)))
    meter = Meter()
    await lanes(iter(range(warm, count)))
    return meter.spent(count - warm)


async def with_gaps(
    enqueue: Callable[[int], Awaitable[object]], count: int, gap_seconds: float
) -> dict[str, float]:
    """Call one after the other, with a gap before each."""
    meter = Meter()
    for _ in range(count):
        await asyncio.sleep(gap_seconds)
        await enqueue(time.monotonic_ns())
    return meter.spent(count)


def main(module: ModuleType, count: int, callers: int, gap_seconds: float) -> dict[str, float]:
    """Enqueue as the module can."""
    if not inspect.iscoroutinefunction(module.enqueue):
        return in_threads(module.enqueue, count, callers)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(module.open_queue())
        calls = with_gaps(module.enqueue, count, gap_seconds) if gap_seconds else None
        spent = runner.run(calls or in_tasks(module.enqueue, count, callers))
        runner.run(module.close_queue())
        return spent


def _shares(numbers: range, parts: int) -> list[range]:
    return [numbers[part::parts] for part in range(parts)]


def _cpu_now() -> float:
    server = os.environ.get(SERVER_VARIABLE)
    return time.process_time() + (cpu_seconds(int(server)) if server else 0)


if __name__ == "__main__":
    _name, _count, _callers, *_gap = sys.argv[1:]
    _module = importlib.import_module(_name)
    print(json.dumps(main(_module, int(_count), int(_callers), float(*_gap))))
