"""The housekeeping tasks as rules: what they do, what they spare, and what they tell of it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from airunner.domain.errors import AirunnerError, FailedPrecondition, Unavailable
from airunner.fleet.consuming import fleet_consumer
from airunner.fleet.dependencies import Dependencies
from airunner.fleet.housekeeper import Housekeeper
from airunner.fleet.housekeeping.old_jobs import PurgedOldJobs
from airunner.fleet.housekeeping.orphaned_instances import OrphanedInstances
from airunner.fleet.housekeeping.pool_audit import PoolAudits
from airunner.fleet.housekeeping.stale_ssm import StaleParameters
from airunner.fleet.lease import LEASE_MS, LeaseTaken
from airunner.fleet.messages.housekeeping import (
    HousekeepingMessage,
    TaskType,
    format_housekeeping,
    parse_housekeeping,
)
from airunner.fleet.records import (
    HousekeepingRun,
    Instance,
    InstanceState,
    Pool,
    RunnerParameter,
    RunOutcome,
)
from airunner.fleet.task_run import HousekeepingTask
from airunner.queues.consumer import Consumer
from airunner.queues.memory import MemoryQueue
from airunner.queues.messages import NewMessage
from airunner.stores.records import PurgedJobs, RunningJob, RunningPage
from airunner.testing.clock import ManualClock
from airunner.testing.conditions import until
from tests.support.fleet import (
    FakeInstances,
    FakeParameters,
    FakePrices,
    FakeRecords,
    while_time_passes,
)

HOUR = 3600
ORPHANS, STALE = TaskType.ORPHANED_INSTANCES, TaskType.STALE_SSM


class FakeRunningJobs:
    """Which instance has a job, one job a page."""

    def __init__(self) -> None:
        self.busy: list[str] = []
        self.walks = 0
        self.error: AirunnerError | None = None
        self.gate = asyncio.Event()
        """What each page waits for."""
        self.gate.set()

    async def running_jobs(self, cursor: str = "") -> RunningPage:
        self.walks += not cursor
        await self.gate.wait()
        position = int(cursor or 0)
        if self.error:
            raise self.error
        jobs = [RunningJob(f"job of {name}", 1, name) for name in self.busy[position : position + 1]]
        return RunningPage(jobs=jobs, next_cursor=str(position + 1) if len(self.busy) > position + 1 else "")


class FakeOldJobs:
    def __init__(self, count: int) -> None:
        self.count = count
        self.purged: list[int] = []

    async def purge_jobs(self, before: int, *, limit: int, dry_run: bool = False) -> PurgedJobs:
        portion = min(limit, self.count)
        self.purged.append(portion)
        self.count -= 0 if dry_run else portion
        return PurgedJobs(jobs=portion, has_more=self.count > (portion if dry_run else 0))


class Bench:
    """A fleet, and a housekeeper of it."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.instances = FakeInstances()
        self.parameters = FakeParameters()
        self.records = FakeRecords()
        self.jobs = FakeRunningJobs()
        self.old_jobs = FakeOldJobs(0)
        self.prices = FakePrices(small=0.1, large=1.0)
        self.messages = 0
        self.dependencies = Dependencies(self.clock)
        self.housekeeper = self.replica("replica-1")

    def replica(self, name: str) -> Housekeeper:
        tasks: dict[TaskType, HousekeepingTask] = {
            ORPHANS: OrphanedInstances(self.instances, self.records, self.jobs),
            STALE: StaleParameters(self.instances, self.parameters, self.records),
            TaskType.OLD_JOBS: PurgedOldJobs(self.old_jobs, retention_ms=7 * 24 * HOUR * 1000),
            TaskType.POOL_AUDIT: PoolAudits(self.instances, self.records, self.jobs, self.prices),
        }
        return Housekeeper(tasks, self.records, self.clock, dependencies=self.dependencies, holder=name)

    def consume(self, queue: MemoryQueue) -> tuple[Consumer[Any, None], asyncio.Task[None]]:
        """Begin to process messages, as a process of its own."""
        consumer, _ = fleet_consumer(
            queue,
            parse_housekeeping,
            self.replica("replica").process,
            dependencies=self.dependencies,
            clock=self.clock,
            concurrency=len(TaskType),
        )
        return consumer, asyncio.create_task(consumer.run())

    def add(self, *names: str, age_hours: float = 7, **options: object) -> None:
        for name in names:
            instance = Instance(
                instance_id=name,
                state=InstanceState.RUNNING,
                launched_at=self.clock.now() - int(age_hours * HOUR * 1000),
            )
            self.instances.known[name] = replace(instance, **options)  # type: ignore[arg-type]

    def put(self, *names: str, age_hours: float = 2) -> None:
        modified_at = self.clock.now() - int(age_hours * HOUR * 1000)
        for name in names:
            full = name if "/" in name else self.parameters.name_of(name)
            self.parameters.known[full] = RunnerParameter(name=full, modified_at=modified_at)

    def message(self, task: TaskType, **options: object) -> HousekeepingMessage:
        self.messages += 1
        message = HousekeepingMessage(task_type=task, timestamp=self.clock.now() + self.messages)
        return replace(message, **options)  # type: ignore[arg-type]

    async def run(self, task: TaskType, *, force: bool = False, **options: object) -> HousekeepingRun:
        return await self.housekeeper.run(self.message(task, **options), force=force)

    def ended(self) -> set[str]:
        known = self.instances.known
        return {name for name in known if known[name].state is InstanceState.TERMINATED}


def told(run: HousekeepingRun) -> list[tuple[str, str]]:
    return [(action.kind.value, action.target) for action in run.actions]


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def test_an_orphan_is_marked_and_terminated_when_it_is_seen_again(bench: Bench) -> None:
    bench.add("i-old")
    bench.add("i-new", age_hours=5)
    first = await bench.run(ORPHANS)
    assert told(first) == [("marked", "i-old")]
    assert first.actions[0].seen.endswith(", never assigned, not draining")
    bench.clock.advance(299)
    assert told(await bench.run(ORPHANS)) == [("spared", "i-old")]
    bench.clock.advance(1)
    last = await bench.run(ORPHANS)
    assert told(last) == [("terminated", "i-old")]
    assert bench.ended() == {"i-old"}
    (action,) = last.actions
    assert "no running job" in action.why
    assert "draining since" in action.seen
    assert action.at == bench.clock.now()
    assert told(await bench.run(ORPHANS)) == []


async def test_a_mark_stands_for_five_minutes_also_where_the_run_that_made_it_was_slow(bench: Bench) -> None:
    """A dequeue that began right before it has to be over."""
    bench.add("i-1")
    bench.instances.before = lambda _: bench.clock.advance(360)
    assert told(await bench.run(ORPHANS)) == [("marked", "i-1")]
    bench.instances.before = None
    bench.clock.advance(299)
    assert told(await bench.run(ORPHANS)) == [("spared", "i-1")]
    bench.clock.advance(1)
    assert told(await bench.run(ORPHANS)) == [("terminated", "i-1")]


async def test_without_an_old_instance_no_job_and_no_record_is_read(bench: Bench) -> None:
    bench.add(*(f"i-{number}" for number in range(50)), age_hours=6)
    bench.instances.page_size = 20
    run = await bench.run(ORPHANS)
    assert (run.listed, run.changed, bench.jobs.walks) == (50, 0, 0)
    assert bench.instances.calls == ["managed"] * 3
    assert "read_instances" not in bench.records.calls


@pytest.mark.parametrize("state", [InstanceState.STOPPED, InstanceState.SHUTTING_DOWN])
async def test_what_does_not_run_is_no_orphan(bench: Bench, state: InstanceState) -> None:
    bench.add("i-1", state=state)
    assert (await bench.run(ORPHANS)).listed == 0


async def test_an_instance_with_a_job_is_spared_and_its_mark_is_taken_back(bench: Bench) -> None:
    bench.add("i-1", "i-2")
    await bench.run(ORPHANS)
    bench.clock.advance(400)
    bench.jobs.busy = ["i-9", "i-1"]
    run = await bench.run(ORPHANS)
    assert told(run) == [("spared", "i-1"), ("unmarked", "i-1"), ("terminated", "i-2")]
    assert bench.records.instances["i-1"].draining_since == 0


async def test_an_instance_that_is_protected_is_spared_and_keeps_no_other_from_its_end(bench: Bench) -> None:
    bench.add("i-1", "i-2")
    await bench.run(ORPHANS)
    bench.clock.advance(400)
    bench.instances.protected = {"i-1"}
    bench.add("i-3")
    run = await bench.run(ORPHANS)
    assert told(run) == [("spared", "i-1"), ("terminated", "i-2"), ("marked", "i-3")]
    assert (run.outcome, run.changed, bench.ended()) == (RunOutcome.DONE, 2, {"i-2"})
    assert "protected" in run.actions[0].why


async def test_a_mark_from_before_a_stop_and_a_start_is_no_first_sight(bench: Bench) -> None:
    """EC2 gives an instance that is started again a new launch time."""
    bench.add("i-1")
    await bench.run(ORPHANS)
    bench.clock.advance(24 * HOUR)
    bench.add("i-1")
    assert told(await bench.run(ORPHANS)) == [("unmarked", "i-1")]
    assert told(await bench.run(ORPHANS)) == [("marked", "i-1")]
    bench.clock.advance(300)
    assert told(await bench.run(ORPHANS)) == [("terminated", "i-1")]


async def test_an_instance_that_was_assigned_lately_is_spared(bench: Bench) -> None:
    bench.add("i-1")
    await bench.records.assign("i-1", "builds", bench.clock.now())
    assert told(await bench.run(ORPHANS)) == [("spared", "i-1")]
    bench.clock.advance(6 * HOUR + 601)
    assert told(await bench.run(ORPHANS)) == [("marked", "i-1")]


async def test_an_assignment_between_look_and_mark_wins_and_one_after_it_is_refused(bench: Bench) -> None:
    bench.add("i-1", "i-2")

    def assign(name: str) -> None:
        if name == "mark_draining" and not bench.records.instances:
            record = replace(bench.records._record("i-1"), assigned_at=bench.clock.now())
            bench.records.instances["i-1"] = record

    bench.records.before = assign
    assert told(await bench.run(ORPHANS)) == [("spared", "i-1"), ("marked", "i-2")]
    with pytest.raises(FailedPrecondition, match="draining"):
        await bench.records.assign("i-2", "builds", bench.clock.now())


@pytest.mark.parametrize("step", ["managed", "walk", "read_instances"])
async def test_a_read_that_fails_spares_all_and_is_recorded(bench: Bench, step: str) -> None:
    bench.add("i-1")
    await bench.run(ORPHANS)
    bench.clock.advance(600)
    error = Unavailable("away")
    if step == "managed":
        bench.instances.errors[step] = error
    elif step == "walk":
        bench.jobs.error = error
    else:
        bench.records.errors[step] = error
    message = bench.message(ORPHANS)
    with pytest.raises(Unavailable):
        await bench.housekeeper.run(message)
    assert bench.ended() == set()
    assert bench.records.runs[message.slot].outcome is RunOutcome.FAILED
    assert bench.records.leases == {}
    bench.instances.errors.clear()
    bench.records.errors.clear()
    bench.jobs.error = None
    assert told(await bench.housekeeper.run(message)) == [("terminated", "i-1")]


@pytest.mark.parametrize("task", [ORPHANS, STALE])
async def test_a_dry_run_tells_and_changes_nothing(bench: Bench, task: TaskType) -> None:
    bench.add("i-1")
    bench.add(*(f"i-young-{number}" for number in range(5)), age_hours=1)
    bench.put("i-gone", *(f"i-young-{number}" for number in range(5)))
    run = await bench.run(task, dry_run=True, limit=1)
    assert run.dry_run
    assert run.changed == 1
    assert bench.records.instances == {}
    assert len(bench.parameters.known) == 6


async def test_the_breaker_trips_before_the_first_change(bench: Bench) -> None:
    bench.add(*(f"i-{number}" for number in range(4)))
    bench.add(*(f"i-young-{number}" for number in range(11)), age_hours=1)
    run = await bench.run(ORPHANS)
    assert run.outcome is RunOutcome.REFUSED
    assert "4 of 15" in run.text
    assert bench.records.instances == {}
    bench.add("i-young-more", age_hours=1)
    assert (await bench.run(ORPHANS)).changed == 4


async def test_the_breaker_lets_three_pass_and_can_be_forced(bench: Bench) -> None:
    bench.add("i-1", "i-2", "i-3")
    assert (await bench.run(ORPHANS)).changed == 3
    bench.add("i-4")
    assert (await bench.run(ORPHANS)).outcome is RunOutcome.DONE
    bench.clock.advance(600)
    assert (await bench.run(ORPHANS)).outcome is RunOutcome.REFUSED
    assert bench.ended() == set()
    await bench.run(ORPHANS, force=True)
    assert bench.ended() == {"i-1", "i-2", "i-3", "i-4"}


async def test_a_limit_bounds_the_changes(bench: Bench) -> None:
    bench.add("i-1", "i-2", "i-3")
    assert (await bench.run(ORPHANS, limit=2)).changed == 2


async def test_a_stale_parameter_is_deleted_when_it_is_seen_twice(bench: Bench) -> None:
    bench.add("i-1")
    bench.add("i-ended", state=InstanceState.TERMINATED)
    bench.add("i-stopped", state=InstanceState.STOPPED)
    bench.put("i-1", "i-ended", "i-gone", "i-stopped", "/runs-fleet/runners/shared/more/config")
    bench.put("i-young", age_hours=0.9)
    first = await bench.run(STALE)
    odd = ("spared", "/runs-fleet/runners/shared/more/config")
    ended, gone = map(bench.parameters.name_of, ("i-ended", "i-gone"))
    assert told(first) == [odd, ("marked", ended), ("marked", gone)]
    assert told(await bench.run(STALE)) == [odd]
    bench.clock.advance(300)
    assert told(await bench.run(STALE)) == [odd, ("deleted", ended), ("deleted", gone)]
    assert len(bench.parameters.known) == 4
    assert told(await bench.run(STALE)) == [odd]


async def test_a_sighting_of_the_instance_begins_anew(bench: Bench) -> None:
    """EC2 may leave an instance out for a while."""
    bench.add("i-1")
    bench.put("i-1")
    bench.instances.hidden = {"i-1"}
    await bench.run(STALE)
    bench.clock.advance(600)
    bench.instances.hidden = set()
    assert told(await bench.run(STALE)) == []
    bench.instances.hidden = {"i-1"}
    assert [kind for kind, _ in told(await bench.run(STALE))] == ["marked"]
    assert bench.parameters.known


async def test_an_assignment_begins_anew(bench: Bench) -> None:
    """Nobody looks for the instance of a young parameter, so that it is not seen in between."""
    bench.add("i-1")
    bench.put("i-1")
    name = bench.parameters.name_of("i-1")
    bench.instances.hidden = {"i-1"}
    assert told(await bench.run(STALE)) == [("marked", name)]
    bench.put("i-1", age_hours=0)
    bench.clock.advance(HOUR + 1)
    assert told(await bench.run(STALE, dry_run=True)) == [("marked", name)]
    assert told(await bench.run(STALE)) == [("marked", name)]
    bench.clock.advance(300)
    assert told(await bench.run(STALE)) == [("deleted", name)]


async def test_a_parameter_is_seen_twice_five_minutes_apart_also_by_a_slow_run(bench: Bench) -> None:
    bench.put("i-gone")
    name = bench.parameters.name_of("i-gone")
    bench.parameters.before = lambda _: bench.clock.advance(360)
    assert told(await bench.run(STALE)) == [("marked", name)]
    bench.parameters.before = None
    bench.clock.advance(299)
    assert told(await bench.run(STALE)) == []
    bench.clock.advance(1)
    assert told(await bench.run(STALE)) == [("deleted", name)]


async def test_the_breaker_guards_parameters_from_an_ec2_that_answers_nothing(bench: Bench) -> None:
    names = [f"i-{number}" for number in range(30)]
    bench.add(*names)
    bench.put(*names)
    bench.instances.hidden = set(names)
    for _ in range(3):
        assert (await bench.run(STALE)).outcome is RunOutcome.REFUSED
        bench.clock.advance(600)
    assert len(bench.parameters.known) == 30


async def test_a_thousand_parameters_are_followed_over_all_pages(bench: Bench) -> None:
    bench.add(*(f"i-{number}" for number in range(998)))
    bench.put(*(f"i-{number}" for number in range(1000)))
    await bench.run(STALE)
    bench.clock.advance(300)
    assert len(told(await bench.run(STALE))) == 2
    assert len(bench.parameters.known) == 998


async def test_old_jobs_go_in_portions_and_a_second_run_finds_none(bench: Bench) -> None:
    bench.old_jobs.count = 60
    run = await bench.run(TaskType.OLD_JOBS)
    assert told(run) == [("purged", "60 jobs")]
    assert bench.old_jobs.purged == [25, 25, 10]
    assert told(await bench.run(TaskType.OLD_JOBS)) == []


async def test_old_jobs_keep_to_a_limit_and_a_dry_run_purges_none(bench: Bench) -> None:
    bench.old_jobs.count = 60
    await bench.run(TaskType.OLD_JOBS, dry_run=True)
    assert bench.old_jobs.count == 60
    await bench.run(TaskType.OLD_JOBS, limit=30)
    assert bench.old_jobs.count == 30


@pytest.mark.parametrize(
    ("there", "limit", "expected"),
    [
        (0, 0, []),
        (10_000, 0, [("10000 jobs", "")]),
        (10_000, 40, [("40 jobs", "there may be more")]),
        (120_000, 0, [("100000 jobs", "there may be more")]),
    ],
)
async def test_a_dry_run_counts_as_many_old_jobs_as_a_run_would_purge(
    bench: Bench, there: int, limit: int, expected: list[tuple[str, str]]
) -> None:
    bench.old_jobs.count = there
    run = await bench.run(TaskType.OLD_JOBS, dry_run=True, limit=limit)
    assert [(action.target, action.seen) for action in run.actions] == expected
    assert len(bench.old_jobs.purged) == 1
    done = await bench.run(TaskType.OLD_JOBS, limit=limit)
    assert done.listed == run.listed


async def test_a_count_that_a_store_has_cut_says_so(bench: Bench) -> None:
    async def count(before: int, *, limit: int, dry_run: bool = False) -> PurgedJobs:
        assert (dry_run, limit) == (True, 100_000)
        return PurgedJobs(jobs=700, has_more=True)

    bench.old_jobs.purge_jobs = count  # type: ignore[method-assign]
    run = await bench.run(TaskType.OLD_JOBS, dry_run=True)
    assert told(run) == [("purged", "at least 700 jobs")]


async def test_an_audit_counts_and_costs(bench: Bench) -> None:
    await bench.records.put_pool(Pool(name="empty"))
    bench.add("i-1", "i-2", "i-3", "i-4", pool="builds", instance_type="small")
    bench.add("i-5", pool="builds", instance_type="large", state=InstanceState.STOPPED)
    bench.add("i-6", pool="odd", instance_type="unheard-of")
    bench.add("i-7")
    bench.jobs.busy = ["i-1"]
    await bench.run(TaskType.POOL_AUDIT)
    bench.clock.advance(HOUR / 2)
    await bench.run(TaskType.POOL_AUDIT)
    second, first = await bench.records.last_audits(2)
    assert [audit.compute_cost_usd for audit in first] == [None, None, None]
    builds, empty, odd = second
    assert (builds.running, builds.stopped, builds.idle) == (4, 1, 3)
    assert builds.compute_cost_usd == pytest.approx(0.2)
    assert builds.idle_cost_usd == pytest.approx(0.15)
    assert builds.utilisation_percent == 25
    assert (empty.running, empty.utilisation_percent, empty.compute_cost_usd) == (0, None, 0)
    assert (odd.compute_cost_usd, odd.idle_cost_usd, odd.utilisation_percent) == (None, None, 0)


@pytest.mark.parametrize("dry_run", [False, True])
async def test_an_audit_is_in_the_log(bench: Bench, dry_run: bool) -> None:
    await bench.records.put_pool(Pool(name="empty"))
    bench.add("i-1", "i-2", instance_type="small", pool="builds", age_hours=1)
    bench.jobs.busy = ["i-1"]
    await bench.run(TaskType.POOL_AUDIT)
    bench.clock.advance(HOUR)
    with capture_logs() as logs:
        await bench.run(TaskType.POOL_AUDIT, dry_run=dry_run)
    builds, empty = (line for line in logs if line["event"] == "housekeeping.pool")
    assert builds.pop("compute_cost_usd") == pytest.approx(0.2)
    assert builds == {
        "event": "housekeeping.pool",
        "log_level": "info",
        "pool": "builds",
        "audited_at": bench.clock.now(),
        "running": 2,
        "stopped": 0,
        "idle": 1,
        "seconds": 3600.0,
        "idle_cost_usd": pytest.approx(0.1),
        "utilisation_percent": 50.0,
        "dry_run": dry_run,
    }
    assert (empty["pool"], empty["running"], empty["utilisation_percent"]) == ("empty", 0, None)


async def test_the_log_of_an_audit_is_bounded_and_harms_nobody(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(130):
        await bench.records.put_pool(Pool(name=f"pool-{number}"))
    with capture_logs() as logs:
        await bench.run(TaskType.POOL_AUDIT)
    assert sum(line["event"] == "housekeeping.pool" for line in logs) == 100
    assert [line["pools"] for line in logs if line["event"] == "housekeeping.pools_left_out"] == [30]

    class Full:
        def log(self, *_: object, **__: object) -> None:
            raise OSError("no room")

    monkeypatch.setattr("airunner.fleet.housekeeping.pool_audit._log", Full())
    assert (await bench.run(TaskType.POOL_AUDIT)).outcome is RunOutcome.DONE


async def test_an_audit_after_a_long_silence_costs_two_intervals(bench: Bench) -> None:
    bench.add("i-1", pool="builds", instance_type="large")
    await bench.run(TaskType.POOL_AUDIT)
    bench.clock.advance(24 * HOUR)
    await bench.run(TaskType.POOL_AUDIT)
    ((audit,), _) = await bench.records.last_audits(2)
    assert audit.compute_cost_usd == 2


async def test_a_second_message_of_a_slot_does_nothing(bench: Bench) -> None:
    bench.add("i-1")
    message = bench.message(ORPHANS)
    first = await bench.housekeeper.run(message)
    bench.clock.advance(600)
    assert await bench.housekeeper.run(message) == first
    assert bench.ended() == set()


async def test_a_task_that_another_replica_runs_is_recorded_as_skipped(bench: Bench) -> None:
    bench.add("i-1")
    until = bench.clock.now() + LEASE_MS
    await bench.records.take_lease(ORPHANS, "replica-2", bench.clock.now(), until)
    message = bench.message(ORPHANS)
    with pytest.raises(LeaseTaken, match="replica-2"):
        await bench.housekeeper.run(message)
    await bench.housekeeper.process(message)
    assert bench.records.runs[message.slot].outcome is RunOutcome.SKIPPED
    assert bench.records.instances == {}
    bench.clock.advance(LEASE_MS / 1000)
    assert (await bench.run(ORPHANS)).changed == 1


async def test_a_second_message_that_was_skipped_first_does_not_keep_the_first_from_running(
    bench: Bench,
) -> None:
    bench.add("i-1")
    message = bench.message(ORPHANS)
    await bench.records.take_lease(ORPHANS, "replica-2", bench.clock.now(), bench.clock.now() + LEASE_MS)
    await bench.housekeeper.process(message)
    del bench.records.leases[ORPHANS]
    await bench.housekeeper.process(message)
    assert bench.records.runs[message.slot].outcome is RunOutcome.DONE


async def test_a_replica_with_two_messages_of_a_task_runs_one(bench: Bench) -> None:
    bench.add("i-1")
    second = bench.message(ORPHANS)
    refused: list[str] = []

    def begin_another(_: str) -> None:
        bench.instances.before = None
        with pytest.raises(LeaseTaken) as taken:
            bench.housekeeper.run(second).send(None)
        refused.append(taken.value.holder)

    bench.instances.before = begin_another
    assert (await bench.run(ORPHANS)).changed == 1
    assert refused[0].startswith("replica-1/")


async def begin_run(bench: Bench, message: HousekeepingMessage) -> asyncio.Task[None]:
    """Let another replica run a task as far as its walk over the jobs, which waits for the gate."""
    bench.add("i-1")
    bench.jobs.gate.clear()
    work = asyncio.create_task(bench.replica("replica-2").process(message))
    await until(lambda: bench.jobs.walks > 0)
    return work


async def test_the_message_of_a_replica_that_died_waits_for_its_lease_and_is_done(bench: Bench) -> None:
    message = bench.message(ORPHANS)
    dying = await begin_run(bench, message)
    bench.records.errors["leave_lease"] = Unavailable("dead")
    dying.cancel()
    await asyncio.wait({dying})
    bench.records.errors.clear()
    bench.jobs.gate.set()
    await while_time_passes(bench.clock, bench.housekeeper.process(message))
    assert told(bench.records.runs[message.slot]) == [("marked", "i-1")]
    assert bench.records.runs[message.slot].outcome is RunOutcome.DONE


async def test_a_second_message_of_a_slot_waits_for_the_run_of_the_first(bench: Bench) -> None:
    message = bench.message(ORPHANS)
    first = await begin_run(bench, message)
    second = asyncio.create_task(bench.housekeeper.process(message))
    await until(lambda: bench.clock.waiting > 0)
    bench.jobs.gate.set()
    await first
    done = bench.records.runs[message.slot]
    bench.clock.advance(10)
    await second
    assert bench.records.runs == {message.slot: done}
    assert (done.outcome, bench.jobs.walks) == (RunOutcome.DONE, 1)


async def test_a_second_message_of_a_run_that_outlives_a_lease_is_skipped(bench: Bench) -> None:
    message, began = bench.message(ORPHANS), bench.clock.now()
    bench.records.leases[ORPHANS] = (f"replica-2/0123/{message.slot}", began + 10 * LEASE_MS)
    await while_time_passes(bench.clock, bench.housekeeper.process(message))
    assert bench.records.runs[message.slot].outcome is RunOutcome.SKIPPED
    assert LEASE_MS < bench.clock.now() - began < 2 * LEASE_MS


async def test_a_table_that_is_away_for_a_moment_costs_no_run(bench: Bench) -> None:
    """Neither what went wrong nor the end of the lease can be written."""
    bench.add("i-1")
    message, back_at = bench.message(ORPHANS), bench.clock.now() + 20_000

    def be_away(_: str) -> None:
        if bench.records.leases and bench.clock.now() < back_at:
            raise Unavailable("away")

    bench.records.before = be_away
    await while_time_passes(bench.clock, bench.housekeeper.process(message))
    assert bench.records.runs[message.slot].outcome is RunOutcome.DONE


async def test_a_lease_that_is_lost_in_mid_run_stops_it_before_its_next_step(bench: Bench) -> None:
    bench.add("i-1")
    await bench.run(ORPHANS)
    bench.clock.advance(600)

    def lose(name: str) -> None:
        if name == "read_instances":
            bench.clock.advance(LEASE_MS / 1000)
            bench.records.leases[ORPHANS] = ("replica-2", bench.clock.now() + LEASE_MS)

    bench.records.before = lose
    message = bench.message(ORPHANS)
    await bench.housekeeper.process(message)
    assert bench.ended() == set()
    assert bench.records.runs[message.slot].outcome is RunOutcome.SKIPPED
    assert bench.records.leases[ORPHANS][0] == "replica-2"


async def test_a_long_run_keeps_its_lease(bench: Bench) -> None:
    bench.add(*(f"i-{number}" for number in range(40)), age_hours=1)
    bench.instances.page_size = 1
    bench.instances.before = lambda _: bench.clock.advance(30)
    run = await bench.run(ORPHANS)
    assert run.outcome is RunOutcome.DONE
    assert bench.records.calls.count("extend_lease") >= 19


async def test_a_run_that_cannot_be_recorded_raises_what_went_wrong_first(bench: Bench) -> None:
    bench.instances.errors["managed"] = Unavailable("first")
    bench.records.errors = {"put_run": Unavailable("second"), "leave_lease": Unavailable("third")}
    bench.add("i-1")
    with pytest.raises(Unavailable, match="first"):
        await bench.run(ORPHANS)


async def test_what_a_run_tells_is_bounded(bench: Bench) -> None:
    bench.put(*(f"/runs-fleet/runners/odd/{number}" for number in range(150)))
    run = await bench.run(STALE)
    assert (len(run.actions), run.actions_left_out) == (100, 50)


async def test_a_message_waits_while_a_dependency_is_away(bench: Bench) -> None:
    bench.add("i-1")
    bench.instances.errors["managed"] = Unavailable("away")
    message = bench.message(ORPHANS)
    work = asyncio.create_task(bench.housekeeper.process(message))
    await until(lambda: not bench.dependencies.are_there)
    assert bench.records.runs[message.slot].outcome is RunOutcome.FAILED
    bench.instances.errors.clear()
    bench.clock.advance(30)
    await work
    assert bench.dependencies.are_there
    assert bench.records.runs[message.slot].outcome is RunOutcome.DONE


async def test_a_task_that_is_cut_off_by_the_end_of_its_process_is_taken_up_by_another(bench: Bench) -> None:
    """A process that is told to go has half a minute for what it holds."""
    bench.old_jobs = FakeOldJobs(60)
    begun, queue = asyncio.Event(), MemoryQueue(bench.clock, name="housekeeping", max_receive_count=3)
    purge_jobs = bench.old_jobs.purge_jobs

    async def hang(before: int, *, limit: int, dry_run: bool = False) -> PurgedJobs:
        if bench.old_jobs.count < 60:
            begun.set()
            await asyncio.Event().wait()
        return await purge_jobs(before, limit=limit, dry_run=dry_run)

    bench.old_jobs.purge_jobs = hang  # type: ignore[method-assign]
    message = bench.message(TaskType.OLD_JOBS)
    await queue.send([NewMessage(body=format_housekeeping(message))])
    consumer, work = bench.consume(queue)
    await begun.wait()
    consumer.stop()
    for _ in range(50):
        await asyncio.sleep(0)
    assert not work.done()
    bench.clock.advance(30)
    await until(work.done)
    assert bench.records.leases == {}
    assert bench.records.runs == {}

    bench.old_jobs.purge_jobs = purge_jobs  # type: ignore[method-assign]
    consumer, work = bench.consume(queue)
    # What was given back is there at once.
    await until(lambda: message.slot in bench.records.runs)
    consumer.stop()
    await work
    assert bench.records.runs[message.slot].outcome is RunOutcome.DONE
    assert (bench.old_jobs.count, bench.records.runs[message.slot].listed) == (0, 35)
    assert (await queue.depth()).visible == 0
