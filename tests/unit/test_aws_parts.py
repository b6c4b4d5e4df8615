"""The parts of a store on AWS: who is asked when, and what is made of the answers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from airunner import telemetry
from airunner.aws.calls import Aws, AwsOptions
from airunner.aws.parts import AwsParts
from airunner.aws.wellness import Wellness
from airunner.domain.errors import Unavailable
from airunner.services.maintenance import PartsWatch
from airunner.testing.clock import ManualClock
from airunner.testing.conditions import until

TABLES = {"jobs": {"job_id": {"S": "check#"}}, "events": {"job_id": {"S": "check#"}}}


class AskedAws(Aws):
    """Answers what it is told to, and writes down who was asked."""

    def __init__(self, wellness: Wellness) -> None:
        super().__init__(AwsOptions(region="eu-west-1"))
        self._wellness = wellness
        self.trouble: dict[str, str] = {}
        self.questions: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def ask_table(self, table: str, _: Mapping[str, Any]) -> str:
        self.questions.append(table)
        await self.gate.wait()
        if table == "jobs" and not self.trouble.get(table):
            self._wellness.answered()
        return self.trouble.get(table, "")


class Bench:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.wellness = Wellness(self.clock)
        self.aws = AskedAws(self.wellness)
        self.others = {"queue builds": "", "queue other": "does not exist", "bucket": ""}
        asks = {name: self._asking(name) for name in self.others}
        self.parts = AwsParts(self.aws, self.clock, self.wellness, tables=TABLES, others=asks)

    def _asking(self, name: str) -> Any:
        async def ask() -> str:
            self.aws.questions.append(name)
            return self.others[name]

        return ask


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def test_the_jobs_table_is_asked_after_a_second_of_silence(bench: Bench) -> None:
    await bench.parts.keep_well()
    assert bench.aws.questions == []
    bench.clock.advance(1)
    await bench.parts.keep_well()
    await bench.parts.keep_well()
    assert bench.aws.questions == ["jobs"]
    bench.clock.advance(0.9)
    bench.wellness.answered()
    bench.clock.advance(0.9)
    await bench.parts.keep_well()
    assert (bench.aws.questions, bench.parts.well_seconds) == (["jobs"], 1.8)


async def test_the_loops_ask_at_least_every_two_seconds_whatever_hangs(bench: Bench) -> None:
    wellness, others = PartsWatch(bench.parts, bench.clock).loops()

    async def hang() -> str:
        await asyncio.Event().wait()
        raise AssertionError

    bench.parts._others = {"queue builds": hang}
    for loop in (wellness, others):
        loop.start()
    for _ in range(10):
        await until(lambda: bench.clock.waiting == 1)
        bench.clock.advance(1)
        await until(lambda: bench.clock.waiting == 1)
        assert bench.wellness.silent_ms < 2_000
    assert bench.parts.well_seconds > 5
    bench.aws.trouble["jobs"] = "does not answer"
    for _ in range(6):
        bench.clock.advance(1)
        await until(lambda: bench.clock.waiting == 1)
    assert (bench.parts.well_seconds, wellness.healthy, wellness.last_error) == (0, True, "")
    for loop in (wellness, others):
        await loop.stop()


async def test_the_others_are_asked_in_turn_and_shown(bench: Bench) -> None:
    watch = PartsWatch(bench.parts, bench.clock)
    for _ in range(4):
        await watch.ask_next()
    assert bench.aws.questions == ["queue builds", "queue other", "bucket", "queue builds"]
    assert bench.parts.troubles == bench.others
    shown = telemetry.store_part_up.read()
    assert shown == {("queue builds",): 1, ("queue other",): 0, ("bucket",): 1}
    bench.others["queue other"] = ""
    await watch.ask_next()
    assert telemetry.store_part_up.read()["queue other",] == 1


async def test_a_check_asks_the_tables_alone_and_not_each_time(bench: Bench) -> None:
    for _ in range(100):
        await bench.parts.check_tables()
    assert bench.aws.questions == ["jobs", "events"]
    bench.aws.trouble = {"jobs": "is too busy", "events": "does not exist"}
    bench.clock.advance(1.5)
    for _ in range(2):
        with pytest.raises(
            Unavailable, match=r"^The table jobs is too busy.; The table events does not exist.$"
        ):
            await bench.parts.check_tables()
    assert len(bench.aws.questions) == 4
    bench.aws.trouble.clear()
    bench.clock.advance(1.5)
    await bench.parts.check_tables()


async def test_who_comes_during_a_check_shares_its_answer_and_may_leave(bench: Bench) -> None:
    bench.aws.gate.clear()
    checks = [asyncio.create_task(bench.parts.check_tables()) for _ in range(3)]
    await until(lambda: len(bench.aws.questions) == 2)
    checks[0].cancel()
    await asyncio.wait({checks[0]})
    bench.aws.gate.set()
    await asyncio.gather(*checks[1:])
    assert len(bench.aws.questions) == 2


async def test_a_store_without_other_parts_asks_nobody(bench: Bench) -> None:
    parts = AwsParts(bench.aws, bench.clock, bench.wellness, tables=TABLES, others={})
    await parts.ask_next()
    assert parts.troubles == {}
