"""Assignments and dequeues race with the sweep of orphans: no instance is ended that has a job.

Between any two steps of a sweep, others take steps of their own: an instance is assigned, begins a dequeue,
which may wait as long as a dequeue may, gets a job, ends one, or time passes.
"""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import dataclass, field

import pytest

from airunner.domain.errors import FailedPrecondition, Unavailable
from airunner.domain.limits import MAX_DEQUEUE_WAIT_SECONDS
from airunner.fleet.assignment import Assignments, RunnerAccess
from airunner.fleet.draining import DrainingGate
from airunner.fleet.housekeeping import orphaned_instances
from airunner.fleet.housekeeping.orphaned_instances import OrphanedInstances
from airunner.fleet.lease import TaskLease
from airunner.fleet.messages.housekeeping import TaskType
from airunner.fleet.records import Instance, InstanceState
from airunner.fleet.task_run import TaskRun
from airunner.stores.records import RunningJob, RunningPage
from airunner.testing.clock import ManualClock
from tests.support.fleet import FakeInstances, FakeParameters, FakeRecords

RACES = 10_000
DAY_MS = 24 * 3600 * 1000


@dataclass
class Score:
    """What happened in all races."""

    ended: int = 0
    ended_busy: int = 0
    refused_assignments: int = 0
    refused_dequeues: int = 0
    unmarked: int = 0


@dataclass
class Race:
    """One small fleet, and all who have to do with it."""

    dice: random.Random
    score: Score
    clock: ManualClock = field(default_factory=ManualClock)
    busy: dict[str, int] = field(default_factory=dict)
    """When the job of each busy instance began."""
    waiting: dict[str, int] = field(default_factory=dict)
    """When the dequeue of each waiting instance gets its job."""

    def __post_init__(self) -> None:
        launched_at = self.clock.now() - DAY_MS
        names = [f"i-{number}" for number in range(self.dice.randint(1, 3))]
        running = InstanceState.RUNNING
        self.instances = FakeInstances(
            *(Instance(instance_id=name, state=running, launched_at=launched_at) for name in names)
        )
        self.records = FakeRecords()
        self.parameters = FakeParameters()
        self.gate = DrainingGate(GateRecords(self.records), self.clock)
        self.instances.before = self.between
        self.records.before = self.between
        self.sweep = OrphanedInstances(self.instances, self.records, self)
        self.is_open = True

    async def running_jobs(self, cursor: str = "") -> RunningPage:
        assert not cursor
        self.between("running_jobs")
        page = RunningPage(jobs=[RunningJob("job", 1, name) for name in self.busy])
        self.between("running_jobs")
        return page

    def between(self, call: str) -> None:
        """Let others take steps before a call."""
        if self.is_open:
            self.is_open = False
            for _ in range(self.dice.choice((0, 0, 1, 2))):
                self.step(self.dice.choice(list(self.instances.known)))
            self.is_open = True

    def step(self, name: str) -> None:
        kind = self.dice.randrange(6)
        if self.instances.known[name].state is InstanceState.TERMINATED:
            return
        if kind == 0:
            self.assign(name)
        elif kind in (1, 2):
            self.begin_dequeue(name)
        elif kind == 3:
            self.end_job(name)
        else:
            self.pass_time(self.dice.random() * 10)

    def assign(self, name: str) -> None:
        """Assign an instance, now or a day ago; whoever does so may die after any of its calls."""
        clock = ManualClock(self.clock.now() - DAY_MS * self.dice.randrange(2))
        access = RunnerAccess(servers=("http://server",))
        assignments = Assignments(self.instances, self.records, self.parameters, access, clock)
        deadly = self.dice.choice(("", "", "assign", "put"))
        self.records.errors = {"assign": Unavailable()} if deadly == "assign" else {}
        self.parameters.errors = {"put": Unavailable()} if deadly == "put" else {}
        try:
            with suppress(Unavailable):
                finish(assignments.assign(name, "builds"))
        except FailedPrecondition:
            self.score.refused_assignments += 1
        finally:
            self.records.errors = {}

    def begin_dequeue(self, name: str) -> None:
        if name in self.busy or name in self.waiting:
            return
        try:
            finish(self.gate.check(name))
        except FailedPrecondition:
            self.score.refused_dequeues += 1
        else:
            wait_ms = int(self.dice.random() * MAX_DEQUEUE_WAIT_SECONDS * 1000)
            self.waiting[name] = self.clock.now() + wait_ms

    def end_job(self, name: str) -> None:
        self.busy.pop(name, None)

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        for name, when in list(self.waiting.items()):
            if when <= self.clock.now():
                del self.waiting[name]
                self.busy[name] = when

    async def run(self) -> None:
        for _ in range(3):
            lease = TaskLease(self.records, self.clock, TaskType.ORPHANED_INSTANCES, "replica")
            await lease.take()
            before = self.ended()
            run = TaskRun(self.clock, lease)
            await self.sweep.run(run)
            ended = self.ended() - before
            self.score.ended += len(ended)
            self.score.ended_busy += sum(self.is_busy(name) for name in ended)
            self.score.unmarked += sum(action.kind.value == "unmarked" for action in run.actions)
            self.pass_time(self.dice.choice((0, 20, 290, 300, 400)))

    def is_busy(self, name: str) -> bool:
        record = self.records.instances.get(name)
        is_assigned = record is not None and record.assigned_at > self.clock.now() - DAY_MS // 4
        return name in self.busy or name in self.waiting or is_assigned

    def ended(self) -> set[str]:
        known = self.instances.known
        return {name for name in known if known[name].state is InstanceState.TERMINATED}


class GateRecords(FakeRecords):
    """The same records, read by a server: others take no steps meanwhile, since they do so around it."""

    def __init__(self, records: FakeRecords) -> None:
        super().__init__()
        self.instances = records.instances


def finish(call: object) -> None:
    """Run a call to its end that waits for nothing."""
    try:
        call.send(None)  # type: ignore[attr-defined]
    except StopIteration:
        return
    raise AssertionError("the call waits")


async def raced(races: int) -> Score:
    score, dice = Score(), random.Random(14)
    for _ in range(races):
        await Race(random.Random(dice.random()), score).run()
    return score


async def test_ten_thousand_races_end_no_busy_instance() -> None:
    score = await raced(RACES)
    assert score.ended_busy == 0
    # All that may happen did.
    assert min(score.ended, score.unmarked, score.refused_assignments, score.refused_dequeues) > 100


async def test_the_races_see_a_sweep_that_is_too_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orphaned_instances, "SEEN_AGAIN_MS", 0)
    assert (await raced(1_000)).ended_busy > 0


async def test_the_races_see_a_sweep_that_looks_at_no_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nobody(*_: object) -> dict[str, str]:
        return {}

    monkeypatch.setattr(orphaned_instances, "busy_instances", nobody)
    assert (await raced(1_000)).ended_busy > 0
