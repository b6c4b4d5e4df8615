"""Logs and metrics. Without `set_up`, both cost next to nothing and go nowhere."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING

import structlog
from opentelemetry import metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_meter = metrics.get_meter("airunner")


class Tally:
    """A counter that is a plain number until somebody collects it, so that counting costs nothing."""

    def __init__(self, name: str, description: str, label: str = "") -> None:
        self._label = label
        self._counts: dict[str, int] = {"": 0} if not label else {}
        _meter.create_observable_counter(name, [self._observe], description=description)

    def add(self, amount: int, value: str = "") -> None:
        """Count so many more, under a value of the label if the tally has one."""
        self._counts[value] = self._counts.get(value, 0) + amount

    def _observe(self, _: metrics.CallbackOptions) -> Iterable[metrics.Observation]:
        for value, count in list(self._counts.items()):
            yield metrics.Observation(count, {self._label: value} if self._label else None)


jobs_enqueued = Tally("airunner.jobs.enqueued", "Jobs that were added")
jobs_dequeued = Tally("airunner.jobs.dequeued", "Attempts that were begun")
jobs_redelivered = Tally("airunner.jobs.redelivered", "Attempts beyond the first of their job")
jobs_completed = Tally("airunner.jobs.completed", "Jobs that ended, by state", label="state")
jobs_released = Tally("airunner.jobs.released", "Attempts that were given back")
events_published = Tally("airunner.events.published", "Events that were stored")


def gauge_streams(count: Callable[[], int]) -> None:
    """Have the number of open streams observed."""

    def observe(_: metrics.CallbackOptions) -> Iterable[metrics.Observation]:
        yield metrics.Observation(count())

    _meter.create_observable_gauge("airunner.streams.active", [observe], description="Open event streams")


def set_up_metrics() -> None:
    """Have metrics collected for /metrics. Once for a process."""
    from opentelemetry.exporter.prometheus import PrometheusMetricReader
    from opentelemetry.sdk.metrics import MeterProvider

    metrics.set_meter_provider(MeterProvider(metric_readers=[PrometheusMetricReader()]))


def set_up_logs(level: str, style: str = "auto") -> None:
    """Write logs to standard error: for people on a terminal, as JSON otherwise."""
    people = style == "console" or (style == "auto" and sys.stderr.isatty())
    renderer: structlog.typing.Processor = (
        # A traceback shows where, never the values there: they may be secret.
        structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
        if people
        else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
