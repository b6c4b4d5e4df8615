"""What the fleet stands on: machines, parameters, records and prices, whoever has them.

All calls follow all pages and may be repeated. What they raise are AirunnerErrors: Unavailable and
ResourceExhausted for what is away or throttles, others for what is refused.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Mapping, Sequence

    from airunner.fleet.messages.housekeeping import TaskType
    from airunner.fleet.records import (
        HousekeepingRun,
        Instance,
        InstanceRecord,
        InstanceState,
        Pool,
        PoolAudit,
        RunnerParameter,
    )
    from airunner.stores.records import PurgedJobs, RunningPage


class Instances(Protocol):
    """The machines. An answer may lag behind what was done: a new one may be missing."""

    def managed(self, states: Collection[InstanceState]) -> AsyncIterator[Sequence[Instance]]:
        """Yield, in pages, all instances of the fleet that are in one of these states."""

    async def find(self, instance_ids: Collection[str]) -> Mapping[str, Instance]:
        """Return those of these instances that exist, terminated ones included; others are left out."""

    async def terminate(self, instance_ids: Sequence[str]) -> Collection[str]:
        """Terminate instances for good; return those that are protected from that, and stay.

        One that is terminated already, or gone, is no error.
        """


class RunnerParameters(Protocol):
    """The configurations of the runners, each a parameter that is named by its instance."""

    def list(self) -> AsyncIterator[Sequence[RunnerParameter]]:
        """Yield, in pages, all parameters under the prefix."""

    def name_of(self, instance_id: str) -> str:
        """Return the name of the parameter of an instance."""

    def instance_of(self, name: str) -> str:
        """Return the instance whose parameter has this name; empty for a name of any other form."""

    async def read(self, name: str) -> str:
        """Return the value of a parameter; NotFound if there is none, FailedPrecondition if we may not."""

    async def put(self, name: str, value: str, instance_arn: str) -> None:
        """Write a parameter, which this instance alone may read; one that is there already is replaced."""

    async def delete(self, names: Sequence[str]) -> Collection[str]:
        """Delete parameters; return those that were there. One that is missing is no error."""


class FleetRecords(Protocol):
    """The fleet's memory. Each write is one step, on its condition; reads by a key are consistent.

    Lists of runs and audits may be a little behind.
    """

    async def read_instances(self, instance_ids: Collection[str]) -> Mapping[str, InstanceRecord]:
        """Return the record of each of these instances; of one without, the defaults."""

    async def assign(self, instance_id: str, queue: str, now: int) -> InstanceRecord:
        """Note what an instance is to work on. FailedPrecondition if it is draining."""

    async def mark_draining(self, record: InstanceRecord, now: int) -> bool:
        """Let an instance get no more work; return whether that was done.

        Nothing is done if it is draining already, or was assigned since the record was read.
        """

    async def undrain(self, instance_id: str, *, draining_since: int = 0) -> bool:
        """Take the mark of an instance back, if given only the one of that instant; return whether it was."""

    async def note_stale(self, instance_id: str, now: int) -> None:
        """Note when a parameter was first seen without its instance; a later sighting changes nothing."""

    async def forget_stale(self, instance_id: str) -> None:
        """Forget that: the instance is there, or the parameter is gone."""

    async def count_once(self, job_id: str, attempt: str, now: int, *, by: str = "") -> bool:
        """Return whether nobody else has counted this attempt before; from now on somebody has.

        `by` names who does, so that they are known again when their answer was lost; empty is nobody.
        """

    async def take_lease(self, task: TaskType, holder: str, now: int, until: int) -> str:
        """Take the lease of a task if nobody has it now; return who has it then."""

    async def extend_lease(self, task: TaskType, holder: str, until: int) -> bool:
        """Keep a lease for longer; return whether it is still this holder's."""

    async def leave_lease(self, task: TaskType, holder: str) -> None:
        """Give a lease back. Nothing happens if another has it."""

    async def find_run(self, slot: str) -> HousekeepingRun | None:
        """Return the run that a slot has had, if any."""

    async def put_run(self, run: HousekeepingRun) -> None:
        """Keep a run; one of the same slot is replaced."""

    async def add_run(self, run: HousekeepingRun) -> bool:
        """Keep a run unless its slot has one already; return whether it was kept."""

    async def list_runs(self, limit: int) -> Sequence[HousekeepingRun]:
        """Return the last runs, newest first."""

    async def list_pools(self) -> Sequence[Pool]:
        """Return the pools that operators have described, by name."""

    async def put_pool(self, pool: Pool) -> None:
        """Keep what an operator says of a pool."""

    async def put_audits(self, audits: Sequence[PoolAudit]) -> None:
        """Keep what one audit found. One of the same pool and instant is replaced."""

    async def last_audits(self, limit: int) -> Sequence[Sequence[PoolAudit]]:
        """Return the last audits, newest first, each with all its pools."""


class SlotState(Enum):
    """What became of a claim."""

    CLAIMED = "claimed"
    """It is the caller's: the message is to be sent."""
    PENDING = "pending"
    """Somebody else claimed it a moment ago, and has not said that the message is sent."""
    OVER = "over"
    """Its message is sent, or it is too late for a first claim."""


class Slots(Protocol):
    """The times at which the schedule sends messages; each write is one step, on its condition."""

    async def claim(self, slot: str, now: int, *, stale_before: int, new: bool) -> SlotState:
        """Claim a slot that nobody has, if it is `new`, or one that was claimed until an instant, unsent."""

    async def mark_sent(self, slot: str, now: int) -> None:
        """Say that the message of a slot is in its queue. May be repeated."""


class Prices(Protocol):
    """What instances cost."""

    def hourly_usd(self, instance_type: str) -> float | None:
        """Return the price of an hour; None if it is not listed, which is not the same as nothing."""


class RunningJobs(Protocol):
    """The jobs that run; every JobStore can tell."""

    async def running_jobs(self, cursor: str = "") -> RunningPage:
        """Return a page of them; see JobStore."""


class OldJobs(Protocol):
    """The store's one purge."""

    async def purge_jobs(self, before: int, *, limit: int, dry_run: bool = False) -> PurgedJobs:
        """Purge up to so many of the jobs that ended until an instant, with their events and payloads.

        What is interrupted is done again by the next call. Every JobStore can.
        """
