"""What the jobs do, the same at everyone; which of them a process does, its environment says.

Standard library only, as it runs in the peers' environment too.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.peers.processes import tally

# Names the kind of job.
JOB_VARIABLE = "BENCH_JOB"
LATENCIES = "latencies"


def noop(_number: int) -> None:
    """Do nothing, and return nothing."""
    tally.count()


def result(number: int) -> dict[str, int]:
    """Return something that no other job returns; whoever can keep results keeps it."""
    tally.count()
    return {"number": number}


def line(number: int) -> None:
    """Print a line."""
    tally.count()
    print(f"job {number} of many has been here", flush=True)


def stamp(number: int) -> None:
    """Note how long ago the instant was that the number is, in nanoseconds of the monotonic clock."""
    took = time.monotonic_ns() - number
    with (Path(os.environ[tally.FOLDER_VARIABLE]) / LATENCIES).open("a") as file:
        file.write(f"{took}\n")
    tally.count()


KINDS: dict[str, Callable[[int], object]] = {job.__name__: job for job in (noop, result, line, stamp)}


def kind() -> str:
    """Return the name of the kind of job that this process does."""
    return os.environ[JOB_VARIABLE]


def do(number: int) -> object:
    """Do a job."""
    return KINDS[kind()](number)


def has_result() -> bool:
    """Return whether the jobs have results to keep."""
    return kind() == result.__name__
