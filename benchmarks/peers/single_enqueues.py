"""One job a call, beside every peer that is reached over a network and syncs what it acknowledges."""

from __future__ import annotations

from functools import partial

from benchmarks.harness import Row
from benchmarks.peers.contenders import AIRUNNER, PEERS, Contender, Storage
from benchmarks.peers.drain import CALLERS, enqueue, store_of
from benchmarks.peers.promises import ENQUEUES
from benchmarks.peers.turns import Rounds, Sample, in_turns, rate_row

BEST = ", the best"
"""What the name of a row ends with whose peer no other has surpassed."""
# Half of the calls is not counted. Callers who share commits are five times as fast as one.
_LOADS = {CALLERS: 10, 1: 2}
_TITLES = {CALLERS: f"single enqueues, {CALLERS} callers", 1: "enqueues, one after the other"}


async def run(rounds: int, jobs: int) -> list[Row]:
    """Many callers, and one by itself."""
    rows = []
    for callers, title in _TITLES.items():
        contenders = (AIRUNNER, *(peer for peer in PEERS if peer.storage is Storage.REDIS))
        sides = {each.name: partial(_enqueue, each, jobs * _LOADS[callers], callers) for each in contenders}
        rows += rows_of(callers, await in_turns(title, rounds, sides))
    return rows


def rows_of(callers: int, played: dict[str, Rounds]) -> list[Row]:
    """Return a row for each peer; the promise is about the one with the highest median."""
    peers = {name: rounds for name, rounds in played.items() if name != AIRUNNER.name}
    best = max(
        (name for name in peers if not peers[name].missing), key=lambda name: peers[name].rate, default=""
    )
    return [
        rate_row(
            f"{_TITLES[callers]}, beside {name}{BEST if name == best else ''}",
            played[AIRUNNER.name],
            rounds,
            unit="calls",
            note="appendfsync always",
            promise=ENQUEUES[callers] if name == best else None,
        )
        for name, rounds in peers.items()
    ]


async def _enqueue(contender: Contender, jobs: int, callers: int) -> Sample:
    async with store_of(contender, "noop") as store:
        return await enqueue(contender, store, jobs, callers)
