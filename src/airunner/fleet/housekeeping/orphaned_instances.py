"""Terminates instances that nobody uses any more.

An orphan is an instance of the fleet that is pending or running, was launched longer ago than a job may
run, was not assigned since, and has no running job by a complete look. The first run that sees it so marks
it as draining: from then on `assign` refuses it, and servers refuse its dequeues a few seconds later. A run
at least five minutes after that looks at everything again, and terminates it if nothing has changed. That
is longer than a dequeue may wait that began before the mark, so its job is seen by then; a mark of an
instance with a job is taken back, and so is one from before it was stopped and started again.

Whoever takes the mark back by hand while a run is between its look and the termination comes too late.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from airunner.domain.splitting import split_by_count
from airunner.fleet.records import ActionKind, InstanceRecord, InstanceState
from airunner.fleet.running_instances import busy_instances
from airunner.reading.instants import format_duration, to_iso
from airunner.telemetry import fleet_metrics

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airunner.fleet.ports import FleetRecords, Instances, RunningJobs
    from airunner.fleet.records import Instance, RecordedAction
    from airunner.fleet.task_run import TaskRun

SEEN_AGAIN_MS: Final = 5 * 60_000
"""How long a mark stands before its instance is terminated."""
_GRACE_MS: Final = 10 * 60_000
_MAX_CHANGES: Final = 500
_AT_ONCE: Final = 100


@dataclass(slots=True)
class _Plan:
    """What a look has found."""

    mark: list[tuple[Instance, InstanceRecord]] = field(default_factory=list)
    unmark: list[tuple[Instance, InstanceRecord]] = field(default_factory=list)
    terminate: list[tuple[Instance, InstanceRecord]] = field(default_factory=list)


class OrphanedInstances:
    """Implements HousekeepingTask."""

    def __init__(
        self,
        instances: Instances,
        records: FleetRecords,
        jobs: RunningJobs,
        *,
        max_runtime_minutes: int = 360,
    ) -> None:
        self._instances = instances
        self._records = records
        self._jobs = jobs
        self._old_after_ms = max_runtime_minutes * 60_000 + _GRACE_MS

    async def run(self, run: TaskRun) -> None:
        """Mark new orphans, and terminate those that still are some. Without old instances no job is read."""
        old = await self._old_instances(run)
        if not old:
            return
        busy = await busy_instances(self._jobs, run)
        await run.keep()
        records = await self._records.read_instances([instance.instance_id for instance in old])
        plan = self._judge(run, old, busy, records)
        run.check_breaker(len(plan.mark) + len(plan.terminate))
        limit = run.limit(_MAX_CHANGES)
        await self._unmark(run, plan.unmark)
        await self._terminate(run, plan.terminate[:limit])
        await self._mark(run, plan.mark[: max(0, limit - len(plan.terminate))])

    async def _old_instances(self, run: TaskRun) -> list[Instance]:
        before = run.now - self._old_after_ms
        old: list[Instance] = []
        async for page in self._instances.managed({InstanceState.PENDING, InstanceState.RUNNING}):
            await run.keep()
            run.listed += len(page)
            old += [instance for instance in page if instance.launched_at < before]
        return old

    def _judge(
        self,
        run: TaskRun,
        old: Sequence[Instance],
        busy: Mapping[str, str],
        records: Mapping[str, InstanceRecord],
    ) -> _Plan:
        plan = _Plan()
        for instance in old:
            record = records[instance.instance_id]
            is_young = record.assigned_at >= run.now - self._old_after_ms
            if is_young or instance.instance_id in busy:
                job_id = busy.get(instance.instance_id)
                why = (
                    f"it runs job {job_id}" if job_id else f"it was assigned at {to_iso(record.assigned_at)}"
                )
                run.spare(instance.instance_id, why, _seen(instance, record))
                if record.draining_since:
                    plan.unmark.append((instance, record))
            elif not record.draining_since:
                plan.mark.append((instance, record))
            elif record.draining_since < instance.launched_at:
                plan.unmark.append((instance, record))
            elif record.draining_since <= run.now - SEEN_AGAIN_MS:
                plan.terminate.append((instance, record))
            else:
                why = "it was marked less than five minutes ago"
                run.spare(instance.instance_id, why, _seen(instance, record))
        return plan

    async def _unmark(self, run: TaskRun, found: Sequence[tuple[Instance, InstanceRecord]]) -> None:
        for instance, record in found:
            await run.keep()
            name, since = instance.instance_id, record.draining_since
            why = "it was started since" if since < instance.launched_at else "it is in use"
            action = run.plan(ActionKind.UNMARKED, name, why, _seen(instance, record))
            with run.acting(action):
                is_done = run.dry_run or await self._records.undrain(name, draining_since=since)
            if is_done:
                run.record(action)

    async def _mark(self, run: TaskRun, found: Sequence[tuple[Instance, InstanceRecord]]) -> None:
        for instance, record in found:
            await run.keep()
            name, seen = instance.instance_id, _seen(instance, record)
            action = run.plan(ActionKind.MARKED, name, _why(run, instance), seen)
            with run.acting(action):
                is_done = run.dry_run or await self._records.mark_draining(record, action.at)
            if is_done:
                run.record(action)
            else:
                run.spare(name, "it was assigned or marked just now", seen)

    async def _terminate(self, run: TaskRun, found: Sequence[tuple[Instance, InstanceRecord]]) -> None:
        for some in split_by_count(found, _AT_ONCE):
            await run.keep()
            actions = [_termination(run, instance, record) for instance, record in some]
            with run.acting(*actions):
                names = [instance.instance_id for instance, _ in some]
                protected = () if run.dry_run else await self._instances.terminate(names)
            if not run.dry_run:
                fleet_metrics.orphans_terminated.add(len(some) - len(protected))
            for action in actions:
                if action.target in protected:
                    run.spare(action.target, "it is protected from termination", action.seen)
                else:
                    run.record(action)


def _termination(run: TaskRun, instance: Instance, record: InstanceRecord) -> RecordedAction:
    why = f"{_why(run, instance)}, twice"
    return run.plan(ActionKind.TERMINATED, instance.instance_id, why, _seen(instance, record))


def _why(run: TaskRun, instance: Instance) -> str:
    age = format_duration(run.now - instance.launched_at)
    return f"it was launched {age} ago, has no running job, and was not assigned since"


def _seen(instance: Instance, record: InstanceRecord) -> str:
    assigned = f"assigned at {to_iso(record.assigned_at)}" if record.assigned_at else "never assigned"
    draining = f"draining since {to_iso(record.draining_since)}" if record.draining_since else "not draining"
    return f"{instance.state.value}, launched at {to_iso(instance.launched_at)}, {assigned}, {draining}"
