"""Which of its ways a contender works in: the best of the last sweep, whose numbers are kept here.

The sweep lets every contender, ours too, drain in each of its ways, in turns. sweep.json has the jobs per
second of each round, by contender, kind of job and way; a contest takes the way with the highest median.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.peers.contenders import Contender, Way

SWEEP = Path(__file__).with_name("sweep.json")

Rates = Mapping[str, Mapping[str, Mapping[str, Sequence[float]]]]
"""The rates of a sweep, by contender, kind of job and way."""


def best_way(contender: Contender, kind: str, rates: Rates) -> Way:
    """Return the way with the highest median; without numbers, that of no-op jobs, else the first one."""
    measured = _measured(contender, kind, rates)
    known = [way for way in contender.ways if measured.get(way.how)]
    return max(known, key=lambda way: statistics.median(measured[way.how]), default=contender.ways[0])


def how(contender: Contender, kind: str, rates: Rates) -> str:
    """Say in which way a contender works."""
    swept = any(_measured(contender, kind, rates).values())
    return best_way(contender, kind, rates).how + ("" if swept else ", not swept")


def load() -> Rates:
    """Return the rates of the last sweep."""
    rates: Rates = json.loads(SWEEP.read_text()) if SWEEP.is_file() else {}
    return rates


def save(rates: Rates) -> None:
    """Keep the rates of a sweep, in place of those of the same contenders and kinds of jobs."""
    kept = {name: dict(kinds) for name, kinds in load().items()}
    for name, kinds in rates.items():
        kept.setdefault(name, {}).update(kinds)
    rounded = {
        name: {
            kind: {how: [round(rate) for rate in measured] for how, measured in ways.items()}
            for kind, ways in kinds.items()
        }
        for name, kinds in kept.items()
    }
    SWEEP.write_text(json.dumps(rounded, indent=2) + "\n")


def _measured(contender: Contender, kind: str, rates: Rates) -> Mapping[str, Sequence[float]]:
    of_kinds = rates.get(contender.name, {})
    return of_kinds.get(kind) or of_kinds.get("noop") or {}
