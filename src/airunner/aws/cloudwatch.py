"""Metrics to CloudWatch: what was counted since the last time, and what is.

A series is a metric under one set of label values, and each one has its price, so they are bounded. Servers
share their series: a count adds up over them, a gauge that each server has is to be summed, and one that all
of them see is to be averaged.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

from airunner.domain.errors import error_text
from airunner.domain.splitting import split_by_count
from airunner.telemetry.instruments import Counter, Gauge, Histogram
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from airunner.aws.calls import Aws
    from airunner.domain.clock import Clock
    from airunner.telemetry.instruments import HistogramReading, Instrument, LabelValues

_log = get_logger("airunner.cloudwatch")

DATA_AT_ONCE: Final = 1_000
MOST_SERIES: Final = 500
_CLOSE_SECONDS: Final = 4.0
_UNITS: Final = {"s": "Seconds", "By": "Bytes"}

_Key: TypeAlias = "tuple[str, LabelValues]"
_Counts: TypeAlias = "tuple[float, ...]"


@dataclass(frozen=True, slots=True)
class _Point:
    """One datum to send, and what was counted in all when it was made; nothing for what is no count."""

    key: _Key
    datum: dict[str, Any]
    counted: _Counts = ()


class CloudWatchExporter:
    """Sends metrics on each `send`, and a last time when it is closed. Opens and closes its connection.

    What could not be sent goes with the next time. A call whose reply is lost is repeated, so counts may,
    once in a while, be told twice.
    """

    def __init__(self, aws: Aws, namespace: str, instruments: Sequence[Instrument], clock: Clock) -> None:
        self._aws = aws
        self._namespace = namespace
        self._instruments = instruments
        self._clock = clock
        self._sent: dict[_Key, _Counts] = {}
        self._series: set[_Key] = set()

    async def __aenter__(self) -> Self:
        await self._aws.__aenter__()
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
            data = [{**point.datum, "Timestamp": at} for point in some]
            await self._aws.cloudwatch("PutMetricData", Namespace=self._namespace, MetricData=data)
            self._sent.update((point.key, point.counted) for point in some if point.counted)

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
                    yield from _gauges(instrument)
                case Histogram():
                    yield from self._histograms(instrument)

    def _counts(self, counter: Counter) -> Iterator[_Point]:
        for values, count in counter.read().items():
            key = (counter.name, values)
            (before,) = self._sent.get(key, (0.0,))
            # A series that stands still costs nothing while it is not sent.
            if count != before:
                unit = _UNITS.get(counter.unit, "Count")
                yield _Point(key, _datum(counter, values, unit) | {"Value": count - before}, (count,))

    def _histograms(self, histogram: Histogram) -> Iterator[_Point]:
        for values, reading in histogram.read_all().items():
            key = (histogram.name, values)
            counts = tuple(map(float, reading.bucket_counts))
            before = self._sent.get(key, (0.0,) * len(counts))
            recorded = [now - then for now, then in zip(counts, before, strict=True)]
            if any(recorded):
                datum = _datum(histogram, values, _UNITS.get(histogram.unit, "None"))
                yield _Point(key, datum | _values(histogram, reading, recorded), counts)


def _gauges(gauge: Gauge) -> Iterator[_Point]:
    for values, value in gauge.read().items():
        datum = _datum(gauge, values, _UNITS.get(gauge.unit, "None"))
        yield _Point((gauge.name, values), datum | {"Value": value})


def _values(histogram: Histogram, reading: HistogramReading, recorded: Sequence[float]) -> dict[str, Any]:
    """Say what a histogram counted as if each value were the bound that it is under, or else the largest."""
    bounds = (*histogram.bounds, reading.highest)
    told = [(bound, count) for bound, count in zip(bounds, recorded, strict=True) if count]
    return {"Values": [bound for bound, _ in told], "Counts": [count for _, count in told]}


def _datum(instrument: Instrument, values: LabelValues, unit: str) -> dict[str, Any]:
    labels = zip(instrument.labels, values, strict=True)
    return {
        "MetricName": instrument.name,
        # An empty value is none to CloudWatch.
        "Dimensions": [{"Name": name, "Value": value} for name, value in labels if value],
        "Unit": unit,
    }
