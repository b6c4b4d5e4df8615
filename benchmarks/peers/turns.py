"""Rounds in which everybody has a turn, and two sides beside each other, by the clock and by CPU."""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from benchmarks.harness import Row
from benchmarks.peers.promises import Promise
from benchmarks.peers.provision import Missing


@dataclass(frozen=True, slots=True)
class Sample:
    """What so many jobs, calls or lines took in one round, and the CPU seconds of all processes for them."""

    count: float
    seconds: float
    cpu: float

    @property
    def rate(self) -> float:
        """How many there were a second."""
        return self.count / self.seconds

    @property
    def per_cpu_second(self) -> float:
        """How many there were for a second of CPU."""
        return self.count / self.cpu


@dataclass(slots=True)
class Rounds:
    """The rounds of one side; or why it has none."""

    samples: list[Sample] = field(default_factory=list)
    missing: str = ""

    @property
    def rate(self) -> float:
        """The median rate."""
        return statistics.median(sample.rate for sample in self.samples)

    @property
    def per_cpu_second(self) -> float:
        """The median of how many there were for a second of CPU."""
        return statistics.median(sample.per_cpu_second for sample in self.samples)

    def as_rates(self, unit: str) -> str:
        """Return the medians, with the lowest and the highest rate."""
        rates = [sample.rate for sample in self.samples]
        spread = f"{min(rates):,.0f} to {max(rates):,.0f}"
        return f"{self.rate:,.0f} {unit}/s ({spread}), {self.per_cpu_second:,.0f} a CPU-second"

    def as_times(self) -> str:
        """Return the median of what one took, with the shortest and the longest, and its CPU."""
        took = [1000 / sample.rate for sample in self.samples]
        spread = f"{min(took):.2f} to {max(took):.2f}"
        return f"{1000 / self.rate:.2f} ms ({spread}), {1000 / self.per_cpu_second:.2f} ms of CPU"


async def in_turns(
    title: str, rounds: int, sides: Mapping[str, Callable[[], Awaitable[Sample]]]
) -> dict[str, Rounds]:
    """Give each side a turn in each round, so that a disturbance hits all; tell each round on standard error.

    A side that fails is out from then on, and its rounds say why.
    """
    played = {name: Rounds() for name in sides}
    for number in range(rounds):
        for name, side in sides.items():
            if not played[name].missing:
                await _play(played[name], side)
        told = [f"{name} {each.samples[-1].rate:,.1f}" for name, each in played.items() if each.samples]
        print(
            f"{title}, round {number + 1} of {rounds}, a second: {'; '.join(told)}",
            file=sys.stderr,
            flush=True,
        )
    return played


def rate_row(
    name: str, ours: Rounds, theirs: Rounds, *, unit: str, note: str, promise: Promise | None = None
) -> Row:
    """Return the row of a rate beside another; a promise is the least ratio."""
    goal = f">= {promise}" if promise else ""
    if missing := ours.missing or theirs.missing:
        return Row(name=name, measured=f"not run: {missing}", goal=goal, met=False)
    ratio = ours.rate / theirs.rate
    return Row(
        name=name,
        measured=ours.as_rates(unit),
        limit=f"{theirs.as_rates(unit)}, {note}",
        ratio=ratio,
        cpu_ratio=ours.per_cpu_second / theirs.per_cpu_second,
        goal=goal,
        met=not promise or ratio >= promise.bound,
    )


def time_row(name: str, ours: Rounds, theirs: Rounds, *, note: str, promise: Promise | None = None) -> Row:
    """Return the row of what one takes beside another; a promise is the highest ratio."""
    goal = f"<= {promise}" if promise else ""
    if missing := ours.missing or theirs.missing:
        return Row(name=name, measured=f"not run: {missing}", goal=goal, met=False)
    ratio = theirs.rate / ours.rate
    return Row(
        name=name,
        measured=ours.as_times(),
        limit=f"{theirs.as_times()}, {note}",
        ratio=ratio,
        cpu_ratio=theirs.per_cpu_second / ours.per_cpu_second,
        goal=goal,
        met=not promise or ratio <= promise.bound,
    )


async def _play(rounds: Rounds, side: Callable[[], Awaitable[Sample]]) -> None:
    try:
        rounds.samples.append(await side())
    except (Missing, RuntimeError, subprocess.SubprocessError) as error:
        rounds.missing = f"{error}"
