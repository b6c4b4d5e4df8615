"""What a partition key can take: units of capacity in buckets that fill with time, whoever's time that is.

DynamoDB grants every partition key of a table, and every one of an index, 1,000 write units and 3,000 read
units a second. A write is refused if the table's key or that of any index that it changes has none left.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

from tests.doubles.aws.tables.rules import item_bytes
from tests.doubles.aws.tables.schemas import Item, TableSchema

Kind = Literal["write", "read"]

UNITS_A_SECOND: Final[dict[Kind, float]] = {"write": 1_000, "read": 3_000}
_UNIT_BYTES: Final[dict[Kind, int]] = {"write": 1024, "read": 4096}


@dataclass(frozen=True, slots=True)
class PartitionKey:
    """A partition key of a table, or of one of its indexes."""

    table: str
    value: str
    index: str = ""


@dataclass(frozen=True, slots=True)
class Charge:
    """What a call takes from one partition key."""

    key: PartitionKey
    kind: Kind
    units: float


class Throughput:
    """The buckets of all partition keys; a call may leave one in debt, and the next one waits.

    `scale` makes them smaller, so that a small load is to them what a large one is to AWS. They hold what
    comes in `saved_seconds`.
    """

    def __init__(self, now: Callable[[], float], *, scale: float = 1.0, saved_seconds: float = 1.0) -> None:
        self._now = now
        self._saved_seconds = saved_seconds
        self._rates = {kind: units * scale for kind, units in UNITS_A_SECOND.items()}
        self._buckets: dict[tuple[PartitionKey, Kind], tuple[float, float]] = {}
        self.taken: dict[tuple[PartitionKey, Kind], float] = defaultdict(float)
        """The units that calls were granted."""
        self.refused: Counter[tuple[PartitionKey, Kind]] = Counter()
        """How often a call found nothing left."""

    def rate(self, kind: Kind) -> float:
        """Return how many units a second a key is granted."""
        return self._rates[kind]

    def take(self, charges: Iterable[Charge]) -> bool:
        """Take all of it, or nothing: then a bucket was empty."""
        wanted = list(charges)
        empty = [charge for charge in wanted if self._left(charge) <= 0]
        for charge in empty:
            self.refused[charge.key, charge.kind] += 1
        if not empty:
            self.owe(wanted)
        return not empty

    def owe(self, charges: Iterable[Charge]) -> None:
        """Take all of it, whether it is there or not."""
        for charge in charges:
            self._buckets[charge.key, charge.kind] = (self._left(charge) - charge.units, self._now())
            self.taken[charge.key, charge.kind] += charge.units

    def _left(self, charge: Charge) -> float:
        rate, now = self._rates[charge.kind], self._now()
        full = rate * self._saved_seconds
        left, since = self._buckets.get((charge.key, charge.kind), (full, now))
        return min(full, left + (now - since) * rate)


def write_charges(
    table: str, schema: TableSchema, before: Item | None, after: Item | None, *, factor: int = 1
) -> Iterator[Charge]:
    """Yield what a write costs that makes one of the other; `factor` is 2 in a transaction."""
    whole = after or before or {}
    units = _units("write", max(item_bytes(before or {}), item_bytes(after or {})))
    if whole:
        yield Charge(PartitionKey(table, _text(whole, schema.key[0])), "write", factor * units)
    for name, index in schema.indexes.items():
        old, new = (
            index.projected(item) if item and all(part in item for part in index.key) else None
            for item in (before, after)
        )
        moved = old and new and any(old[part] != new[part] for part in index.key)
        entries = [entry for entry in (old, new) if entry] if moved or not (old and new) else [new]
        for entry in entries if old != new else []:
            key = PartitionKey(table, _text(entry or {}, index.key[0]), name)
            yield Charge(key, "write", _units("write", item_bytes(entry or {})))


def read_charge(key: PartitionKey, size: int, *, consistent: bool) -> Charge:
    """Return what reading so many bytes costs."""
    return Charge(key, "read", _units("read", size) * (1.0 if consistent else 0.5))


def _units(kind: Kind, size: int) -> int:
    return max(1, math.ceil(size / _UNIT_BYTES[kind]))


def _text(item: Item, name: str) -> str:
    return str(next(iter(item[name].values())))
