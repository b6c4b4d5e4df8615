"""Handlers of jobs that are drained. Imports only what earlier versions have too."""

from __future__ import annotations

import itertools

from airunner import handler

# One step of it is atomic, so threads need no lock.
_numbers = itertools.count(1)


@handler("equal")
async def equal(_payload: object) -> None:
    """Do nothing, with the same result as all others."""


@handler("distinct")
async def distinct(_payload: object) -> dict[str, int]:
    """Return a result that no other job has."""
    return {"number": next(_numbers)}


@handler("printed")
async def printed(_payload: object) -> None:
    """Print a line."""
    print("one line of output")
