"""How a drain is timed, the same for everyone: the worker's own process notes its first and its last job.

It costs one step of a counter for each job, no file and no call, until the last one. Standard library only:
the peers' environment has nothing else in common with ours.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from pathlib import Path

# Names the file that the last job writes, and says which job is the last.
FILE_VARIABLE = "BENCH_TALLY"
JOBS_VARIABLE = "BENCH_JOBS"

# One step of it is atomic, so threads need no lock.
_counter = itertools.count(1)
_jobs = int(os.environ.get(JOBS_VARIABLE, "0"))
_first: list[float] = []


def count() -> None:
    """Note that one more job was begun; the last one writes when the first and it itself were.

    The clock is the machine's monotonic one, which all processes share.
    """
    number = next(_counter)
    if number == 1:
        _first.append(time.monotonic())
    elif number == _jobs:
        _write(Path(os.environ[FILE_VARIABLE]), [_first[0], time.monotonic()])


def _write(path: Path, instants: list[float]) -> None:
    unfinished = path.with_suffix(".new")
    unfinished.write_text(json.dumps(instants))
    unfinished.rename(path)
