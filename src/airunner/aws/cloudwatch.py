"""Metrics to CloudWatch: what was counted since the last time, and what is.

A series is a metric under one set of label values, and each one has its price, so they are bounded. Servers
share their series: a count adds up over them, a gauge that each server has is to be summed, and one that all
of them see is to be averaged.
"""

from __future__ import annotations

import asyncio
from collections import Counter as Tally
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

from airunner.aws.errors import may_have_happened
from airunner.domain.errors import error_text
from airunner.domain.splitting import split_by_count
from airunner.telemetry.instruments import Counter, ExactHistogram, ForeignName, Gauge, Histogram
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from airunner.aws.calls import Aws
    from airunner.domain.clock import Clock
    from airunner.telemetry.instruments import HistogramReading, Instrument, LabelValues

_log = get_logger("airunner.cloudwatch")

DATA_AT_ONCE: Final = 1_000
VALUES_AT_ONCE: Final = 150
MOST_SERIES: Final = 500
MOST_VALUES: Final = 10_000
"""How many values of a series wait to be told; others that come while CloudWatch takes none are lost."""
_MOST_CHARACTERS: Final = 1_024
_CLOSE_SECONDS: Final = 4.0
_UNITS: Final = {"s": "Seconds", "By": "Bytes"}

_Key: TypeAlias = "tuple[str, LabelValues]"
_Counts: TypeAlias = "tuple[float, ...]"


@dataclass(frozen=True, slots=True)
class _Point:
    """One datum to send, and what is known when it was told."""

    key: _Key
    datum: dict[str, Any]
    counted: _Counts = ()
    """What was counted in all when it was made, or how often it was shown; nothing for other gauges."""
    values: _Counts = ()
    """The values that it tells, where each of them is told."""


class CloudWatchExporter:
    """Sends metrics on each `send`, and a last time when it is closed. Opens and closes its connection.

    What could not be sent goes with the next time. A call whose reply is lost is repeated, so counts may,
    once in a while, be told twice.

    With `at_most_once` nothing is: what a call carried that may have happened is given up when its answer is
    lost, so `aws` must try each call once. A gauge is then told each time that it was shown, not each time
    that somebody asks.
    """

    def __init__(
        self,
        aws: Aws,
        namespace: str,
        instruments: Sequence[Instrument],
        clock: Clock,
        *,
        names: Mapping[Instrument, ForeignName] | None = None,
        at_most_once: bool = False,
    ) -> None:
        """`names` are those that CloudWatch is told, in place of an instrument's own."""
        self._aws = aws
        self._namespace = namespace
        self._instruments = instruments
        self._clock = clock
        self._names = names or {}
        self._at_most_once = at_most_once
        self._sent: dict[_Key, _Counts] = {}
        self._untold: dict[_Key, Tally[float]] = {}
        self._series: set[_Key] = set()

    async def __aenter__(self) -> Self:
        await self._aws.__aenter__()
        for instrument in self._instruments:
            if isinstance(instrument, ExactHistogram):
                instrument.remember()
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self.send()
        except Exception as error:  # noqa: BLE001  whatever it is, we are leaving
            _log.warning("metrics.export_failed", error=error_text(error))
        finally:
            await self._aws.__aexit__(None, None, None)

    async def send(self) -> None:
        """Send what has changed, in as few calls as possible. Must not be called while it runs."""
        at = datetime.fromtimestamp(self._clock.now() / 1000, UTC)
        points = self._bounded(list(self._points()))
        for some in split_by_count(points, DATA_AT_ONCE):
            await self._put(some, at)

    async def _put(self, points: Sequence[_Point], at: datetime) -> None:
        data = [{**point.datum, "Timestamp": at} for point in points]
        try:
            await self._aws.cloudwatch("PutMetricData", Namespace=self._namespace, MetricData=data)
        except BaseException as error:
            if self._at_most_once and may_have_happened(error):
                self._note(points)
                _log.warning("metrics.answer_lost", data=len(data))
            raise
        self._note(points)

    def _note(self, points: Sequence[_Point]) -> None:
        """Remember what was told."""
        for point in points:
            if point.counted:
                self._sent[point.key] = point.counted
            for value in point.values:
                del self._untold[point.key][value]

    def _bounded(self, points: Sequence[_Point]) -> list[_Point]:
        """Leave out series beyond the most there may be; those that were first stay."""
        for point in points:
            if len(self._series) < MOST_SERIES:
                self._series.add(point.key)
        kept = [point for point in points if point.key in self._series]
        if len(kept) < len(points):
            _log.warning("metrics.too_many", series=MOST_SERIES, left_out=len(points) - len(kept))
        return kept

    def _points(self) -> Iterator[_Point]:
        for instrument in self._instruments:
            match instrument:
                case Counter():
                    yield from self._counts(instrument)
                case Gauge():
                    yield from self._gauges(instrument)
                case ExactHistogram():
                    yield from self._exact_values(instrument)
                case Histogram():
                    yield from self._histograms(instrument)

    def _counts(self, counter: Counter) -> Iterator[_Point]:
        for values, count in counter.read().items():
            key = (counter.name, values)
            (before,) = self._sent.get(key, (0.0,))
            # A series that stands still costs nothing while it is not sent.
            if count != before:
                datum = self._datum(counter, values, "Count") | {"Value": count - before}
                yield _Point(key, datum, (count,))

    def _gauges(self, gauge: Gauge) -> Iterator[_Point]:
        shown = (float(gauge.times_shown),) if self._at_most_once else ()
        for values, value in gauge.read().items():
            key = (gauge.name, values)
            if not shown or self._sent.get(key, (0.0,)) != shown:
                yield _Point(key, self._datum(gauge, values) | {"Value": value}, shown)

    def _exact_values(self, histogram: ExactHistogram) -> Iterator[_Point]:
        for values, taken in histogram.take().items():
            untold = self._untold.setdefault((histogram.name, values), Tally())
            untold.update(taken[: max(0, MOST_VALUES - len(untold))])
        for key, untold in self._untold.items():
            if key[0] != histogram.name:
                continue
            for some in split_by_count(list(untold.items()), VALUES_AT_ONCE):
                told = {"Values": [value for value, _ in some], "Counts": [float(count) for _, count in some]}
                yield _Point(
                    key, self._datum(histogram, key[1]) | told, values=tuple(value for value, _ in some)
                )

    def _histograms(self, histogram: Histogram) -> Iterator[_Point]:
        for values, reading in histogram.read_all().items():
            key = (histogram.name, values)
            counts = tuple(map(float, reading.bucket_counts))
            before = self._sent.get(key, (0.0,) * len(counts))
            recorded = [now - then for now, then in zip(counts, before, strict=True)]
            if any(recorded):
                datum = self._datum(histogram, values) | _values(histogram, reading, recorded)
                yield _Point(key, datum, counts)

    def _datum(self, instrument: Instrument, values: LabelValues, unit: str = "None") -> dict[str, Any]:
        native = ForeignName(instrument.name, _UNITS.get(instrument.unit, unit), instrument.labels)
        called = self._names.get(instrument, native)
        dimensions = zip(called.labels, map(_dimension, values), strict=True)
        return {
            "MetricName": called.name,
            # An empty value is none to CloudWatch.
            "Dimensions": [{"Name": name, "Value": value} for name, value in dimensions if value],
            "Unit": called.unit,
        }


def _dimension(value: str) -> str:
    """Return a label's value as CloudWatch takes it; one that it refuses would keep all others from it."""
    plain = "".join(one if " " <= one <= "~" else "?" for one in value)
    return plain.strip()[:_MOST_CHARACTERS]


def _values(histogram: Histogram, reading: HistogramReading, recorded: Sequence[float]) -> dict[str, Any]:
    """Say what a histogram counted as if each value were the bound that it is under, or else the largest."""
    bounds = (*histogram.bounds, reading.highest)
    told = [(bound, count) for bound, count in zip(bounds, recorded, strict=True) if count]
    return {"Values": [bound for bound, _ in told], "Counts": [count for _, count in told]}
