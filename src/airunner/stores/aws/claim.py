"""Claiming: what a message makes of the row that it names."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from airunner.aws.sqs import MAX_SEND_DELAY_SECONDS
from airunner.domain import lifecycle
from airunner.domain.errors import JobNotFound
from airunner.domain.job import Job, JobState
from airunner.domain.splitting import take_by_size
from airunner.stores.aws.hold import BEYOND_ROW_SECONDS
from airunner.stores.aws.layout import queue_key
from airunner.stores.aws.unreadable import UnreadableRow
from airunner.stores.records import claim_size
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airunner.domain.clock import Clock
    from airunner.domain.lifecycle import Lifecycle
    from airunner.stores.aws.items import Row
    from airunner.stores.aws.payloads import Payloads
    from airunner.stores.aws.rows import Rows
    from airunner.stores.aws.wakeups import Messages, ReceivedWake
    from airunner.stores.records import Demand

_log = get_logger("airunner.aws")

# Other replicas have other clocks.
SKEW_MS: Final = 5_000


class MessageAction(Enum):
    """What is to be done with a message."""

    CLAIM = auto()
    END = auto()
    """Nobody may claim the job any more, and nobody holds it: it ends here."""
    LATER = auto()
    """The job is not due: the message comes back when it is."""
    DELETE = auto()


def judge(life: Lifecycle, now: int) -> MessageAction:
    """Return what a message means for a job with this life."""
    if life.state.terminal:
        return MessageAction.DELETE
    if life.state is JobState.RUNNING:
        if life.visible_until + SKEW_MS > now:
            # Somebody holds it. Should they be lost, the reconciler sends another message.
            return MessageAction.DELETE
        return MessageAction.CLAIM if life.claimable_from is not None else MessageAction.END
    if life.due_at <= now:
        return MessageAction.CLAIM
    return MessageAction.LATER if life.due_at - now <= MAX_SEND_DELAY_SECONDS * 1000 else MessageAction.DELETE


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedJobs:
    """What messages came to: nothing if the queue is paused. `room` is what the answer may still have."""

    jobs: Sequence[Job] = ()
    room: int = 0
    paused: bool = False


class Claimer:
    """Turns messages into claimed jobs; the row decides, and is asked consistently."""

    def __init__(self, *, rows: Rows, payloads: Payloads, messages: Messages, clock: Clock) -> None:
        self._rows = rows
        self._payloads = payloads
        self._messages = messages
        self._clock = clock

    async def claim(
        self, queue: str, received: Sequence[ReceivedWake], demand: Demand, room: int
    ) -> ClaimedJobs:
        """Claim what the messages name, as far as there is room; the others are shown again.

        A message whose row is missing, or cannot be read here, is left alone: if it stays so, the queue's
        redrive puts it aside.
        """
        # A job that is named twice needs one message.
        named = {message.job_id: message for message in received if message.job_id}
        items = await self._rows.read_many([*named, queue_key(queue)])
        if self._rows.is_paused(items.get(queue_key(queue))):
            await self._messages.show_again(queue, [message.receipt for message in received])
            return ClaimedJobs(paused=True)
        spare = [message.receipt for message in received if named.get(message.job_id, message) is not message]
        self._messages.delete_later(queue, spare)
        rows = self._rows.rows_of(items[job_id] for job_id in named if job_id in items)
        found = [(row, named[row.job_id]) for row in rows]
        least = 1 if room == demand.max_bytes else 0
        fitting = take_by_size(found, lambda entry: self._size(entry[0]), room, at_least=least)
        beyond = found[len(fitting) :]
        if beyond:
            await self._messages.show_again(queue, [message.receipt for _, message in beyond])
        claims = [self._claim_one(row, message, demand) for row, message in fitting]
        jobs = _claimed(await asyncio.gather(*claims, return_exceptions=True))
        receipts = [job.receipt for job in jobs]
        lease_ms = max((job.life.visible_until - job.life.updated_at for job in jobs), default=0)
        self._messages.extend_later(queue, receipts, lease_ms // 1000 + BEYOND_ROW_SECONDS)
        left = 0 if beyond else room - sum(self._size(row) for row, _ in fitting)
        return ClaimedJobs(jobs=jobs, room=left)

    def _size(self, row: Row) -> int:
        """Return what a job adds to the answer: nothing if it is not to be claimed."""
        if judge(row.life, self._clock.now()) is not MessageAction.CLAIM:
            return 0
        return claim_size(row.params_bytes, row.life.last_error)

    async def _claim_one(self, row: Row, message: ReceivedWake, demand: Demand) -> Job | None:
        # What cannot be read is not claimed.
        params = await self._payloads.params_of(row) if self._size(row) else None
        while True:
            now = self._clock.now()
            verdict = judge(row.life, now)
            if verdict is MessageAction.LATER:
                wait_seconds = -(-(row.life.due_at - now) // 1000)
                await self._messages.show_again(row.queue, [message.receipt], wait_seconds)
                return None
            if verdict is MessageAction.DELETE:
                self._messages.delete_later(row.queue, [message.receipt])
                return None
            written, row = await self._rows.write(row, self._next_life(row.life, verdict, demand, now))
            if written and verdict is MessageAction.CLAIM:
                return replace(await self._payloads.job_of(row, params), receipt=message.receipt)

    def _next_life(self, life: Lifecycle, verdict: MessageAction, demand: Demand, now: int) -> Lifecycle:
        if verdict is MessageAction.END:
            return lifecycle.expire(life, now=now)
        return lifecycle.claim(
            life,
            now=now,
            visibility_seconds=demand.visibility_seconds,
            first_lease_seconds=demand.first_lease_seconds,
            worker_id=demand.worker_id,
            instance_id=demand.instance_id,
        )


def _claimed(outcomes: Sequence[Job | BaseException | None]) -> list[Job]:
    """Return the jobs that were claimed: they must not be lost with others, which come back by themselves."""
    jobs = [outcome for outcome in outcomes if isinstance(outcome, Job)]
    failures = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    # Nobody else is held up by a job that cannot be read, or whose parameters are gone.
    failures = [failure for failure in failures if not isinstance(failure, UnreadableRow | JobNotFound)]
    if failures and not jobs:
        raise failures[0]
    for failure in failures:
        _log.warning("aws.claim_failed", error=str(failure))
    return jobs
