"""A fleet in memory: machines, parameters, records and prices that do what the ports say, no more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from airunner.domain.answers import DequeuedJob
from airunner.domain.errors import FailedPrecondition, NotFound
from airunner.domain.splitting import split_by_count
from airunner.fleet.messages.housekeeping import TaskType
from airunner.fleet.messages.termination import EndStatus, TerminationMessage
from airunner.fleet.ports import SlotState
from airunner.fleet.records import (
    HousekeepingRun,
    Instance,
    InstanceRecord,
    InstanceState,
    Pool,
    PoolAudit,
    RunnerParameter,
)
from airunner.telemetry import fleet_metrics
from airunner.testing.clock import ManualClock

T = TypeVar("T")

PREFIX = "/runs-fleet/runners/"


async def while_time_passes(clock: ManualClock, work: Coroutine[object, object, T]) -> T:
    """Return what something returns that waits for nothing but the clock, however long."""
    task = asyncio.ensure_future(work)
    while not task.done():
        await asyncio.sleep(0)
        if clock.waiting:
            clock.advance(0.5)
    return await task


def ended_attempt(held: DequeuedJob, now: int, status: EndStatus = EndStatus.SUCCESS) -> TerminationMessage:
    """Return what a runner reports of a job that it began now and that took some seconds."""
    return TerminationMessage(
        instance_id=held.job.life.instance_id,
        job_id=held.job.job_id,
        status=status,
        exit_code=1 if status is EndStatus.FAILURE else 0,
        duration_seconds=12.5,
        started_at=now,
        completed_at=now + 12_500,
        attempt=held.job.attempt,
        termination_token=held.termination_token,
    )


class CountedAttempts:
    """How many attempts were counted since it was made."""

    def __init__(self) -> None:
        self._before = self._read()

    def __call__(self) -> int:
        return self._read() - self._before

    def _read(self) -> int:
        counters = (fleet_metrics.job_successes, fleet_metrics.job_failures)
        return int(sum(sum(counter.read().values()) for counter in counters))


class FakeFaults:
    """Counts calls, and lets those fail that a test names."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.errors: dict[str, Exception] = {}
        self.before: Callable[[str], None] | None = None

    def call(self, name: str) -> None:
        self.calls.append(name)
        if self.before:
            self.before(name)
        if error := self.errors.get(name):
            raise error


class FakeInstances(FakeFaults):
    """Implements Instances. `hidden` are those that a lagging description leaves out.

    `protected` are those that somebody has protected from termination.
    """

    def __init__(self, *instances: Instance, page_size: int = 1000) -> None:
        super().__init__()
        self.known = {instance.instance_id: instance for instance in instances}
        self.hidden: set[str] = set()
        self.protected: set[str] = set()
        self.page_size = page_size

    async def managed(self, states: Collection[InstanceState]) -> AsyncIterator[Sequence[Instance]]:
        found = [instance for instance in self._shown().values() if instance.state in states]
        for page in split_by_count(found, self.page_size):
            self.call("managed")
            yield page

    async def find(self, instance_ids: Collection[str]) -> Mapping[str, Instance]:
        self.call("find")
        return {name: found for name, found in self._shown().items() if name in instance_ids}

    async def terminate(self, instance_ids: Sequence[str]) -> Collection[str]:
        self.call("terminate")
        for name in set(instance_ids) - self.protected:
            self.known[name] = replace(self.known[name], state=InstanceState.TERMINATED)
        return self.protected.intersection(instance_ids)

    def _shown(self) -> dict[str, Instance]:
        return {name: found for name, found in self.known.items() if name not in self.hidden}


class FakeParameters(FakeFaults):
    """Implements RunnerParameters, in pages of ten."""

    def __init__(self, *parameters: RunnerParameter) -> None:
        super().__init__()
        self.known = {parameter.name: parameter for parameter in parameters}
        self.values: dict[str, tuple[str, str]] = {}
        """Of each that was put, its value and the instance that may read it."""

    async def list(self) -> AsyncIterator[Sequence[RunnerParameter]]:
        for page in split_by_count(list(self.known.values()), 10):
            self.call("list")
            yield page

    def name_of(self, instance_id: str) -> str:
        return f"{PREFIX}{instance_id}/config"

    def instance_of(self, name: str) -> str:
        instance_id = name.removeprefix(PREFIX).removesuffix("/config")
        return instance_id if name == self.name_of(instance_id) and "/" not in instance_id else ""

    async def read(self, name: str) -> str:
        self.call("read")
        if name not in self.values:
            raise NotFound("there is no such parameter")
        return self.values[name][0]

    async def put(self, name: str, value: str, instance_arn: str) -> None:
        self.call("put")
        self.known[name] = RunnerParameter(name=name, modified_at=0)
        self.values[name] = (value, instance_arn)

    async def delete(self, names: Sequence[str]) -> Collection[str]:
        self.call("delete")
        return [name for name in names if self.known.pop(name, None)]


class FakeRecords(FakeFaults):
    """Implements FleetRecords with dictionaries; every method is one step of the event loop."""

    def __init__(self) -> None:
        super().__init__()
        self.instances: dict[str, InstanceRecord] = {}
        self.counted: dict[tuple[str, str], str] = {}
        """Of each attempt that was counted, by whom."""
        self.leases: dict[TaskType, tuple[str, int]] = {}
        self.runs: dict[str, HousekeepingRun] = {}
        self.pools: dict[str, Pool] = {}
        self.audits: dict[int, dict[str, PoolAudit]] = {}

    async def read_instances(self, instance_ids: Collection[str]) -> Mapping[str, InstanceRecord]:
        self.call("read_instances")
        return {name: self._record(name) for name in instance_ids}

    async def assign(self, instance_id: str, queue: str, now: int) -> InstanceRecord:
        self.call("assign")
        record = self._record(instance_id)
        if record.draining_since:
            raise FailedPrecondition(f"{instance_id} is draining")
        return self._keep(replace(record, queue=queue, assigned_at=now))

    async def mark_draining(self, record: InstanceRecord, now: int) -> bool:
        self.call("mark_draining")
        known = self._record(record.instance_id)
        if known.draining_since or known.assigned_at != record.assigned_at:
            return False
        self._keep(replace(known, draining_since=now))
        return True

    async def undrain(self, instance_id: str, *, draining_since: int = 0) -> bool:
        self.call("undrain")
        record = self._record(instance_id)
        if not record.draining_since or draining_since not in (0, record.draining_since):
            return False
        self._keep(replace(record, draining_since=0))
        return True

    async def note_stale(self, instance_id: str, now: int) -> None:
        self.call("note_stale")
        record = self._record(instance_id)
        self._keep(replace(record, stale_since=record.stale_since or now))

    async def forget_stale(self, instance_id: str) -> None:
        self.call("forget_stale")
        self._keep(replace(self._record(instance_id), stale_since=0))

    async def count_once(self, job_id: str, attempt: str, now: int, *, by: str = "") -> bool:
        self.call("count_once")
        is_new = (job_id, attempt) not in self.counted
        first = self.counted.setdefault((job_id, attempt), by)
        return is_new or (bool(by) and first == by)

    async def take_lease(self, task: TaskType, holder: str, now: int, until: int) -> str:
        self.call("take_lease")
        known, lasts = self.leases.get(task, ("", 0))
        if known != holder and lasts > now:
            return known
        self.leases[task] = (holder, until)
        return holder

    async def extend_lease(self, task: TaskType, holder: str, until: int) -> bool:
        self.call("extend_lease")
        if self.leases.get(task, ("", 0))[0] != holder:
            return False
        self.leases[task] = (holder, until)
        return True

    async def leave_lease(self, task: TaskType, holder: str) -> None:
        self.call("leave_lease")
        if self.leases.get(task, ("", 0))[0] == holder:
            del self.leases[task]

    async def find_run(self, slot: str) -> HousekeepingRun | None:
        self.call("find_run")
        return self.runs.get(slot)

    async def put_run(self, run: HousekeepingRun) -> None:
        self.call("put_run")
        self.runs[run.slot] = run

    async def add_run(self, run: HousekeepingRun) -> bool:
        self.call("add_run")
        return self.runs.setdefault(run.slot, run) is run

    async def list_runs(self, limit: int) -> Sequence[HousekeepingRun]:
        return sorted(self.runs.values(), key=lambda run: -run.started_at)[:limit]

    async def list_pools(self) -> Sequence[Pool]:
        self.call("list_pools")
        return [self.pools[name] for name in sorted(self.pools)]

    async def put_pool(self, pool: Pool) -> None:
        self.pools[pool.name] = pool

    async def put_audits(self, audits: Sequence[PoolAudit]) -> None:
        self.call("put_audits")
        for audit in audits:
            self.audits.setdefault(audit.audited_at, {})[audit.pool] = audit

    async def last_audits(self, limit: int) -> Sequence[Sequence[PoolAudit]]:
        newest = sorted(self.audits, reverse=True)[:limit]
        return [list(self.audits[instant].values()) for instant in newest]

    def _record(self, instance_id: str) -> InstanceRecord:
        return self.instances.get(instance_id) or InstanceRecord(instance_id=instance_id)

    def _keep(self, record: InstanceRecord) -> InstanceRecord:
        self.instances[record.instance_id] = record
        return record


class FakePrices:
    """Implements Prices with a list."""

    def __init__(self, **listed: float) -> None:
        self.listed = listed

    def hourly_usd(self, instance_type: str) -> float | None:
        return self.listed.get(instance_type)


class FakeSlots(FakeFaults):
    """Implements Slots with dictionaries. `die` lets a call end its process, before or after its effect."""

    def __init__(self) -> None:
        super().__init__()
        self.claimed: dict[str, int] = {}
        self.sent: set[str] = set()
        self._death: tuple[str, str, BaseException] | None = None

    def die(self, call: str, when: str, death: BaseException) -> None:
        self._death = (call, when, death)

    async def claim(self, slot: str, now: int, *, stale_before: int, new: bool) -> SlotState:
        self.call("claim")
        self._perhaps_die("claim", "before")
        since = self.claimed.get(slot)
        if slot in self.sent or (since is None and not new):
            return SlotState.OVER
        if since is not None and since > stale_before:
            return SlotState.PENDING
        self.claimed[slot] = now
        self._perhaps_die("claim", "after")
        return SlotState.CLAIMED

    async def mark_sent(self, slot: str, now: int) -> None:
        self.call("mark_sent")
        self._perhaps_die("mark_sent", "before")
        assert self.claimed[slot] <= now
        self.sent.add(slot)
        self._perhaps_die("mark_sent", "after")

    def _perhaps_die(self, call: str, when: str) -> None:
        if self._death and self._death[:2] == (call, when):
            death, self._death = self._death[2], None
            raise death
