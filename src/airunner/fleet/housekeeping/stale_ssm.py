"""Deletes the configurations of runners whose instances are gone.

A parameter is stale when nobody wrote it for an hour and its instance is absent or terminated. EC2's answers
lag, so that is to be seen twice, five minutes apart at least; a sighting of the instance in between begins
anew, and so does an assignment, which writes the parameter again. A parameter whose name is of another form
is nobody's business here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from airunner.domain.splitting import split_by_count
from airunner.fleet.housekeeping.orphaned_instances import SEEN_AGAIN_MS
from airunner.fleet.records import ActionKind, InstanceState
from airunner.reading.instants import to_iso
from airunner.telemetry import fleet_metrics

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airunner.fleet.ports import FleetRecords, Instances, RunnerParameters
    from airunner.fleet.records import Instance, InstanceRecord, RecordedAction, RunnerParameter
    from airunner.fleet.task_run import TaskRun

_OLD_AFTER_MS: Final = 3_600_000
_MAX_CHANGES: Final = 500
_AT_ONCE: Final = 10


class StaleParameters:
    """Implements HousekeepingTask."""

    def __init__(self, instances: Instances, parameters: RunnerParameters, records: FleetRecords) -> None:
        self._instances = instances
        self._parameters = parameters
        self._records = records

    async def run(self, run: TaskRun) -> None:
        """Note parameters that are seen without their instance, and delete those that were seen so before."""
        old = await self._old_parameters(run)
        if not old:
            return
        found = await self._instances.find(old)
        await run.keep()
        records = await self._records.read_instances(old)
        # What was seen before the parameter was last written was seen of another one.
        unseen = {name for name in old if records[name].stale_since <= old[name].modified_at}
        await self._forget(run, [name for name in old if name in unseen or _is_there(found, name)], records)
        gone = [name for name in old if not _is_there(found, name)]
        first = [name for name in gone if name in unseen]
        again = [
            name
            for name in gone
            if name not in unseen and records[name].stale_since <= run.now - SEEN_AGAIN_MS
        ]
        run.check_breaker(len(first) + len(again))
        limit = run.limit(_MAX_CHANGES)
        await self._delete(run, [old[name] for name in again[:limit]], found, records)
        await self._note(run, first[: max(0, limit - len(again))], found)

    async def _old_parameters(self, run: TaskRun) -> dict[str, RunnerParameter]:
        """Return the parameters that may be stale, by instance."""
        old: dict[str, RunnerParameter] = {}
        async for page in self._parameters.list():
            await run.keep()
            run.listed += len(page)
            for parameter in page:
                instance_id = self._parameters.instance_of(parameter.name)
                if not instance_id:
                    why = "its name is not that of a runner's configuration"
                    run.spare(parameter.name, why, _seen(parameter))
                elif parameter.modified_at < run.now - _OLD_AFTER_MS:
                    old[instance_id] = parameter
        return old

    async def _forget(
        self, run: TaskRun, present: Sequence[str], records: Mapping[str, InstanceRecord]
    ) -> None:
        for instance_id in present:
            if records[instance_id].stale_since and not run.dry_run:
                await run.keep()
                await self._records.forget_stale(instance_id)

    async def _delete(
        self,
        run: TaskRun,
        parameters: Sequence[RunnerParameter],
        found: Mapping[str, Instance],
        records: Mapping[str, InstanceRecord],
    ) -> None:
        for some in split_by_count(parameters, _AT_ONCE):
            await run.keep()
            actions = [self._deletion(run, parameter, found, records) for parameter in some]
            names = [parameter.name for parameter in some]
            with run.acting(*actions):
                deleted = names if run.dry_run else await self._parameters.delete(names)
            for action in actions:
                # One that was not there is somebody else's, or was deleted by a call whose answer was lost.
                tell = run.record if action.target in deleted else run.record_uncertain
                tell(action)
            if not run.dry_run:
                fleet_metrics.parameters_deleted.add(len(deleted))
                for name in names:
                    await self._records.forget_stale(self._parameters.instance_of(name))

    def _deletion(
        self,
        run: TaskRun,
        parameter: RunnerParameter,
        found: Mapping[str, Instance],
        records: Mapping[str, InstanceRecord],
    ) -> RecordedAction:
        instance_id = self._parameters.instance_of(parameter.name)
        since = to_iso(records[instance_id].stale_since)
        why = f"its instance is {_state(found, instance_id)}, as it was at {since}"
        return run.plan(ActionKind.DELETED, parameter.name, why, _seen(parameter))

    async def _note(self, run: TaskRun, names: Sequence[str], found: Mapping[str, Instance]) -> None:
        for instance_id in names:
            await run.keep()
            why = f"its instance is {_state(found, instance_id)}: it is deleted if that is seen again"
            action = run.plan(ActionKind.MARKED, self._parameters.name_of(instance_id), why, "")
            with run.acting(action):
                if not run.dry_run:
                    await self._records.note_stale(instance_id, action.at)
            run.record(action)


def _is_there(found: Mapping[str, Instance], instance_id: str) -> bool:
    instance = found.get(instance_id)
    return instance is not None and instance.state is not InstanceState.TERMINATED


def _state(found: Mapping[str, Instance], instance_id: str) -> str:
    return "terminated" if instance_id in found else "absent"


def _seen(parameter: RunnerParameter) -> str:
    return f"written at {to_iso(parameter.modified_at)}"
