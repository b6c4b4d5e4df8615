"""One line in the hands of ten watchers, and lines read again, beside a Redis Stream that syncs."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial

from benchmarks.harness import Row
from benchmarks.peers.contenders import AIRUNNER, PEERS, PROCESSES, Contender
from benchmarks.peers.drain import answer_of, store_of
from benchmarks.peers.processes.streams import REPLAYED, STORED, WATCHERS
from benchmarks.peers.promises import FAN_OUT, REPLAY, Promise
from benchmarks.peers.provision import PEERS_BIN
from benchmarks.peers.turns import Sample, in_turns, time_row

_OURS, _THEIRS = AIRUNNER.name, "Redis Streams"
_PROGRAM = ("-m", f"{PROCESSES}.streams")
# What a Redis needs is what a peer on Redis needs.
_REDIS = replace(next(peer for peer in PEERS if peer.name == "Taskiq"), name=_THEIRS)
_SIDES = {
    _OURS: (AIRUNNER, (sys.executable, *_PROGRAM, f"{PROCESSES}.airunner_streams")),
    _THEIRS: (_REDIS, (str(PEERS_BIN / "python"), *_PROGRAM, f"{PROCESSES}.redis_streams")),
}


async def run(rounds: int, lines: int) -> list[Row]:
    """Both sides publish, watch and read from one process of their own, in turns."""
    fan_out = f"one line to {WATCHERS} watchers, the last of them, p50"
    replay = f"replay of {REPLAYED:,} of {STORED:,} lines at the client, p50"
    return [
        await _beside_redis("fan-out", fan_out, rounds, lines, FAN_OUT),
        await _beside_redis("replay", replay, rounds, lines, REPLAY),
    ]


async def _beside_redis(what: str, title: str, rounds: int, times: int, promise: Promise | None) -> Row:
    sides = {name: partial(_side, *side, what, times) for name, side in _SIDES.items()}
    played = await in_turns(title, rounds, sides)
    note = f"{_THEIRS}, appendfsync always"
    return time_row(title, played[_OURS], played[_THEIRS], note=note, promise=promise)


async def _side(contender: Contender, program: tuple[str, ...], what: str, times: int) -> Sample:
    async with store_of(contender, "noop") as store:
        spent = await answer_of((*program, what, str(times)), store)
    return Sample(1, spent["seconds"], spent["cpu"])
