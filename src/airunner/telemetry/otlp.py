"""Sending metrics by OTLP over HTTP. Only imported when it is asked for: it brings its own HTTP library."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import MetricExportResult, MetricReader, PeriodicExportingMetricReader

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricsData

    from airunner.telemetry.export import Histograms


def otlp_reader(histograms: Histograms) -> MetricReader:
    """Return what sends metrics now and then, from a thread of its own.

    Address, headers, interval (60 s) and deadline of a call (10 s) are those of the OTEL_ variables.
    """
    return PeriodicExportingMetricReader(_Exporter(histograms))


class _Exporter(OTLPMetricExporter):
    def __init__(self, histograms: Histograms) -> None:
        super().__init__()
        self._histograms = histograms

    def export(
        self, metrics_data: MetricsData, timeout_millis: float | None = 10_000, **kwargs: Any
    ) -> MetricExportResult:
        return super().export(self._histograms.added_to(metrics_data), timeout_millis, **kwargs)
