"""The gate that keeps servers from giving jobs to instances which are about to be terminated."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import replace

import pytest

from airunner.domain.errors import FailedPrecondition
from airunner.fleet import draining
from airunner.fleet.draining import DrainingGate
from airunner.fleet.records import InstanceRecord
from airunner.testing.clock import ManualClock
from airunner.testing.conditions import until
from tests.support.fleet import FakeRecords


async def test_a_gate_asks_once_in_five_seconds_and_refuses_nobody_it_cannot_ask_about() -> None:
    clock, records = ManualClock(), FakeRecords()
    gate = DrainingGate(records, clock)
    await gate.check("i-1")
    record = (await records.read_instances(["i-1"]))["i-1"]
    assert await records.mark_draining(replace(record), clock.now())
    records.calls.clear()
    clock.advance(4.9)
    await gate.check("i-1")
    assert records.calls == []
    clock.advance(0.1)
    for _ in range(3):
        with pytest.raises(FailedPrecondition, match="i-1 is draining"):
            await gate.check("i-1")
    assert records.calls == ["read_instances"]
    clock.advance(5)
    records.errors["read_instances"] = FailedPrecondition("no such table")
    await gate.check("i-1")


class SlowRecords(FakeRecords):
    """Answers about instances when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.answer = asyncio.Event()

    async def read_instances(self, instance_ids: Collection[str]) -> Mapping[str, InstanceRecord]:
        self.calls.append("asked")
        await self.answer.wait()
        return await super().read_instances(instance_ids)


async def test_a_gate_asks_once_for_all_who_wait() -> None:
    records = SlowRecords()
    gate = DrainingGate(records, ManualClock())
    waiting = [asyncio.create_task(gate.check("i-1")) for _ in range(3)]
    await until(lambda: records.calls == ["asked"])
    # Whoever asks may go away; the others still get an answer, of one more read.
    waiting[0].cancel()
    await until(lambda: records.calls == ["asked", "asked"])
    records.answer.set()
    await asyncio.gather(*waiting[1:])
    assert records.calls.count("asked") == 2


async def test_a_gate_lets_pass_whom_it_does_not_hear_of_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draining, "READ_SECONDS", 0.01)
    clock, records = ManualClock(), SlowRecords()
    gate = DrainingGate(records, clock)
    for _ in range(3):
        await gate.check("i-1")
    # A table that hangs costs one wait in five seconds, not one for each dequeue.
    assert records.calls == ["asked"]
