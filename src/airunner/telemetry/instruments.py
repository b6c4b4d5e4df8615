"""What metrics are made of: plain numbers, until somebody collects them.

Counting costs an addition, so it may stand where much passes. Everything is changed on the event loop and
read from the threads of those who collect; a reading is at most one step behind.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

LabelValues = tuple[str, ...]

SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Bounds for what should be over in a moment."""

LONG_SECONDS: Final = (0.01, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3_600.0, 14_400.0, 43_200.0)
"""Bounds for what may take as long as a job."""

MOST_VALUES: Final = 10_000
"""How many values of a series are remembered until somebody takes them; the oldest go first."""

_UNIT_SUFFIXES: Final = {"s": "_seconds", "By": "_bytes", "": ""}


class Instrument:
    """One metric: its name, what it means, and the names of its labels, whose values must be few."""

    def __init__(self, name: str, description: str, *labels: str, unit: str = "") -> None:
        self.name = name
        self.description = description
        self.labels = labels
        self.unit = unit

    @property
    def prometheus_name(self) -> str:
        """The name on /metrics."""
        name, suffix = self.name.replace(".", "_"), _UNIT_SUFFIXES[self.unit]
        return name if name.endswith(suffix) else name + suffix


@dataclass(frozen=True, slots=True)
class ForeignName:
    """What a metric and its labels are called where others named them first, and what it is measured in."""

    name: str
    unit: str
    labels: tuple[str, ...] = ()


class Counter(Instrument):
    """A counter: it only rises."""

    def __init__(self, name: str, description: str, *labels: str, unit: str = "") -> None:
        super().__init__(name, description, *labels, unit=unit)
        self._counts: dict[LabelValues, float] = {} if labels else {(): 0}
        self._source: Callable[[], float] | None = None

    @property
    def prometheus_name(self) -> str:
        """The name on /metrics."""
        return f"{super().prometheus_name}_total"

    def add(self, amount: float, *values: str) -> None:
        """Count so many more, under one value for each label."""
        self._counts[values] = self._counts.get(values, 0) + amount

    def follow(self, source: Callable[[], float]) -> None:
        """Let somebody else count, who is asked when it is collected. Not for one with labels."""
        self._source = source

    def read(self) -> Mapping[LabelValues, float]:
        """The counts so far."""
        return {(): self._source()} if self._source else dict(self._counts)


class Gauge(Instrument):
    """A gauge: it rises and falls. What is shown from time to time, and the sum of those it follows."""

    def __init__(self, name: str, description: str, *labels: str, unit: str = "") -> None:
        super().__init__(name, description, *labels, unit=unit)
        self._shown: Mapping[LabelValues, float] = {}
        self.times_shown = 0
        """How often `show` was called."""
        self._sources: dict[int, tuple[LabelValues, Callable[[], float]]] = {}
        self._last_key = 0

    def show(self, values: Mapping[LabelValues, float]) -> None:
        """Be this from now on; what was shown before is gone."""
        self._shown = values
        self.times_shown += 1

    def follow(self, source: Callable[[], float], *values: str) -> Callable[[], None]:
        """Add what a source says when asked, under one value for each label; return what ends that."""
        self._last_key = key = self._last_key + 1
        self._sources[key] = (values, source)

        def end() -> None:
            self._sources.pop(key, None)

        return end

    def read(self) -> Mapping[LabelValues, float]:
        """The values as they are."""
        found: dict[LabelValues, float] = {**({} if self.labels else {(): 0}), **self._shown}
        for values, source in list(self._sources.values()):
            found[values] = found.get(values, 0) + source()
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class HistogramReading:
    """How many values fell under each bound, and beyond the last; and what they come to."""

    bucket_counts: tuple[int, ...]
    total: float
    lowest: float
    highest: float


class _Series:
    """What a histogram knows under one set of label values."""

    __slots__ = ("counts", "highest", "lowest", "total")

    def __init__(self, buckets: int) -> None:
        self.counts = [0] * buckets
        self.total = 0.0
        self.lowest = float("inf")
        self.highest = 0.0

    def reading(self) -> HistogramReading:
        return HistogramReading(
            bucket_counts=tuple(self.counts), total=self.total, lowest=self.lowest, highest=self.highest
        )


class Histogram(Instrument):
    """A histogram. OpenTelemetry has none that can be observed, and its own cost 5 microseconds a value."""

    def __init__(
        self, name: str, description: str, bounds: tuple[float, ...], *labels: str, unit: str = ""
    ) -> None:
        super().__init__(name, description, *labels, unit=unit)
        self.bounds = bounds
        self._series: dict[LabelValues, _Series] = {} if labels else {(): _Series(len(bounds) + 1)}

    def record(self, value: float, times: int = 1, values: LabelValues = ()) -> None:
        """Take note of a value, under one value for each label; below zero counts as zero: clocks differ."""
        value = max(0.0, value)
        series = self._series.get(values)
        if series is None:
            series = self._series[values] = _Series(len(self.bounds) + 1)
        series.counts[bisect_left(self.bounds, value)] += times
        series.total += value * times
        series.lowest = min(series.lowest, value)
        series.highest = max(series.highest, value)

    def read(self, *values: str) -> HistogramReading:
        """The counts so far under these values of the labels."""
        return (self._series.get(values) or _Series(len(self.bounds) + 1)).reading()

    def read_all(self) -> Mapping[LabelValues, HistogramReading]:
        """The counts so far, under all values of the labels."""
        return {values: series.reading() for values, series in list(self._series.items())}


class ExactHistogram(Histogram):
    """A histogram that can hand over the values themselves, to who wants more than their buckets."""

    def __init__(
        self, name: str, description: str, bounds: tuple[float, ...], *labels: str, unit: str = ""
    ) -> None:
        super().__init__(name, description, bounds, *labels, unit=unit)
        self._remembered: dict[LabelValues, deque[float]] | None = None

    def record(self, value: float, times: int = 1, values: LabelValues = ()) -> None:
        """Take note of a value; see Histogram."""
        super().record(value, times, values)
        if self._remembered is not None:
            series = self._remembered.setdefault(values, deque(maxlen=MOST_VALUES))
            series.extend([max(0.0, value)] * times)

    def remember(self) -> None:
        """Remember values from now on: somebody will take them."""
        if self._remembered is None:
            self._remembered = {}

    def take(self) -> Mapping[LabelValues, Sequence[float]]:
        """Return the values since the last time, and forget them."""
        taken, self._remembered = self._remembered or {}, {}
        return {values: tuple(series) for values, series in taken.items()}
