"""Drains beside peers: the same jobs, in turns, everybody in the way that was best for it in the sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from benchmarks.harness import Row
from benchmarks.peers import tuning
from benchmarks.peers.contenders import AIRUNNER, PEERS, Contender, Storage, Way
from benchmarks.peers.drain import drain
from benchmarks.peers.promises import DRAINS
from benchmarks.peers.provision import ALWAYS_ON_DISK, AS_IT_COMES
from benchmarks.peers.turns import Rounds, Sample, in_turns, rate_row

KINDS = {
    "noop": "jobs that do nothing",
    "result": "jobs with a result of their own",
    "line": "jobs that print a line",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """A contender on one kind of store."""

    contender: Contender
    redis_options: tuple[str, ...] = ALWAYS_ON_DISK

    @property
    def name(self) -> str:
        """Who it is, and on what."""
        store = self.contender.storage.value
        syncs = self.contender.storage is Storage.REDIS and self.redis_options == ALWAYS_ON_DISK
        return f"{self.contender.name} on {store}{', appendfsync always' if syncs else ''}"


async def run(rounds: int, jobs: int) -> list[Row]:
    """Every kind of job where stores sync to the disk; at a Redis as it comes, jobs that do nothing."""
    rates, rows = tuning.load(), []
    for kind, title in KINDS.items():
        sides = {
            entry.name: partial(_drain, entry, tuning.best_way(entry.contender, kind, rates), kind, jobs)
            for entry in entries_of(kind)
        }
        rows += rows_of(kind, await in_turns(title, rounds, sides), rates)
    return rows


async def sweep(rounds: int, jobs: int, kinds: Sequence[str], names: Sequence[str]) -> None:
    """Let every contender drain in each of its ways, in turns, and keep the rates."""
    for kind in kinds:
        for contender in (AIRUNNER, *PEERS):
            if contender.name not in names:
                continue
            entry = Entry(contender)
            sides = {way.how: partial(_drain, entry, way, kind, jobs) for way in contender.ways}
            played = await in_turns(f"{contender.name}, {KINDS[kind]}", rounds, sides)
            rates = {how: [sample.rate for sample in each.samples] for how, each in played.items()}
            tuning.save({contender.name: {kind: rates}})


def entries_of(kind: str) -> list[Entry]:
    """Return who drains jobs of a kind."""
    entries = []
    for contender in (AIRUNNER, *PEERS):
        entries.append(Entry(contender))
        if contender.storage is Storage.REDIS and kind == "noop":
            entries.append(Entry(contender, AS_IT_COMES))
    return entries


def rows_of(kind: str, played: Mapping[str, Rounds], rates: tuning.Rates) -> list[Row]:
    """Return a row for each peer, beside ours."""
    ours, *peers = entries_of(kind)
    return [
        rate_row(
            f"{KINDS[kind]}, beside {entry.name}",
            played[ours.name],
            played[entry.name],
            unit="jobs",
            note=tuning.how(entry.contender, kind, rates),
            promise=DRAINS.get((kind, entry.name)),
        )
        for entry in peers
    ]


async def _drain(entry: Entry, way: Way, kind: str, jobs: int) -> Sample:
    return await drain(entry.contender, way, kind, jobs * entry.contender.load, entry.redis_options)
