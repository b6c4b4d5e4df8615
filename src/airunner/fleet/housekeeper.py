"""Runs housekeeping tasks: one of each at a time across replicas, once for each slot, and on the record."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final

from airunner.domain.errors import AirunnerError, error_text
from airunner.domain.retry import RetryPolicy, retry
from airunner.fleet.lease import LEASE_MS, LeaseLost, LeaseTaken, TaskLease
from airunner.fleet.records import HousekeepingRun, RunOutcome
from airunner.fleet.run_record import with_earlier
from airunner.fleet.task_run import BreakerTripped, TaskRun
from airunner.telemetry.fleet_metrics import unknown_fields
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airunner.domain.clock import Clock
    from airunner.fleet.dependencies import Dependencies
    from airunner.fleet.messages.housekeeping import HousekeepingMessage, TaskType
    from airunner.fleet.ports import FleetRecords
    from airunner.fleet.task_run import HousekeepingTask

_log = get_logger("airunner.fleet")

_TURNS: Final = RetryPolicy(first_seconds=1.0, max_seconds=10.0)
# So that a look follows the end of a lease, also where clocks differ a little.
_LATE_MS: Final = 20_000


class Housekeeper:
    """Performs what housekeeping messages wish. `holder` names this replica to the others."""

    def __init__(
        self,
        tasks: Mapping[TaskType, HousekeepingTask],
        records: FleetRecords,
        clock: Clock,
        *,
        dependencies: Dependencies,
        holder: str,
    ) -> None:
        self._tasks = tasks
        self._records = records
        self._clock = clock
        self._dependencies = dependencies
        self._holder = holder
        # What earlier tries of a slot did, until that is on record with what the next one does.
        self._earlier: dict[str, HousekeepingRun] = {}

    async def process(self, message: HousekeepingMessage) -> None:
        """Do what a message wishes, again if a dependency is away; each task may be repeated at any point.

        One whose task another replica runs for another slot is done with: that is recorded. For the same slot
        it waits: that run is of this very message, and its replica may have died.
        """
        unknown_fields.add(len(message.unknown_fields), "housekeeping")
        try:
            await self._dependencies.call("housekeeping", lambda: self._run_or_skip(message), seconds=None)
        finally:
            self._earlier.pop(message.slot, None)

    async def run(self, message: HousekeepingMessage, *, force: bool = False) -> HousekeepingRun:
        """Run a task and keep the record of it; a slot that had its run gets that one back.

        LeaseTaken if another replica runs the task. Whatever else a run fails with is recorded and raised;
        then the slot may have another one, whose record has what both did. With `force` the breaker does not
        trip.
        """
        # Of a name of its own for each run: a replica that has two messages of a task runs one of them.
        holder = f"{self._holder}/{secrets.token_hex(4)}/{message.slot}"
        lease = TaskLease(self._records, self._clock, message.task_type, holder)
        await lease.take()
        try:
            # Under the lease: whoever ran the slot has recorded that by now. That a second message was
            # skipped may be recorded before the first one, which has the lease, comes to this.
            known = await self._records.find_run(message.slot)
            if known and known.outcome not in {RunOutcome.FAILED, RunOutcome.SKIPPED}:
                return known
            if known:
                # What could not be written, or had no answer, began with what is known, and has more.
                self._earlier.setdefault(message.slot, known)
            return await self._perform(message, lease, force=force)
        finally:
            await self._leave(lease)

    async def _run_or_skip(self, message: HousekeepingMessage) -> None:
        try:
            await self._run_in_turn(message)
        except (LeaseTaken, LeaseLost) as error:
            now = self._clock.now()
            skipped = HousekeepingRun(
                slot=message.slot,
                task_type=message.task_type,
                started_at=now,
                ended_at=now,
                outcome=RunOutcome.SKIPPED,
                dry_run=message.dry_run,
                text=error.text,
            )
            await self._records.add_run(with_earlier(skipped, self._earlier.get(message.slot)))
            _log.info("housekeeping.skipped", task=message.task_type.value, error=error.text)

    async def _run_in_turn(self, message: HousekeepingMessage) -> None:
        """Run a task; while the lease is that of a run for the same slot, until it would be over.

        After a death, or where its end could not be written, nobody renews it. One that is renewed is of a
        replica that lives, which does what this message wishes.
        """

        def is_of_slot(error: Exception) -> bool:
            return isinstance(error, LeaseTaken) and error.holder.endswith(f"/{message.slot}")

        def log(error: Exception, failures: int) -> None:
            if failures == 1:
                _log.info("housekeeping.waits", task=message.task_type.value, error=error_text(error))

        give_up_at = self._clock.monotonic() + LEASE_MS + _LATE_MS
        await retry(
            _TURNS,
            self._clock,
            lambda: self.run(message),
            retry_if=is_of_slot,
            on_failure=log,
            give_up_at=give_up_at,
        )

    async def _perform(
        self, message: HousekeepingMessage, lease: TaskLease, *, force: bool
    ) -> HousekeepingRun:
        run = TaskRun(
            self._clock,
            lease,
            limit=message.limit,
            dry_run=message.dry_run,
            task=message.task_type.value,
            force=force,
            on_step=self._dependencies.progress.note,
        )
        try:
            await self._tasks[message.task_type].run(run)
        except BreakerTripped as error:
            _log.error("housekeeping.refused", task=message.task_type.value, error=error.text)
            return await self._keep(message, run, RunOutcome.REFUSED, error.text)
        except LeaseLost as error:
            # The record of the slot may be another's by now.
            self._remember(message, run, RunOutcome.SKIPPED, error.text)
            raise
        except Exception as error:
            _log.error("housekeeping.failed", task=message.task_type.value, error=error_text(error))
            await self._keep_failure(message, run, error)
            raise
        return await self._keep(message, run, RunOutcome.DONE)

    async def _keep(
        self, message: HousekeepingMessage, run: TaskRun, outcome: RunOutcome, text: str = ""
    ) -> HousekeepingRun:
        kept = self._remember(message, run, outcome, text)
        await self._records.put_run(kept)
        self._earlier.pop(message.slot, None)
        _log.info(
            "housekeeping.run",
            task=message.task_type.value,
            outcome=outcome.value,
            dry_run=message.dry_run,
            listed=run.listed,
            changed=run.changed,
        )
        return kept

    def _remember(
        self, message: HousekeepingMessage, run: TaskRun, outcome: RunOutcome, text: str
    ) -> HousekeepingRun:
        """Return all that tries of the slot did, this one included; it is kept until it is on record."""
        last = HousekeepingRun(
            slot=message.slot,
            task_type=message.task_type,
            started_at=run.now,
            ended_at=self._clock.now(),
            outcome=outcome,
            dry_run=message.dry_run,
            text=text,
            listed=run.listed,
            changed=run.changed,
            actions=tuple(run.actions),
            actions_left_out=run.actions_left_out,
        )
        all_tries = self._earlier[message.slot] = with_earlier(last, self._earlier.get(message.slot))
        return all_tries

    async def _keep_failure(self, message: HousekeepingMessage, run: TaskRun, error: Exception) -> None:
        try:
            await self._keep(message, run, RunOutcome.FAILED, error_text(error))
        except AirunnerError as second:
            # The first one is raised: it says more.
            _log.warning("housekeeping.not_recorded", task=message.task_type.value, error=second.text)

    async def _leave(self, lease: TaskLease) -> None:
        try:
            await lease.leave()
        except AirunnerError as error:
            # It expires.
            _log.warning("housekeeping.lease_not_left", error=error.text)
