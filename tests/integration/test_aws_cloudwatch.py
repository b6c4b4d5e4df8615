"""Metrics sent to CloudWatch, as an emulator keeps them."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import structlog

from airunner.app import build_export_loop, build_exporter
from airunner.aws.cloudwatch import DATA_AT_ONCE, MOST_SERIES
from airunner.config import ConfigError, load_settings
from airunner.config.settings import AwsSettings, Settings, StoreSettings, TelemetrySettings
from airunner.domain.clock import SystemClock
from airunner.domain.errors import Unavailable
from airunner.telemetry.instruments import Counter, Gauge, Histogram
from airunner.testing.conditions import until
from airunner.testing.factories import make_request
from tests.doubles.aws.emulator import ACCESS_KEY, REGION, SECRET_KEY, EmulatorProcess
from tests.doubles.aws.faults import ANY, FaultKind
from tests.doubles.aws.strict import StrictProxy
from tests.support.cloudwatch import Watch
from tests.support.processes import running_stack

pytest_plugins = ("tests.support.aws",)


@pytest.fixture
def jobs() -> Counter:
    return Counter("airunner.jobs", "Jobs", "state")


@pytest.fixture
async def watch(emulator: EmulatorProcess, aws_env: str, jobs: Counter) -> AsyncIterator[Watch]:
    made = Watch(emulator.url, aws_env, jobs)
    async with made.exporter:
        yield made


async def test_counts_are_what_came_since_the_last_time(watch: Watch, jobs: Counter) -> None:
    jobs.add(3, "done")
    await watch.exporter.send()
    watch.clock.advance(1)
    await watch.exporter.send()
    watch.clock.advance(49)
    jobs.add(2, "done")
    jobs.add(1, "lost")
    await watch.exporter.send()
    assert await watch.told("airunner.jobs", state="done") == [(3, 1), (2, 1)]
    assert await watch.told("airunner.jobs", state="lost") == [(1, 1)]


async def test_gauges_are_what_they_are(emulator: EmulatorProcess, aws_env: str) -> None:
    gauge = Gauge("airunner.depth", "Depth", "queue")
    gauge.show({("builds",): 7, ("",): 5})
    watch = Watch(emulator.url, aws_env, gauge)
    async with watch.exporter:
        await watch.exporter.send()
        watch.clock.advance(50)
    assert await watch.told("airunner.depth", queue="builds") == [(7, 1), (7, 1)]
    assert await watch.labels("airunner.depth") == {(), (("queue", "builds"),)}


async def test_histograms_tell_the_bounds_of_their_values(emulator: EmulatorProcess, aws_env: str) -> None:
    histogram = Histogram("airunner.time", "Time", (1.0, 5.0), unit="s")
    watch = Watch(emulator.url, aws_env, histogram)
    async with watch.exporter:
        histogram.record(0.5, times=3)
        histogram.record(8.0)
        await watch.exporter.send()
        watch.clock.advance(50)
        histogram.record(4.0)
    assert await watch.told("airunner.time") == [(3 * 1.0 + 8.0, 4), (5.0, 1)]


async def test_its_loop_sends_once_a_minute_and_it_sends_once_more_at_its_end(
    emulator: EmulatorProcess, aws_env: str, jobs: Counter
) -> None:
    watch = Watch(emulator.url, aws_env, jobs)
    loop = build_export_loop(watch.exporter, watch.clock)
    async with watch.exporter:
        loop.start()
        jobs.add(1, "done")
        await until(lambda: watch.clock.waiting == 1)
        watch.clock.advance(60)
        await until(lambda: watch.clock.waiting == 1)
        assert await watch.told("airunner.jobs", state="done") == [(1, 1)]
        jobs.add(4, "done")
        watch.clock.advance(30)
        await loop.stop()
    assert await watch.told("airunner.jobs", state="done") == [(1, 1), (4, 1)]


async def test_what_could_not_be_sent_goes_with_the_next(
    aws: StrictProxy, aws_env: str, jobs: Counter
) -> None:
    watch = Watch(aws.url, aws_env, jobs)
    async with watch.exporter:
        jobs.add(3, "done")
        aws.faults.next(ANY, FaultKind.RESET)
        with pytest.raises(Unavailable):
            await watch.exporter.send()
        jobs.add(2, "done")
        await watch.exporter.send()
    assert await watch.told("airunner.jobs", state="done") == [(5, 1)]


async def test_a_failure_is_logged_and_no_more(aws: StrictProxy, aws_env: str, jobs: Counter) -> None:
    watch = Watch(aws.url, aws_env, jobs)
    jobs.add(1, "done")
    aws.faults.next(ANY, FaultKind.RESET)
    with structlog.testing.capture_logs() as logs:
        async with watch.exporter:
            pass
    assert [entry["event"] for entry in logs if entry["log_level"] == "warning"][
        -1
    ] == "metrics.export_failed"


async def test_series_are_bounded_and_the_first_stay(watch: Watch, jobs: Counter) -> None:
    for number in range(MOST_SERIES + 2):
        jobs.add(1, f"s{number}")
    with structlog.testing.capture_logs() as logs:
        await watch.exporter.send()
    assert [(entry["event"], entry["left_out"]) for entry in logs] == [("metrics.too_many", 2)]
    jobs.add(1, "s0")
    watch.clock.advance(50)
    await watch.exporter.send()
    assert await watch.told("airunner.jobs", state="s0") == [(1, 1), (1, 1)]
    assert await watch.told("airunner.jobs", state=f"s{MOST_SERIES}") == []


def test_all_series_fit_one_call() -> None:
    assert MOST_SERIES <= DATA_AT_ONCE


async def test_a_server_sends_its_metrics(emulator: EmulatorProcess, aws_env: str, tmp_path: Path) -> None:
    environment = {
        "AIRUNNER_TELEMETRY__CLOUDWATCH_NAMESPACE": aws_env,
        "AWS_ENDPOINT_URL": emulator.url,
        "AWS_REGION": REGION,
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
    }
    async with running_stack(tmp_path, environment) as stack:
        server = await stack.start_server("--store", "memory")
        async with stack.client() as client:
            await client.enqueue_jobs([make_request()])
        server.send(signal.SIGTERM)
        assert await server.ended() == 0
    watch = Watch(emulator.url, aws_env)
    assert await watch.labels("airunner.jobs.enqueued") == {()}


async def test_without_a_namespace_nothing_is_sent(emulator: EmulatorProcess) -> None:
    store = StoreSettings(aws=AwsSettings(region=REGION, endpoint_url=emulator.url))
    assert build_exporter(Settings(store=store), SystemClock()) is None
    named = TelemetrySettings(cloudwatch_namespace="airunner")
    assert build_exporter(Settings(store=store, telemetry=named), SystemClock())


def test_a_namespace_needs_a_region() -> None:
    named = TelemetrySettings(cloudwatch_namespace="airunner")
    with pytest.raises(ConfigError, match=r"store\.aws\.region"):
        build_exporter(Settings(telemetry=named), SystemClock())


@pytest.mark.parametrize("namespace", ["AWS/EC2", ":a", "ä", "x" * 256])
def test_a_namespace_is_one_of_cloudwatch(namespace: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="namespace of CloudWatch"):
        load_settings(environ={}, flags={"telemetry.cloudwatch_namespace": namespace}, cwd=tmp_path)
