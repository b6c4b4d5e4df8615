"""A handler whose result says when it ran."""

from __future__ import annotations

import json
import time

from airunner import Job
from airunner.handlers import handler

NAME = "note"


@handler(NAME)
async def note(_payload: object) -> float:
    """Return when it is called, by the machine's monotonic clock."""
    return time.monotonic()


def noted(job: Job) -> float:
    """Return when the handler of an ended job was called."""
    if not job.result or not job.result.success:
        raise RuntimeError(f"job {job.job_id} is {job.state.name}")
    return float(json.loads(job.result.output_json))
