"""What CloudWatch is told of a fleet: under the names of others, exact, and never twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial

import pytest
import structlog

from airunner.app import build_export_loop
from airunner.aws.cloudwatch import MOST_VALUES
from airunner.domain.errors import InternalError, ResourceExhausted, Unavailable
from airunner.telemetry import fleet_metrics
from airunner.telemetry.fleet_metrics import CLOUDWATCH_NAMES
from airunner.telemetry.instruments import LONG_SECONDS, Counter, ExactHistogram, ForeignName, Gauge
from airunner.testing.conditions import until
from tests.doubles.aws.emulator import EmulatorProcess
from tests.doubles.aws.faults import FaultKind
from tests.doubles.aws.strict import StrictProxy
from tests.support.aws_stores import outage
from tests.support.cloudwatch import Watch

pytest_plugins = ("tests.support.aws",)

PUT = "PutMetricData"


class Told:
    """Instruments like those of a fleet, and an exporter of them."""

    def __init__(self, url: str, namespace: str) -> None:
        self.duration = ExactHistogram("airunner.fleet.d", "Durations", LONG_SECONDS, "status", unit="s")
        self.successes = Counter("airunner.fleet.s", "Successes")
        self.cost = Gauge("airunner.fleet.c", "Costs", "pool")
        names = {
            self.duration: ForeignName("JobDuration", "Seconds", ("Status",)),
            self.successes: ForeignName("JobSuccess", "Count"),
            self.cost: ForeignName("PoolIdleCost", "None", ("PoolName",)),
        }
        self.watch = Watch(url, namespace, *names, names=names, at_most_once=True)

    async def send(self) -> None:
        await self.watch.exporter.send()
        self.watch.clock.advance(10)

    async def sums(self) -> tuple[float, float, float]:
        """Return what was told in all: how many durations, their sum, and how many successes."""
        durations = await self.watch.told("JobDuration", Status="success")
        successes = await self.watch.told("JobSuccess")
        return sum(n for _, n in durations), sum(s for s, _ in durations), sum(s for s, _ in successes)


@pytest.fixture
async def told(aws: StrictProxy, aws_env: str) -> AsyncIterator[Told]:
    made = Told(aws.url, aws_env)
    async with made.watch.exporter:
        yield made


async def test_durations_are_exact_and_any_number(aws: StrictProxy, told: Told) -> None:
    values = [number / 8 for number in range(400)]
    for value in (*values, 0.5):
        told.duration.record(value, values=("success",))
    told.duration.record(1.25, values=("timeout",))
    await told.send()
    assert await told.sums() == (401, sum(values) + 0.5, 0)
    assert await told.watch.told("JobDuration", Status="timeout") == [(1.25, 1)]
    assert aws.counts.calls[PUT] == 1
    await told.send()
    assert aws.counts.calls[PUT] == 1
    assert told.duration.read("timeout").total == 1.25


async def test_a_lost_answer_is_not_repeated(aws: StrictProxy, told: Told) -> None:
    for kind in (FaultKind.EXECUTE_THEN_DROP, FaultKind.RESET, FaultKind.SERVER_ERROR):
        told.successes.add(1)
        told.duration.record(2.5, values=("success",))
        aws.faults.next(PUT, kind)
        with structlog.testing.capture_logs() as logs, pytest.raises(Unavailable):
            await told.send()
        assert "metrics.answer_lost" in {entry["event"] for entry in logs}
        told.watch.clock.advance(10)
    told.successes.add(1)
    await told.send()
    # The first one was performed, those two were not, and nobody can know.
    assert await told.sums() == (1, 2.5, 2)


async def test_a_call_that_is_cancelled_is_not_repeated(aws: StrictProxy, told: Told) -> None:
    told.successes.add(1)
    aws.faults.next(PUT, FaultKind.EXECUTE_THEN_HOLD)
    sending = asyncio.create_task(told.send())
    await until(lambda: aws.counts.calls[PUT] == 1)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    await told.send()
    assert aws.counts.calls[PUT] == 1


async def test_what_certainly_did_not_happen_goes_with_the_next(
    emulator: EmulatorProcess, aws: StrictProxy, told: Told
) -> None:
    told.successes.add(1)
    told.duration.record(2.5, values=("success",))
    aws.faults.next(PUT, FaultKind.THROTTLE)
    with pytest.raises(ResourceExhausted):
        await told.send()
    with outage(emulator, "monitoring"), pytest.raises(Unavailable):
        await told.send()
    told.duration.record(2.5, values=("success",))
    await told.send()
    assert await told.sums() == (2, 5.0, 1)


async def test_what_waits_is_bounded(aws: StrictProxy, told: Told) -> None:
    for turn in range(2):
        for number in range(MOST_VALUES):
            told.duration.record(number + turn / 2, values=("success",))
        aws.faults.next(PUT, FaultKind.THROTTLE)
        with pytest.raises(ResourceExhausted):
            await told.send()
    await told.send()
    assert (await told.sums())[0] == MOST_VALUES


async def test_there_is_one_call_a_minute_however_much_happens(aws: StrictProxy, told: Told) -> None:
    clock = told.watch.clock
    loop = build_export_loop(told.watch.exporter, clock, "cloudwatch.fleet")
    loop.start()
    for minute in range(1, 4):
        for number in range(200):
            told.successes.add(1)
            told.duration.record(minute + number / 256, values=("success",))
        await until(lambda: clock.waiting == 1)
        clock.advance(60)
        await until(partial(has_called, aws, minute))
    await until(lambda: clock.waiting == 1)
    await loop.stop()
    count, _, successes = await told.sums()
    assert (count, successes, aws.counts.calls[PUT]) == (600, 600, 3)


def has_called(aws: StrictProxy, times: int) -> bool:
    return aws.counts.calls[PUT] == times


async def test_an_audit_is_told_once(aws: StrictProxy, told: Told) -> None:
    await told.send()
    assert aws.counts.calls[PUT] == 0
    told.cost.show({("builds",): 0.25, ("tests",): 0.5})
    await told.send()
    await told.send()
    told.cost.show({("builds",): 0.25})
    await told.send()
    assert await told.watch.told("PoolIdleCost", PoolName="builds") == [(0.25, 1), (0.25, 1)]
    assert await told.watch.told("PoolIdleCost", PoolName="tests") == [(0.5, 1)]


async def test_no_name_of_a_pool_keeps_the_others_from_being_told(told: Told) -> None:
    """Tags may have all characters, dimensions may not; a refused call is refused whole."""
    told.cost.show({("pöol\n",): 1.0, ("  ",): 2.0, ("x" * 2000,): 3.0, ("builds",): 4.0})
    await told.send()
    labels = {dict(one).get("PoolName", "") for one in await told.watch.labels("PoolIdleCost")}
    assert labels == {"p?ol?", "", "x" * 1024, "builds"}


async def test_a_refusal_loses_nothing(aws: StrictProxy, aws_env: str) -> None:
    told = Told(aws.url, "AWS/EC2")
    async with told.watch.exporter:
        told.successes.add(1)
        with pytest.raises(InternalError):
            await told.send()
        told.watch.exporter._namespace = told.watch.namespace = aws_env
        await told.send()
        assert (await told.sums())[2] == 1


def test_the_names_are_those_of_the_seed() -> None:
    assert {(each.name, each.labels, each.unit) for each in CLOUDWATCH_NAMES.values()} == {
        ("JobDuration", ("Status",), "Seconds"),
        ("JobSuccess", (), "Count"),
        ("JobFailure", ("Error",), "Count"),
        ("OrphanedInstancesTerminated", (), "Count"),
        ("SSMParametersDeleted", (), "Count"),
        ("JobRecordsArchived", (), "Count"),
        ("PoolIdleCost", ("PoolName",), "None"),
        ("PoolComputeCost", ("PoolName",), "None"),
        ("PoolUtilization", ("PoolName",), "Percent"),
    }
    for instrument, called in CLOUDWATCH_NAMES.items():
        assert len(instrument.labels) == len(called.labels)
        assert instrument.prometheus_name.startswith("airunner_fleet_")
    assert set(CLOUDWATCH_NAMES) <= set(fleet_metrics.FLEET_METRICS)
