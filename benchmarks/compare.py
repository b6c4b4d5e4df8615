"""Two trees side by side: `python -m benchmarks.compare OTHER [RUNS]` measures this tree and OTHER in turns.

Machines are noisy, so only the ratio of the medians of alternating runs counts. Each tree is measured by its
own environment (`make setup` there) and its own harness; what is measured is the same.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LEAST_RATIO = 0.95
_DRAINED_JOBS = 10_000
_DISPATCHES = 300
_PUBLISHERS = 8
_BATCHES_EACH = 300


def main() -> int:
    """Measure both trees in turns; print the ratios, and fail when one is below the limit."""
    other, runs = Path(sys.argv[1]).resolve(), int(sys.argv[2]) if len(sys.argv) > 2 else 5
    rates: dict[Path, list[dict[str, float]]] = {other: [], ROOT: []}
    for number in range(runs):
        for tree, measured in rates.items():
            measured.append(_measure(tree))
            shown = ", ".join(f"{name} {rate:,.0f}" for name, rate in measured[-1].items())
            print(
                f"run {number + 1} of {runs}, {'this' if tree == ROOT else 'other'} tree: {shown}", flush=True
            )
    ratios = {name: _ratio(name, rates[ROOT], rates[other]) for name in rates[ROOT][0]}
    for name, ratio in ratios.items():
        print(f"{name}: median ratio {ratio:.2f} (goal >= {LEAST_RATIO})")
    return 0 if min(ratios.values()) >= LEAST_RATIO else 1


def _ratio(name: str, ours: list[dict[str, float]], theirs: list[dict[str, float]]) -> float:
    return statistics.median(run[name] for run in ours) / statistics.median(run[name] for run in theirs)


def _measure(tree: Path) -> dict[str, float]:
    environment = {**os.environ, "PYTHONPATH": str(tree), "MALLOC_TRIM_THRESHOLD_": "67108864"}
    command = [str(tree / ".venv/bin/python"), str(Path(__file__)), "--one-run"]
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, check=True)
    rates: dict[str, float] = json.loads(done.stdout)
    return rates


async def one_run() -> dict[str, float]:
    """Measure the tree whose packages are imported: rates, so that more is better."""
    from benchmarks.peers.drain import _drain_airunner

    return {
        "drained jobs/s": await _drain_airunner(_DRAINED_JOBS),
        "dispatches/s": await _dispatch_rate(),
        "published lines/s": await _publish_rate(),
    }


async def _dispatch_rate() -> float:
    from benchmarks.harness import server
    from benchmarks.through_rpc import _dispatch_once

    async with server() as service:
        return 1 / statistics.median([await _dispatch_once(service) for _ in range(_DISPATCHES)])


async def _publish_rate() -> float:
    from benchmarks.harness import server
    from benchmarks.held_job import hold_job, publish_requests
    from benchmarks.through_rpc import _publish

    async with server() as service:
        tokens = [(await hold_job(service))[1] for _ in range(_PUBLISHERS)]
        requests = [publish_requests(token, _BATCHES_EACH) for token in tokens]
        began = time.perf_counter()
        await asyncio.gather(*(_publish(service, mine) for mine in requests))
        return _PUBLISHERS * _BATCHES_EACH * 50 / (time.perf_counter() - began)


if __name__ == "__main__":
    if sys.argv[1:] == ["--one-run"]:
        # The folder of this file comes first, and is another tree's: that tree's own comes from PYTHONPATH.
        sys.path = [entry for entry in sys.path if entry != str(Path(__file__).parent)]
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            print(json.dumps(runner.run(one_run())))
    else:
        sys.exit(main())
