"""Collecting the instruments: for /metrics, and for OTLP when the environment asks for it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    HistogramDataPoint,
    Metric,
    MetricReader,
    MetricsData,
    ResourceMetrics,
)
from opentelemetry.sdk.metrics.export import Histogram as OtelHistogram
from opentelemetry.sdk.resources import Resource

from airunner.domain.clock import SystemClock
from airunner.telemetry.instruments import Counter, Gauge, Histogram
from airunner.telemetry.logs import forward_warnings, get_logger
from airunner.telemetry.otel_environment import otlp_is_wanted, sdk_is_disabled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from opentelemetry.metrics import Meter

    from airunner.telemetry.instruments import HistogramReading, Instrument, LabelValues

_log = get_logger("airunner.telemetry")

_SCOPE: Final = "airunner"
_CLOSE_MS: Final = 4_000


class Metrics:
    """The metrics of this process, as long as they are collected."""

    def __init__(self, provider: MeterProvider | None = None) -> None:
        self._provider = provider

    def close(self) -> None:
        """Send what is left, and end. Blocks for 5 seconds at most, whatever the receiver does."""
        provider, self._provider = self._provider, None
        if provider:
            try:
                provider.shutdown(_CLOSE_MS)
            except Exception as error:  # noqa: BLE001  the SDK raises nothing more precise, and we are leaving
                _log.warning("metrics.close_failed", error=str(error))


def set_up_metrics(
    service: str, instance: str, instruments: Sequence[Instrument], environment: Mapping[str, str]
) -> Metrics:
    """Have the instruments collected until `close`, as the environment's OTEL_ variables say."""
    if sdk_is_disabled(environment):
        return Metrics()
    histograms = Histograms([instrument for instrument in instruments if isinstance(instrument, Histogram)])
    readers: list[MetricReader] = [_PrometheusReader(histograms)]
    if otlp_is_wanted(environment):
        from airunner.telemetry.otlp import otlp_reader

        forward_warnings("opentelemetry", "metrics.export_failed")
        readers.append(otlp_reader(histograms))
    provider = MeterProvider(readers, _resource(service, instance), shutdown_on_exit=False)
    meter = provider.get_meter(_SCOPE)
    for instrument in instruments:
        _register(meter, instrument)
    return Metrics(provider)


class Histograms:
    """Adds our histograms to what the SDK collected."""

    def __init__(self, histograms: Sequence[Histogram]) -> None:
        self._histograms = histograms
        self._since = _now_ns()

    def added_to(self, collected: MetricsData) -> MetricsData:
        """Return the collected metrics and ours, in one scope: an encoder may keep only one of each name."""
        now = _now_ns()
        ours = [self._metric(histogram, now) for histogram in self._histograms]
        return MetricsData([_extended(resource, ours) for resource in collected.resource_metrics])

    def _metric(self, histogram: Histogram, now: int) -> Metric:
        points = [
            self._point(histogram, values, reading, now) for values, reading in histogram.read_all().items()
        ]
        data = OtelHistogram(data_points=points, aggregation_temporality=AggregationTemporality.CUMULATIVE)
        return Metric(name=histogram.name, description=histogram.description, unit=histogram.unit, data=data)

    def _point(
        self, histogram: Histogram, values: LabelValues, reading: HistogramReading, now: int
    ) -> HistogramDataPoint:
        count = sum(reading.bucket_counts)
        return HistogramDataPoint(
            attributes=dict(zip(histogram.labels, values, strict=True)),
            start_time_unix_nano=self._since,
            time_unix_nano=now,
            count=count,
            sum=reading.total,
            bucket_counts=reading.bucket_counts,
            explicit_bounds=histogram.bounds,
            min=reading.lowest if count else 0.0,
            max=reading.highest,
        )


def _extended(resource: ResourceMetrics, more: Sequence[Metric]) -> ResourceMetrics:
    scopes = [
        replace(scope, metrics=[*scope.metrics, *more]) if scope.scope.name == _SCOPE else scope
        for scope in resource.scope_metrics
    ]
    return replace(resource, scope_metrics=scopes)


class _PrometheusReader(PrometheusMetricReader):
    def __init__(self, histograms: Histograms) -> None:
        super().__init__()
        self._histograms = histograms

    def _receive_metrics(
        self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any
    ) -> None:
        super()._receive_metrics(self._histograms.added_to(metrics_data), timeout_millis, **kwargs)


def _register(meter: Meter, instrument: Instrument) -> None:
    match instrument:
        case Counter():
            create: Callable[..., object] = meter.create_observable_counter
        case Gauge():
            create = meter.create_observable_gauge
        case _:
            return

    def observe(_: CallbackOptions) -> Iterable[Observation]:
        for values, number in instrument.read().items():
            yield Observation(number, dict(zip(instrument.labels, values, strict=True)))

    create(instrument.name, [observe], unit=instrument.unit, description=instrument.description)


def _resource(service: str, instance: str) -> Resource:
    """Say who we are; OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES know better."""
    configured = Resource.create()
    ours = {"service.name": service, "service.instance.id": instance}
    named = not str(configured.attributes.get("service.name", "")).startswith("unknown_service")
    missing = {
        key: value
        for key, value in ours.items()
        if key not in configured.attributes or (key == "service.name" and not named)
    }
    return configured.merge(Resource(missing))


def _now_ns() -> int:
    return SystemClock().now() * 1_000_000
