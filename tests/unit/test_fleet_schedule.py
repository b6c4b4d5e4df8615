"""The schedule: each slot has its message, whoever dies, and seldom two."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

import pytest

from airunner.domain.errors import AirunnerError, Unavailable
from airunner.fleet.messages.housekeeping import TaskType, parse_housekeeping
from airunner.fleet.schedule import Schedule
from airunner.queues.memory import MemoryQueue
from airunner.queues.messages import NewMessage
from airunner.testing.clock import ManualClock
from airunner.testing.conditions import until
from tests.support.fleet import FakeSlots

MIDNIGHT = 1_763_251_200_000
DAY_SECONDS = 24 * 3600
TURN_SECONDS = 15


class Dead(BaseException):
    """A process that died: nothing in it catches this."""


class Post(MemoryQueue):
    """Keeps the slots of what was sent, and fails or dies as a test says."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.sent: list[str] = []
        self.outcomes: list[AirunnerError | None] = []

    async def send(self, messages: Sequence[NewMessage]) -> Sequence[str | AirunnerError]:
        if self.outcomes and (error := self.outcomes.pop(0)):
            return [error]
        self.sent += [parse_housekeeping(message.body).slot for message in messages]
        return await super().send(messages)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(MIDNIGHT)


async def pass_time(clock: ManualClock, seconds: int, *schedules: Schedule) -> None:
    for _ in range(0, seconds, TURN_SECONDS):
        for schedule in schedules:
            await schedule.turn()
        clock.advance(TURN_SECONDS)


async def test_a_day_has_97_messages_however_many_schedules_run(clock: ManualClock) -> None:
    slots, queue = FakeSlots(), Post(clock)
    await pass_time(clock, DAY_SECONDS, *(Schedule(slots, queue, clock) for _ in range(3)))
    assert len(queue.sent) == len(set(queue.sent)) == 97
    tasks = Counter(slot.partition("#")[0] for slot in queue.sent)
    assert tasks == {"orphaned_instances": 48, "stale_ssm": 24, "pool_audit": 24, "old_jobs": 1}
    # A schedule that knows of a slot does not ask again: three claims for each, and no more for the past.
    assert len(slots.calls) < 97 * (3 * 2 + 1) + 20


@pytest.mark.parametrize("call", ["claim", "mark_sent"])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_the_message_of_a_schedule_that_died_is_sent_by_another(
    clock: ManualClock, call: str, when: str
) -> None:
    slots, queue = FakeSlots(), Post(clock)
    slots.die(call, when, Dead())
    with pytest.raises(Dead):
        await Schedule(slots, queue, clock).turn()
    other = Schedule(slots, queue, clock)
    await pass_time(clock, 75 + TURN_SECONDS, other)
    assert {slot.partition("#")[0] for slot in queue.sent} == {task.value for task in TaskType}
    # A second one only where the first was sent and nobody could know.
    assert len(queue.sent) == 4 + (call == "mark_sent" and when == "before")


async def test_a_claim_that_dies_with_its_slot_is_made_up_for_in_the_next(clock: ManualClock) -> None:
    slots, queue = FakeSlots(), Post(clock)
    clock.advance(1795)
    slots.die("claim", "after", Dead())
    with pytest.raises(Dead):
        await Schedule(slots, queue, clock).turn()
    await pass_time(clock, 90, Schedule(slots, queue, clock))
    orphans = [slot for slot in queue.sent if slot.startswith("orphaned")]
    assert orphans == [
        "orphaned_instances#2025-11-16T00:30:00.000Z",
        "orphaned_instances#2025-11-16T00:00:00.000Z",
    ]


async def test_what_was_missed_long_ago_is_not_sent(clock: ManualClock) -> None:
    slots, queue = FakeSlots(), Post(clock)
    await Schedule(slots, queue, clock).turn()
    clock.advance(10 * 3600)
    await Schedule(slots, queue, clock).turn()
    assert len(queue.sent) == 4 + 3


async def test_a_queue_that_refuses_one_message_gets_the_others_and_that_one_later(
    clock: ManualClock,
) -> None:
    slots, queue = FakeSlots(), Post(clock)
    queue.outcomes = [Unavailable("away")]
    schedule = Schedule(slots, queue, clock)
    with pytest.raises(Unavailable):
        await schedule.turn()
    assert len(queue.sent) == 3
    await pass_time(clock, 75, schedule)
    assert len(set(queue.sent)) == len(queue.sent) == 4


async def test_it_runs_until_it_is_stopped_and_survives_a_table_that_is_away(clock: ManualClock) -> None:
    slots, queue = FakeSlots(), Post(clock)
    slots.errors["claim"] = Unavailable("away")
    schedule = Schedule(slots, queue, clock)
    running = asyncio.create_task(schedule.run())
    await until(lambda: clock.waiting == 1)
    assert (queue.sent, schedule.healthy, schedule.waiting) == ([], True, True)
    slots.errors.clear()
    clock.advance(TURN_SECONDS)
    await until(lambda: len(queue.sent) == 4)
    schedule.stop()
    await running
