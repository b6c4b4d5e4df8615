"""The books of an attempt, from its message to CloudWatch: job, row, parameter, mark and metric."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from airunner.app import build_export_loop
from airunner.domain.job import JobState, Outcome
from airunner.fleet.messages.termination import EndStatus
from airunner.testing.conditions import until
from tests.doubles.aws.emulator import EmulatorProcess
from tests.doubles.aws.strict import StrictAws
from tests.support.cloudwatch import watch_of_fleet
from tests.support.fleet_world import FleetWorld, opened_fleet

pytest_plugins = ("tests.support.aws",)


@pytest.fixture
async def world(strict_aws: StrictAws, emulator: EmulatorProcess, aws_env: str) -> AsyncIterator[FleetWorld]:
    async with opened_fleet(strict_aws, emulator, aws_env) as opened:
        yield opened


async def test_an_attempt_is_closed_everywhere_and_told_to_cloudwatch_exactly(world: FleetWorld) -> None:
    proxy = world.survivor.proxy
    watch = watch_of_fleet(proxy.url, world.env)
    async with watch.exporter:
        # What other tests of this process have counted.
        await watch.exporter.send()
        loop = build_export_loop(watch.exporter, watch.clock)
        loop.start()
        await until(lambda: watch.clock.waiting > 0)
        proxy.counts.reset()
        done, timed_out = await world.run_jobs(count=2)
        reports = (world.end(done), world.end(timed_out, EndStatus.TIMEOUT))
        async with world.survivor.working():
            # Each comes twice.
            await world.send(*reports, *reports)
            await world.until_empty()
        watch.clock.advance(60)
        await until(lambda: proxy.counts.calls["PutMetricData"] == 1)
        await until(lambda: watch.clock.waiting > 0)
        await loop.stop()

    life = await world.survivor.store.get_life(done.job.job_id)
    assert (life.state, life.result and life.result.outcome) == (JobState.COMPLETED, Outcome.SUCCESS)
    assert await world.state(timed_out) is JobState.FAILED
    for one in (done, timed_out):
        assert not await world.has_parameter(one.job.life.instance_id)
        assert not await world.survivor.records.count_once(one.job.job_id, "1", 0)
    assert (await world.waiting(), await world.put_aside()) == (0, 0)
    assert (await watch.told("JobDuration", Status="success"))[-1] == (12.5, 1)
    assert (await watch.told("JobDuration", Status="timeout"))[-1] == (12.5, 1)
    assert (await watch.told("JobSuccess"))[-1] == (1, 1)
    assert (await watch.told("JobFailure", Error="Timeout"))[-1] == (1, 1)
    assert proxy.counts.calls["PutMetricData"] == 1
