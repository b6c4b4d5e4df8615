"""Lines to watchers, and lines read again: python -m benchmarks.peers.processes.streams MODULE WHAT TIMES.

MODULE has `open_stream()`, `publish(number)`, which stores one line, `fill(lines)`, which stores many,
`watch(lines)`, which yields the number of each line as it arrives, `replay(first)`, which reads from a number
on and returns how many there were, and `close_stream()`. All of it runs in this one process on uvloop.
Printed is JSON: the median seconds, and the CPU seconds that each time cost this process and the server.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import statistics
import sys
import time
from types import ModuleType

import uvloop

from benchmarks.peers.processes.enqueue import Meter

WATCHERS = 10
STORED, REPLAYED = 10_000, 1_000
# Watchers must be waiting, as those of a job that is silent are.
_GAP_SECONDS = 0.005


async def fan_out(module: ModuleType, lines: int) -> dict[str, float]:
    """Publish one by one, each once everybody has the one before; a line takes until the last one has it."""
    arrivals: asyncio.Queue[float] = asyncio.Queue()
    watchers = [asyncio.create_task(_watch(module, lines, arrivals)) for _ in range(WATCHERS)]
    meter, took = Meter(), []
    for number in range(1, lines + 1):
        await asyncio.sleep(_GAP_SECONDS)
        began = time.perf_counter()
        publishing = asyncio.create_task(module.publish(number))
        took.append(max([await arrivals.get() for _ in watchers]) - began)
        await publishing
    spent = meter.spent(lines)
    await asyncio.gather(*watchers)
    return {"seconds": statistics.median(took), "cpu": spent["cpu"] / lines}


async def replay(module: ModuleType, times: int) -> dict[str, float]:
    """Read the last lines of many, again and again."""
    await module.fill(STORED)
    await _replay_once(module)
    meter = Meter()
    took = [await _replay_once(module) for _ in range(times)]
    return {"seconds": statistics.median(took), "cpu": meter.spent(times)["cpu"] / times}


async def main(name: str, what: str, times: int) -> None:
    """Do what is wanted, and print what it cost."""
    module = importlib.import_module(name)
    await module.open_stream()
    spent = await {"fan-out": fan_out, "replay": replay}[what](module, times)
    await module.close_stream()
    print(json.dumps(spent))


async def _watch(module: ModuleType, lines: int, arrivals: asyncio.Queue[float]) -> None:
    expected = 1
    async for number in module.watch(lines):
        if number != expected:
            raise RuntimeError(f"line {number} came, not {expected}")
        expected += 1
        arrivals.put_nowait(time.perf_counter())


async def _replay_once(module: ModuleType) -> float:
    began = time.perf_counter()
    lines = await module.replay(STORED - REPLAYED + 1)
    took = time.perf_counter() - began
    if lines != REPLAYED:
        raise RuntimeError(f"{lines} lines were replayed, not {REPLAYED}")
    return took


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
