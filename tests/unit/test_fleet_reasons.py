"""A reason for everything that housekeeping does: in the log before it is done, on the record after that."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import pytest
from structlog.testing import capture_logs

from airunner.domain.errors import Unavailable
from airunner.fleet.aws.run_items import run_from_item, run_item
from airunner.fleet.dependencies import Dependencies
from airunner.fleet.housekeeper import Housekeeper
from airunner.fleet.housekeeping.old_jobs import PurgedOldJobs
from airunner.fleet.housekeeping.orphaned_instances import OrphanedInstances
from airunner.fleet.housekeeping.stale_ssm import StaleParameters
from airunner.fleet.lease import LEASE_MS
from airunner.fleet.messages.housekeeping import HousekeepingMessage, TaskType
from airunner.fleet.office import MAX_LISTED_ACTIONS, FleetDesk
from airunner.fleet.records import (
    ActionKind,
    HousekeepingRun,
    Instance,
    InstanceState,
    RecordedAction,
    RunnerParameter,
    RunOutcome,
)
from airunner.fleet.run_record import MAX_ACTIONS, with_earlier
from airunner.stores.records import PurgedJobs, RunningPage
from airunner.testing.clock import ManualClock
from tests.support.fleet import FakeInstances, FakeParameters, FakeRecords, while_time_passes

HOUR_MS = 3_600_000
ITEM_BYTES = 400 * 1024


class NoJobs:
    """Implements RunningJobs and OldJobs: there are none that run, and three that are old."""

    async def running_jobs(self, cursor: str = "") -> RunningPage:
        return RunningPage(jobs=[], next_cursor="")

    async def purge_jobs(self, before: int, *, limit: int, dry_run: bool = False) -> PurgedJobs:
        return PurgedJobs(jobs=3, has_more=False)


class Fleet:
    """Orphans and stale parameters, and who cleans up after them."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.instances, self.parameters, self.records = FakeInstances(), FakeParameters(), FakeRecords()
        jobs = NoJobs()
        self.housekeeper = Housekeeper(
            {
                TaskType.ORPHANED_INSTANCES: OrphanedInstances(self.instances, self.records, jobs),
                TaskType.STALE_SSM: StaleParameters(self.instances, self.parameters, self.records),
                TaskType.OLD_JOBS: PurgedOldJobs(jobs, retention_ms=HOUR_MS),
            },
            self.records,
            self.clock,
            dependencies=Dependencies(self.clock),
            holder="replica",
        )

    def launch(self, *names: str, marked: bool = False, age_hours: int = 9) -> None:
        for name in names:
            self.instances.known[name] = Instance(
                instance_id=name,
                state=InstanceState.RUNNING,
                launched_at=self.clock.now() - age_hours * HOUR_MS,
            )
            if marked:
                record = self.records._record(name)
                self.records.instances[name] = replace(record, draining_since=self.clock.now() - HOUR_MS)

    def message(self, task: TaskType = TaskType.ORPHANED_INSTANCES, **options: Any) -> HousekeepingMessage:
        return HousekeepingMessage(task_type=task, timestamp=self.clock.now(), **options)

    async def run(self, message: HousekeepingMessage) -> HousekeepingRun:
        return await self.housekeeper.run(message, force=True)


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


def actions_in(lines: list[Any]) -> list[tuple[str, str]]:
    found = [line for line in lines if line["event"] == "housekeeping.action"]
    return [(line["action"], line["resource"]) for line in found]


def told(run: HousekeepingRun) -> list[tuple[str, str]]:
    return [(action.kind.value, action.target) for action in run.actions]


async def test_every_action_is_logged_before_it_is_done(fleet: Fleet) -> None:
    fleet.launch("i-again", marked=True)
    fleet.launch("i-first")
    fleet.parameters.known = {
        name: RunnerParameter(name=name, modified_at=0)
        for name in map(fleet.parameters.name_of, ["i-7", "i-8"])
    }
    fleet.records.instances["i-7"] = replace(fleet.records._record("i-7"), stale_since=1)
    before: dict[str, list[tuple[str, str]]] = {}
    with capture_logs() as lines:
        for fake in (fleet.instances, fleet.records, fleet.parameters):
            fake.before = lambda name: before.update({name: actions_in(lines)})
        for task in (TaskType.ORPHANED_INSTANCES, TaskType.STALE_SSM):
            await fleet.run(fleet.message(task))
    names = [fleet.parameters.name_of(name) for name in ("i-7", "i-8")]
    assert before["terminate"][-1] == ("terminated", "i-again")
    assert before["mark_draining"][-1] == ("marked", "i-first")
    assert before["delete"][-1] == ("deleted", names[0])
    assert before["note_stale"][-1] == ("marked", names[1])
    (line,) = (line for line in lines if line.get("action") == "terminated")
    assert {key: line[key] for key in ("task", "dry_run", "log_level")} == {
        "task": "orphaned_instances",
        "dry_run": False,
        "log_level": "info",
    }
    assert "no running job" in line["reason"]
    assert "draining since" in line["seen"]


async def test_a_purge_is_logged_before_its_first_portion(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[tuple[str, str]]] = []
    with capture_logs() as lines:

        async def purge(_: NoJobs, before: int, *, limit: int, dry_run: bool = False) -> PurgedJobs:
            seen.append(actions_in(lines))
            return PurgedJobs(jobs=3, has_more=False)

        monkeypatch.setattr(NoJobs, "purge_jobs", purge)
        run = await fleet.run(fleet.message(TaskType.OLD_JOBS, limit=50))
    assert seen == [[("purged", "up to 50 jobs")]]
    assert told(run) == [("purged", "3 jobs")]


async def test_what_a_dry_run_would_do_is_logged_as_that_and_what_is_spared_is_for_debugging(
    fleet: Fleet,
) -> None:
    fleet.launch("i-1")
    await fleet.records.assign("i-1", "builds", fleet.clock.now())
    fleet.launch("i-2")
    with capture_logs() as lines:
        await fleet.run(fleet.message(dry_run=True))
    found = [(line["action"], line["log_level"], line["dry_run"]) for line in lines if "resource" in line]
    assert found == [("spared", "debug", True), ("marked", "info", True)]


async def test_a_log_that_raises_ends_no_run(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def info(self, *_: object, **__: object) -> None:
            raise OSError("no room")

        debug = info

    monkeypatch.setattr("airunner.fleet.task_run._log", Full())
    fleet.launch("i-1")
    assert told(await fleet.run(fleet.message())) == [("marked", "i-1")]


async def test_what_a_try_did_that_failed_stays_on_record_when_the_next_one_succeeds(fleet: Fleet) -> None:
    fleet.launch("i-1", "i-2")

    def fail(name: str) -> None:
        if name == "mark_draining" and fleet.records.instances:
            raise Unavailable("away")

    fleet.records.before = fail
    message = fleet.message()
    with pytest.raises(Unavailable):
        await fleet.run(message)
    failed = fleet.records.runs[message.slot]
    assert told(failed) == [("marked", "i-1"), ("marked", "i-2")]
    assert [action.why.endswith("nobody knows whether it was done") for action in failed.actions] == [
        False,
        True,
    ]
    fleet.records.before = None
    fleet.clock.advance(10)
    run = await fleet.run(message)
    assert told(run) == [("marked", "i-1"), ("marked", "i-2"), ("spared", "i-1"), ("marked", "i-2")]
    assert (run.outcome, run.changed, run.started_at) == (RunOutcome.DONE, 3, failed.started_at)
    assert fleet.records.runs[message.slot] == run


@pytest.mark.parametrize("written", [0, 1, 100], ids=["none written", "the first written", "answers lost"])
async def test_what_a_try_did_is_kept_while_it_cannot_be_recorded(fleet: Fleet, written: int) -> None:
    """The table takes one mark, then none for a while; nor does it say that it has taken what was done."""
    fleet.launch("i-1", "i-2")
    message, back_at = fleet.message(), fleet.clock.now() + 20_000
    refused: list[str] = []
    put_run = fleet.records.put_run

    async def lose(run: HousekeepingRun) -> None:
        if len(refused) <= written or fleet.clock.now() >= back_at:
            await put_run(run)
        if fleet.clock.now() < back_at:
            raise Unavailable("away")

    def be_away(name: str) -> None:
        if name == "mark_draining" and fleet.records.instances and fleet.clock.now() < back_at:
            refused.append(name)
            raise Unavailable("away")

    fleet.records.put_run = lose  # type: ignore[method-assign]
    fleet.records.before = be_away
    await while_time_passes(fleet.clock, fleet.housekeeper.process(message))
    run = fleet.records.runs[message.slot]
    assert (run.outcome, len(refused) > 2) == (RunOutcome.DONE, True)
    marked = [action.target for action in run.actions if action.kind is ActionKind.MARKED]
    assert marked == ["i-1", *["i-2"] * len(refused), "i-2"]
    assert fleet.housekeeper._earlier == {}


async def test_a_run_that_is_done_and_not_recorded_keeps_its_reasons_for_the_next_try(fleet: Fleet) -> None:
    fleet.launch("i-1")
    failures = [Unavailable("away")]
    put_run = fleet.records.put_run

    async def fail_once(run: HousekeepingRun) -> None:
        if failures:
            raise failures.pop()
        await put_run(run)

    fleet.records.put_run = fail_once  # type: ignore[method-assign]
    message = fleet.message()
    await while_time_passes(fleet.clock, fleet.housekeeper.process(message))
    assert told(fleet.records.runs[message.slot]) == [("marked", "i-1"), ("spared", "i-1")]


async def test_a_run_that_loses_its_lease_leaves_what_it_did_on_record(fleet: Fleet) -> None:
    fleet.launch("i-1", "i-2")

    def lose(name: str) -> None:
        if name == "mark_draining":
            fleet.clock.advance(LEASE_MS / 1000)
            fleet.records.leases[TaskType.ORPHANED_INSTANCES] = ("another", fleet.clock.now() + LEASE_MS)

    fleet.records.before = lose
    message = fleet.message()
    await fleet.housekeeper.process(message)
    run = fleet.records.runs[message.slot]
    assert (run.outcome, told(run)) == (RunOutcome.SKIPPED, [("marked", "i-1")])


async def test_a_parameter_that_was_gone_by_the_answer_is_on_record(fleet: Fleet) -> None:
    """SSM says so, too, when the call is repeated since its first answer was lost."""
    name, delete = fleet.parameters.name_of("i-1"), fleet.parameters.delete
    fleet.parameters.known = {name: RunnerParameter(name=name, modified_at=0)}
    fleet.records.instances["i-1"] = replace(fleet.records._record("i-1"), stale_since=1)

    async def delete_twice(names: Sequence[str]) -> Collection[str]:
        await delete(names)
        return await delete(names)

    fleet.parameters.delete = delete_twice  # type: ignore[method-assign]
    run = await fleet.run(fleet.message(TaskType.STALE_SSM))
    assert told(run) == [("deleted", name)]
    (action,) = run.actions
    assert action.why.endswith("nobody knows whether it was done")


async def test_one_that_is_killed_has_logged_what_it_did(fleet: Fleet) -> None:
    fleet.launch("i-1", marked=True)

    async def die(instance_ids: Sequence[str]) -> NoReturn:
        raise asyncio.CancelledError

    fleet.instances.terminate = die  # type: ignore[method-assign]
    with capture_logs() as lines, pytest.raises(asyncio.CancelledError):
        await fleet.run(fleet.message())
    assert fleet.records.runs == {}
    assert actions_in(lines) == [("terminated", "i-1")]


async def test_all_that_a_run_may_change_is_on_record(fleet: Fleet) -> None:
    fleet.launch(*(f"i-{number:017x}" for number in range(600)))
    run = await fleet.run(fleet.message())
    assert (len(run.actions), run.changed, run.actions_left_out) == (500, 500, 0)
    assert run_from_item(run_item(run)) == run


def make_run(*actions: RecordedAction, **options: Any) -> HousekeepingRun:
    values: Mapping[str, Any] = {
        "slot": "orphaned_instances#now",
        "task_type": TaskType.ORPHANED_INSTANCES,
        "started_at": 1,
        "ended_at": 2,
        "outcome": RunOutcome.FAILED,
        "actions": actions,
    }
    return HousekeepingRun(**{**values, **options})


def make_action(number: int, kind: ActionKind = ActionKind.MARKED, text: str = "") -> RecordedAction:
    return RecordedAction(kind=kind, target=f"i-{number}", why=text, seen=text, at=number)


def test_a_record_is_bounded_and_what_was_spared_gives_way() -> None:
    spared = [make_action(number, ActionKind.SPARED) for number in range(100)]
    changes = [make_action(number) for number in range(MAX_ACTIONS - 10)]
    earlier, run = make_run(*spared, actions_left_out=7), make_run(*changes)
    merged = with_earlier(run, earlier)
    assert merged.actions == (*spared[:10], *changes)
    assert merged.actions_left_out == 7 + 90
    again = with_earlier(make_run(*changes), merged)
    assert again.actions == (*changes, *changes[:10])
    assert again.actions_left_out + len(again.actions) == 7 + 100 + 2 * len(changes)


def test_what_was_only_told_is_not_mixed_with_what_was_done() -> None:
    run = make_run(make_action(1))
    assert with_earlier(run, make_run(make_action(2), dry_run=True)) == run


@pytest.mark.parametrize("letter", ["a", "ü", "\N{GRINNING FACE}", '"'])
def test_the_record_of_a_run_is_never_too_large_for_an_item(letter: str) -> None:
    actions = [make_action(number, text=letter * 300) for number in range(MAX_ACTIONS)]
    run = make_run(*actions, text=letter * 100_000)
    item = run_item(run)
    assert ITEM_BYTES * 0.8 < len(item["run"]["S"].encode()) < ITEM_BYTES - 1000
    kept = run_from_item(item)
    assert kept.actions == run.actions[: len(kept.actions)]
    assert kept.actions_left_out == MAX_ACTIONS - len(kept.actions) > 0


async def test_a_list_of_runs_tells_of_a_bounded_number_of_actions(fleet: Fleet) -> None:
    class OpenFleet:
        records = fleet.records

    for number in range(10):
        actions = [make_action(action) for action in range(MAX_ACTIONS)]
        await fleet.records.put_run(make_run(*actions, slot=f"slot {number}", started_at=number))
    runs = await FleetDesk(OpenFleet(), fleet.clock).list_runs(10)  # type: ignore[arg-type]  # all it needs
    assert [run.slot for run in runs] == [f"slot {number}" for number in range(9, -1, -1)]
    assert sum(len(run.actions) for run in runs) == MAX_LISTED_ACTIONS
    assert {len(run.actions) + run.actions_left_out for run in runs} == {MAX_ACTIONS}
