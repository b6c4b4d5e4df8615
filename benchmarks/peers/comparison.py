"""Everything that is measured beside peers, with its size."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final

from benchmarks.harness import Row
from benchmarks.peers import contest, dispatch, single_enqueues, streams

ROUNDS: Final = 7
SWEEP_ROUNDS: Final = 3
# The jobs of the slowest contender's drain; the others, and the other parts, have theirs in proportion.
JOBS: Final = 600

Part = Callable[[], Awaitable[list[Row]]]


async def run() -> list[Row]:
    """All of it, as it is promised."""
    return [row for part in parts(ROUNDS, JOBS).values() for row in await part()]


def parts(rounds: int, jobs: int) -> Mapping[str, Part]:
    """Return the parts, each of so many rounds; a run of half an hour has JOBS."""
    return {
        "drains": partial(contest.run, rounds, jobs),
        "enqueues": partial(single_enqueues.run, rounds, jobs),
        "dispatch": partial(dispatch.run, rounds, jobs // 10),
        "streams": partial(streams.run, rounds, jobs // 4),
    }
