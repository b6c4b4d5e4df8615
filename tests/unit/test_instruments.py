"""Instruments as plain numbers, and what the exporters make of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from prometheus_client import generate_latest

from airunner import telemetry
from airunner.telemetry.instruments import Counter, Gauge, Histogram, Instrument
from airunner.telemetry.otel_environment import otlp_is_wanted
from tests.support.scraping import Scrape

ALL = list(
    dict.fromkeys(
        (
            *telemetry.SERVER_METRICS,
            *telemetry.WORKER_METRICS,
            *telemetry.OUTBOX_METRICS,
            *telemetry.GENERATION_METRICS,
        )
    )
)
AWS_LABELS = {"service", "operation", "table", "kind"}
ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}


def test_a_counter_counts_by_the_values_of_its_labels() -> None:
    counter = Counter("t", "", "state", "outcome")
    counter.add(2, "completed", "success")
    counter.add(1, "completed", "success")
    counter.add(1, "failed", "lost")
    assert counter.read() == {("completed", "success"): 3, ("failed", "lost"): 1}


def test_a_counter_without_labels_begins_at_zero() -> None:
    assert Counter("t", "").read() == {(): 0}


def test_a_gauge_is_the_sum_of_those_it_follows() -> None:
    gauge = Gauge("l", "")
    end_of_two = gauge.follow(lambda: 2)
    gauge.follow(lambda: 3)
    assert gauge.read() == {(): 5}
    end_of_two()
    end_of_two()
    assert gauge.read() == {(): 3}


def test_a_gauge_without_labels_is_what_is_shown_and_what_it_follows() -> None:
    gauge = Gauge("l", "")
    assert gauge.read() == {(): 0}
    gauge.show({(): 4})
    assert gauge.read() == {(): 4}
    gauge.follow(lambda: 3)
    assert gauge.read() == {(): 7}
    gauge.show({})
    assert gauge.read() == {(): 3}


def test_a_gauge_with_labels_is_what_is_shown_and_what_it_follows() -> None:
    gauge = Gauge("l", "", "loop")
    gauge.show({("shown",): 1})
    ages = iter((5, 6, 7))
    end = gauge.follow(lambda: next(ages), "followed")
    assert gauge.read() == {("shown",): 1, ("followed",): 5}
    gauge.follow(lambda: 10, "followed")
    assert gauge.read() == {("shown",): 1, ("followed",): 16}
    end()
    assert gauge.read() == {("shown",): 1, ("followed",): 10}


def test_a_histogram_counts_values_up_to_each_bound() -> None:
    histogram = Histogram("s", "", (1.0, 10.0))
    for value in (-5, 0.5, 1, 1.5, 10, 11):
        histogram.record(value)
    reading = histogram.read()
    assert reading.bucket_counts == (3, 2, 1)
    assert (reading.total, reading.lowest, reading.highest) == (24, 0, 11)


def test_a_histogram_counts_by_the_values_of_its_labels() -> None:
    histogram = Histogram("s", "", (1.0,), "service")
    assert histogram.read_all() == {}
    histogram.record(0.5, 2, ("sqs",))
    histogram.record(3, values=("s3",))
    counts = {values: reading.bucket_counts for values, reading in histogram.read_all().items()}
    assert counts == {("sqs",): (2, 0), ("s3",): (0, 1)}
    assert histogram.read("sqs").total == 1
    assert histogram.read("dynamodb").bucket_counts == (0, 0)


@pytest.mark.parametrize("instrument", ALL, ids=lambda instrument: instrument.name)
def test_labels_are_few_and_known(instrument: Instrument) -> None:
    assert set(instrument.labels) <= {
        "queue",
        "state",
        "outcome",
        "then",
        "health",
        "reason",
        "loop",
        "part",
        *AWS_LABELS,
    }


def test_names_are_unique() -> None:
    names = [instrument.name for instrument in ALL]
    assert len(set(names)) == len(names)


@pytest.fixture
def collected() -> Iterator[list[Instrument]]:
    """One instrument of each kind and unit, collected for /metrics."""
    counter = Counter("test.kinds.counter", "A counter", "state", unit="s")
    gauge = Gauge("test.kinds.gauge_bytes", "A gauge", unit="By")
    histogram = Histogram("test.kinds.histogram", "A histogram", (0.1, 1.0), unit="s")
    counter.add(3, "completed")
    gauge.follow(lambda: 7)
    histogram.record(0.5)
    histogram.record(5)
    metrics = telemetry.set_up_metrics("airunner-test", "me", [counter, gauge, histogram], {})
    yield [counter, gauge, histogram]
    metrics.close()


def test_instruments_are_collected(collected: list[Instrument]) -> None:
    found = Scrape(generate_latest().decode())
    counter, gauge, histogram = (instrument.prometheus_name for instrument in collected)
    assert (counter, gauge, histogram) == (
        "test_kinds_counter_seconds_total",
        "test_kinds_gauge_bytes",
        "test_kinds_histogram_seconds",
    )
    assert found.value(counter, state="completed") == 3
    assert found.value(gauge) == 7
    buckets = [found.value(f"{histogram}_bucket", le=bound) for bound in ("0.1", "1.0", "+Inf")]
    assert buckets == [0, 1, 2]
    assert (found.value(f"{histogram}_count"), found.value(f"{histogram}_sum")) == (2, 5.5)
    assert found.label_values("target_info", "service_name") == {"airunner-test"}


def test_each_series_of_a_histogram_is_collected() -> None:
    histogram = Histogram("test.series", "A histogram", (1.0,), "service")
    histogram.record(0.5, values=("sqs",))
    histogram.record(2, times=3, values=("s3",))
    metrics = telemetry.set_up_metrics("airunner-test", "me", [Counter("test.beside", ""), histogram], {})
    found = Scrape(generate_latest().decode())
    metrics.close()
    assert found.value("test_series_count", service="sqs") == 1
    assert found.value("test_series_bucket", service="s3", le="1.0") == 0
    assert found.value("test_series_sum", service="s3") == 6


def test_nothing_is_collected_after_the_end() -> None:
    counter = Counter("test.ended", "A counter")
    telemetry.set_up_metrics("airunner-test", "me", [counter], {}).close()
    assert "test_ended" not in generate_latest().decode()


def test_a_disabled_sdk_collects_nothing() -> None:
    counter = Counter("test.disabled", "A counter")
    metrics = telemetry.set_up_metrics("airunner-test", "me", [counter], {"OTEL_SDK_DISABLED": "true"})
    assert "test_disabled" not in generate_latest().decode()
    metrics.close()


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        ({}, False),
        (ENDPOINT, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, False),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://127.0.0.1:4318/v1/metrics"}, True),
        ({**ENDPOINT, "OTEL_SDK_DISABLED": "TRUE"}, False),
        ({**ENDPOINT, "OTEL_METRICS_EXPORTER": "none"}, False),
        ({**ENDPOINT, "OTEL_METRICS_EXPORTER": "prometheus, otlp"}, True),
        ({**ENDPOINT, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, True),
        ({**ENDPOINT, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, False),
        (
            {
                **ENDPOINT,
                "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
                "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "http/protobuf",
            },
            True,
        ),
    ],
)
def test_otlp_is_for_those_who_name_a_receiver(environment: dict[str, str], wanted: bool) -> None:
    assert otlp_is_wanted(environment) is wanted
