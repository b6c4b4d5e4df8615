"""Claiming: what a message makes of the row that it names."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from airunner.aws.sqs import MAX_SEND_DELAY_SECONDS
from airunner.domain import lifecycle
from airunner.domain.job import Job, JobState
from airunner.stores.aws.hold import BEYOND_ROW_SECONDS
from airunner.stores.aws.items import row_from_item
from airunner.stores.aws.layout import queue_key
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


class Claimer:
    """Turns messages into claimed jobs; the row decides, and is asked consistently."""

    def __init__(self, *, rows: Rows, payloads: Payloads, messages: Messages, clock: Clock) -> None:
        self._rows = rows
        self._payloads = payloads
        self._messages = messages
        self._clock = clock

    async def claim(
        self, queue: str, received: Sequence[ReceivedWake], demand: Demand
    ) -> tuple[bool, list[Job]]:
        """Claim what the messages name; return whether the queue is paused, and the jobs: none if it is.

        A message whose row is missing is left alone: if it stays so, the queue's redrive puts it aside.
        """
        # A job that is named twice needs one message.
        named = {message.job_id: message for message in received if message.job_id}
        items = await self._rows.read_many([*named, queue_key(queue)])
        if is_paused(items.get(queue_key(queue))):
            await self._messages.show_again(queue, [message.receipt for message in received])
            return True, []
        spare = [message.receipt for message in received if named.get(message.job_id, message) is not message]
        self._messages.delete_later(queue, spare)
        claims = [
            self._claim_one(row_from_item(items[job_id]), message, demand)
            for job_id, message in named.items()
            if job_id in items
        ]
        jobs = _claimed(await asyncio.gather(*claims, return_exceptions=True))
        receipts = [job.receipt for job in jobs]
        lease_ms = max((job.life.visible_until - job.life.updated_at for job in jobs), default=0)
        self._messages.extend_later(queue, receipts, lease_ms // 1000 + BEYOND_ROW_SECONDS)
        return False, jobs

    async def _claim_one(self, row: Row, message: ReceivedWake, demand: Demand) -> Job | None:
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
                return replace(await self._payloads.job_of(row), receipt=message.receipt)

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
    if failures and not jobs:
        raise failures[0]
    for failure in failures:
        _log.warning("aws.claim_failed", error=str(failure))
    return jobs


def is_paused(item: dict[str, dict[str, object]] | None) -> bool:
    """Return whether what is known of a queue says that nothing may be claimed from it."""
    return bool(item and item.get("paused", {}).get("BOOL"))
