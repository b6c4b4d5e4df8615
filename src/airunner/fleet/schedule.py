"""Sends the messages of housekeeping at their times, once for each slot, however many schedules run.

A slot is a task and an instant. Whoever comes first claims it, sends its message, and marks it as sent. One
that is still unmarked after a minute is claimed and sent again: its claimer died, or its mark was lost. A
second message of a slot does no harm, since the housekeeper finds the run of the first.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from airunner.domain.errors import AirunnerError
from airunner.domain.outcomes import single
from airunner.fleet.messages.housekeeping import HousekeepingMessage, TaskType, format_housekeeping
from airunner.fleet.ports import SlotState
from airunner.queues.messages import NewMessage
from airunner.services.periodic import Periodic
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airunner.domain.clock import Clock
    from airunner.fleet.ports import Slots
    from airunner.queues.messages import MessageQueue

_log = get_logger("airunner.fleet")

_MINUTE_MS: Final = 60_000
INTERVALS_MS: Final = {
    TaskType.ORPHANED_INSTANCES: 30 * _MINUTE_MS,
    TaskType.STALE_SSM: 60 * _MINUTE_MS,
    TaskType.POOL_AUDIT: 60 * _MINUTE_MS,
    TaskType.OLD_JOBS: 24 * 60 * _MINUTE_MS,
}
"""How often each task has its turn: 97 messages a day. Slots begin at whole multiples of it, in UTC."""
SENT_AGAIN_MS: Final = _MINUTE_MS
_TURN_SECONDS: Final = 15.0


class Schedule:
    """Implements FleetWork. Of what was missed while none ran, the last slot of each task is made up for."""

    def __init__(self, slots: Slots, queue: MessageQueue, clock: Clock) -> None:
        self._slots = slots
        self._queue = queue
        self._clock = clock
        # The instants of each task for which nothing more is to be done here.
        self._over: dict[TaskType, set[int]] = {task: set() for task in INTERVALS_MS}
        self._loop = Periodic(
            "fleet.schedule",
            self.turn,
            clock=clock,
            interval_seconds=_TURN_SECONDS,
            failure_event="fleet.schedule_failed",
            at_once=True,
        )
        self._stopped = asyncio.Event()

    @property
    def healthy(self) -> bool:
        """Whether its turns come to an end."""
        return self._loop.healthy

    @property
    def waiting(self) -> bool:
        """Whether its last turn failed."""
        return bool(self._loop.last_error)

    async def run(self) -> None:
        """Send messages at their times until `stop`."""
        self._loop.start()
        try:
            await self._stopped.wait()
        finally:
            await self._loop.stop()

    def stop(self) -> None:
        """Send no more."""
        self._stopped.set()

    def kill(self) -> None:
        """Do the same."""
        self.stop()

    async def turn(self) -> None:
        """Send what is due. What fails for one task is raised when all have had their turn."""
        failures: list[AirunnerError] = []
        for slot in self._due():
            try:
                await self._attend(slot)
            except AirunnerError as error:
                failures.append(error)
        if failures:
            raise failures[0]

    def _due(self) -> Iterator[_Slot]:
        """Yield the slots that may need something: of each task the one that is on, and the one before it."""
        now = self._clock.now()
        for task, interval in INTERVALS_MS.items():
            current = now - now % interval
            wanted = (current - interval, current)
            self._over[task].intersection_update(wanted)
            for instant in wanted:
                if instant not in self._over[task]:
                    yield _Slot(task=task, instant=instant, is_new=instant == current)

    async def _attend(self, slot: _Slot) -> None:
        message = HousekeepingMessage(task_type=slot.task, timestamp=slot.instant)
        now = self._clock.now()
        state = await self._slots.claim(message.slot, now, stale_before=now - SENT_AGAIN_MS, new=slot.is_new)
        if state is SlotState.CLAIMED:
            single(await self._queue.send([NewMessage(body=format_housekeeping(message))]))
            _log.info("fleet.scheduled", slot=message.slot)
            await self._slots.mark_sent(message.slot, self._clock.now())
        if state is not SlotState.PENDING:
            self._over[slot.task].add(slot.instant)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Slot:
    task: TaskType
    instant: int
    is_new: bool
    """Whether it is claimed also where nobody ever did: of a slot that is over, that is too late."""
