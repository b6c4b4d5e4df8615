"""Instruments as plain numbers, and what the exporters make of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from prometheus_client import generate_latest

from airunner import telemetry
from airunner.telemetry.instruments import Counter, Gauge, Histogram, Instrument
from airunner.telemetry.otel_environment import otlp_is_wanted
from tests.support.scraping import Scrape

ALL = (*telemetry.SERVER_METRICS, *telemetry.WORKER_METRICS)
AWS_LABELS = {"service", "operation", "table", "kind"}
ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}


def test_a_tally_counts_by_the_values_of_its_labels() -> None:
    tally = Counter("t", "", "state", "outcome")
    tally.add(2, "completed", "success")
    tally.add(1, "completed", "success")
    tally.add(1, "failed", "lost")
    assert tally.read() == {("completed", "success"): 3, ("failed", "lost"): 1}


def test_a_tally_without_labels_begins_at_zero() -> None:
    assert Counter("t", "").read() == {(): 0}


def test_a_level_is_the_sum_of_those_it_follows() -> None:
    level = Gauge("l", "")
    end_of_two = level.follow(lambda: 2)
    level.follow(lambda: 3)
    assert level.read() == {(): 5}
    end_of_two()
    end_of_two()
    assert level.read() == {(): 3}


def test_a_spread_counts_values_up_to_each_bound() -> None:
    spread = Histogram("s", "", (1.0, 10.0))
    for value in (-5, 0.5, 1, 1.5, 10, 11):
        spread.record(value)
    reading = spread.read()
    assert reading.bucket_counts == (3, 2, 1)
    assert (reading.total, reading.lowest, reading.highest) == (24, 0, 11)


def test_a_spread_counts_by_the_values_of_its_labels() -> None:
    spread = Histogram("s", "", (1.0,), "service")
    assert spread.read_all() == {}
    spread.record(0.5, 2, ("sqs",))
    spread.record(3, values=("s3",))
    counts = {values: reading.bucket_counts for values, reading in spread.read_all().items()}
    assert counts == {("sqs",): (2, 0), ("s3",): (0, 1)}
    assert spread.read("sqs").total == 1
    assert spread.read("dynamodb").bucket_counts == (0, 0)


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
        *AWS_LABELS,
    }


def test_names_are_unique() -> None:
    names = [instrument.name for instrument in ALL]
    assert len(set(names)) == len(names)


@pytest.fixture
def collected() -> Iterator[list[Instrument]]:
    """One instrument of each kind and unit, collected for /metrics."""
    tally = Counter("test.kinds.tally", "A tally", "state", unit="s")
    level = Gauge("test.kinds.level_bytes", "A level", unit="By")
    spread = Histogram("test.kinds.spread", "A spread", (0.1, 1.0), unit="s")
    tally.add(3, "completed")
    level.follow(lambda: 7)
    spread.record(0.5)
    spread.record(5)
    metrics = telemetry.set_up_metrics("airunner-test", "me", [tally, level, spread], {})
    yield [tally, level, spread]
    metrics.close()


def test_instruments_are_collected(collected: list[Instrument]) -> None:
    found = Scrape(generate_latest().decode())
    tally, level, spread = (instrument.prometheus_name for instrument in collected)
    assert (tally, level, spread) == (
        "test_kinds_tally_seconds_total",
        "test_kinds_level_bytes",
        "test_kinds_spread_seconds",
    )
    assert found.value(tally, state="completed") == 3
    assert found.value(level) == 7
    buckets = [found.value(f"{spread}_bucket", le=bound) for bound in ("0.1", "1.0", "+Inf")]
    assert buckets == [0, 1, 2]
    assert (found.value(f"{spread}_count"), found.value(f"{spread}_sum")) == (2, 5.5)
    assert found.label_values("target_info", "service_name") == {"airunner-test"}


def test_each_series_of_a_spread_is_collected() -> None:
    spread = Histogram("test.series", "A spread", (1.0,), "service")
    spread.record(0.5, values=("sqs",))
    spread.record(2, times=3, values=("s3",))
    metrics = telemetry.set_up_metrics("airunner-test", "me", [Counter("test.beside", ""), spread], {})
    found = Scrape(generate_latest().decode())
    metrics.close()
    assert found.value("test_series_count", service="sqs") == 1
    assert found.value("test_series_bucket", service="s3", le="1.0") == 0
    assert found.value("test_series_sum", service="s3") == 6


def test_nothing_is_collected_after_the_end() -> None:
    tally = Counter("test.ended", "A tally")
    telemetry.set_up_metrics("airunner-test", "me", [tally], {}).close()
    assert "test_ended" not in generate_latest().decode()


def test_a_disabled_sdk_collects_nothing() -> None:
    tally = Counter("test.disabled", "A tally")
    metrics = telemetry.set_up_metrics("airunner-test", "me", [tally], {"OTEL_SDK_DISABLED": "true"})
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
