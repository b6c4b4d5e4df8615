"""Two trees side by side: `python -m benchmarks.compare OTHER [RUNS]` measures this tree and OTHER in turns.

Machines are noisy, so only ratios count: each run measures both trees, one right after the other, and what is
reported is the median of the ratios of all runs. Each tree is measured in its own environment (`make setup`
there) and by its own harness.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LEAST_RATIO = 0.95
_ONE_RUN = """
import asyncio, json, statistics, time, uvloop
from benchmarks.harness import server
from benchmarks.held_job import hold_job, publish_requests
from benchmarks.peers.drain import _drain_airunner
from benchmarks.through_rpc import _dispatch_once, _publish

async def dispatch():
    async with server() as service:
        took = [await _dispatch_once(service) for _ in range(1_200)]
        return 1 / statistics.median(took[200:])

async def publish():
    async with server() as service:
        tokens = [(await hold_job(service))[1] for _ in range(8)]
        requests = [publish_requests(token, 800) for token in tokens]
        began = time.perf_counter()
        await asyncio.gather(*(_publish(service, mine) for mine in requests))
        return 8 * 800 * 50 / (time.perf_counter() - began)

async def main():
    drained = max([await _drain_airunner(10_000) for _ in range(2)])
    return {"drained jobs/s": drained, "dispatches/s": await dispatch(), "published lines/s": await publish()}

with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
    print(json.dumps(runner.run(main())))
"""


def main() -> int:
    """Measure both trees in turns; print the ratios, and fail when one is below the limit."""
    other, runs = Path(sys.argv[1]).resolve(), int(sys.argv[2]) if len(sys.argv) > 2 else 5
    ratios: dict[str, list[float]] = {}
    for number in range(runs):
        # Each goes first in every other run: a machine that slows down hits both alike.
        rates = {tree: _measure(tree) for tree in ((other, ROOT) if number % 2 else (ROOT, other))}
        for name, ours in rates[ROOT].items():
            ratios.setdefault(name, []).append(ours / rates[other][name])
        shown = (f"{name} {ours:,.0f} / {rates[other][name]:,.0f}" for name, ours in rates[ROOT].items())
        print(f"run {number + 1} of {runs}, this tree / the other: {', '.join(shown)}", flush=True)
    medians = {name: statistics.median(measured) for name, measured in ratios.items()}
    for name, ratio in medians.items():
        print(f"{name}: median ratio {ratio:.2f} (goal >= {LEAST_RATIO})")
    return 0 if min(medians.values()) >= LEAST_RATIO else 1


def _measure(tree: Path) -> dict[str, float]:
    environment = {**os.environ, "PYTHONPATH": str(tree), "MALLOC_TRIM_THRESHOLD_": "67108864"}
    command = [str(tree / ".venv/bin/python"), "-c", _ONE_RUN]
    done = subprocess.run(command, cwd=tree, env=environment, stdout=subprocess.PIPE, check=True)
    rates: dict[str, float] = json.loads(done.stdout)
    return rates


if __name__ == "__main__":
    sys.exit(main())
