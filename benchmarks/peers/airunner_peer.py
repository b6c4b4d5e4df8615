"""The handler of airunner's own side."""

from __future__ import annotations

from airunner.handlers import handler
from benchmarks.peers import tally


@handler("noop")
async def noop(_payload: object) -> None:
    """Do nothing."""
    tally.count()
