"""Claiming: what a message makes of the row that it names."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, TypeVar

from airunner.aws.sqs import MAX_SEND_DELAY_SECONDS
from airunner.domain import lifecycle
from airunner.domain.errors import AirunnerError, JobNotFound
from airunner.domain.job import JobState
from airunner.domain.splitting import take_by_size
from airunner.stores.aws.enqueue import SENT_CHECK_MS
from airunner.stores.aws.hold import BEYOND_ROW_SECONDS
from airunner.stores.aws.items import number, number_at, text
from airunner.stores.aws.layout import queue_key
from airunner.stores.aws.payloads import PayloadGone, PayloadRefused
from airunner.stores.aws.rows import CHECK_AFTER_MS
from airunner.stores.aws.unreadable import UnreadableRow
from airunner.stores.aws.wakeups import Wake
from airunner.stores.records import claim_size
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airunner.aws.wellness import Wellness
    from airunner.domain.clock import Clock
    from airunner.domain.job import Job
    from airunner.domain.lifecycle import Lifecycle
    from airunner.stores.aws.items import Row
    from airunner.stores.aws.payloads import Payloads
    from airunner.stores.aws.rows import Rows
    from airunner.stores.aws.wakeups import Messages, ReceivedWake
    from airunner.stores.records import Demand

_log = get_logger("airunner.aws")

T = TypeVar("T")

# Other replicas have other clocks.
SKEW_MS: Final = 5_000
# How long a job that nobody can do is left alone: at first, and when it has waited long.
_FIRST_REST_SECONDS: Final = 1
_LONGEST_REST_SECONDS: Final = 60
# How long a message is put away at least whose job has not lapsed yet as this replica sees it.
_LEAST_PATIENCE_MS: Final = 60_000


class MessageAction(Enum):
    """What is to be done with a message."""

    CLAIM = auto()
    END = auto()
    """Nobody may claim the job any more, and nobody holds it: it ends here."""
    LATER = auto()
    """The job is not due, or not given up yet: the message comes back."""
    DELETE = auto()


def lapses_at(life: Lifecycle, well_since: int) -> int:
    """Return from when on the holder of a running job counts as lost.

    `well_since` is when the table began to answer this replica without a pause: before that, a holder may
    not have been able to say that it lives.
    """
    return max(life.visible_until, well_since + life.visibility_seconds * 1000) + SKEW_MS


def judge(life: Lifecycle, now: int, well_since: int) -> MessageAction:
    """Return what a message means for a job with this life; see `lapses_at`."""
    if life.state.terminal:
        return MessageAction.DELETE
    if life.state is JobState.RUNNING:
        if life.visible_until + SKEW_MS > now:
            # Somebody holds it. Should they be lost, the reconciler sends another message.
            return MessageAction.DELETE
        if lapses_at(life, well_since) > now:
            # Replicas that were not cut off with us may claim it before.
            return MessageAction.LATER
        return MessageAction.CLAIM if life.claimable_from is not None else MessageAction.END
    if life.due_at <= now:
        return MessageAction.CLAIM
    return MessageAction.LATER if life.due_at - now <= MAX_SEND_DELAY_SECONDS * 1000 else MessageAction.DELETE


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A message, and the job that it names: one that could be claimed when its row was read."""

    message: ReceivedWake
    row: Row
    handler_key: str

    @property
    def size(self) -> int:
        """What the job adds to an answer, in bytes."""
        return claim_size(self.row.params_bytes, self.row.life.last_error)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedJobs:
    """What messages came to. `room` is how many bytes the answer may still have."""

    jobs: Sequence[Job]
    room: int


class Claimer:
    """Turns messages into claimed jobs; the row decides, and is asked consistently."""

    def __init__(
        self, *, rows: Rows, payloads: Payloads, messages: Messages, clock: Clock, wellness: Wellness
    ) -> None:
        self._rows = rows
        self._payloads = payloads
        self._messages = messages
        self._clock = clock
        self._wellness = wellness

    async def look(self, queue: str, received: Sequence[ReceivedWake]) -> tuple[bool, list[Candidate]]:
        """Return whether the queue is paused, and what could be claimed: nothing if it is.

        What cannot be claimed is seen to. A message whose row is missing, or cannot be read here, is left
        alone: if it stays so, the queue's redrive puts it aside.
        """
        # A job that is named twice needs one message.
        named = {message.job_id: message for message in received if message.job_id}
        items = await self._rows.read_many([*named, queue_key(queue)])
        if self._rows.is_paused(items.get(queue_key(queue))):
            await self._messages.give_back(queue, [message.receipt for message in received])
            return True, []
        spare = [message.receipt for message in received if named.get(message.job_id, message) is not message]
        self._messages.delete_later(queue, spare)
        rows = self._rows.rows_of(items[job_id] for job_id in named if job_id in items)
        looks = [self._look_at(row, named[row.job_id]) for row in rows]
        return False, _successful(await asyncio.gather(*looks, return_exceptions=True))

    async def claim(
        self, queue: str, candidates: Sequence[Candidate], demand: Demand, room: int
    ) -> ClaimedJobs:
        """Claim jobs for a demand that can do them, as far as there is room; the others are shown again.

        Some may have been claimed elsewhere meanwhile.
        """
        least = 1 if room == demand.max_bytes else 0
        fitting = take_by_size(candidates, lambda candidate: candidate.size, room, at_least=least)
        beyond = candidates[len(fitting) :]
        if beyond:
            await self._messages.show_again(queue, [candidate.message.receipt for candidate in beyond])
        claims = [self._claim_one(candidate, demand) for candidate in fitting]
        jobs = _successful(await asyncio.gather(*claims, return_exceptions=True))
        receipts = [job.receipt for job in jobs]
        lease_ms = max((job.life.visible_until - job.life.updated_at for job in jobs), default=0)
        self._messages.extend_later(queue, receipts, lease_ms // 1000 + BEYOND_ROW_SECONDS)
        left = 0 if beyond else room - sum(candidate.size for candidate in fitting)
        return ClaimedJobs(jobs=jobs, room=left)

    async def pass_on(self, queue: str, candidates: Sequence[Candidate]) -> None:
        """Let jobs be looked at again later that nobody here can do. Their rows, and so their tries, stay.

        Each gets a new message: one that was received again and again would end as a dead letter. What cannot
        be sent shows again by itself.
        """
        if not candidates:
            return
        now = self._clock.now()
        wakes = [
            Wake(row.job_id, row.life.attempt + 1, _seconds_until_next_look(row.life, now))
            for row in (candidate.row for candidate in candidates)
        ]
        sent = await self._messages.send(queue, wakes)
        receipts = [candidate.message.receipt for candidate in candidates]
        self._messages.delete_later(queue, list(itertools.compress(receipts, sent)))
        passed = list(itertools.compress(candidates, sent))
        await asyncio.gather(*(self._keep_from_reconciler(candidate.row, now) for candidate in passed))

    async def _look_at(self, row: Row, message: ReceivedWake) -> Candidate | None:
        """See to a message whose job cannot be claimed; return what could be claimed."""
        verdict = self._judge(row.life)
        while verdict is MessageAction.END:
            _, row = await self._rows.write(row, lifecycle.expire(row.life, now=self._clock.now()))
            verdict = self._judge(row.life)
        if verdict is MessageAction.CLAIM:
            return Candidate(message, row, await self._payloads.handler_key_of(row))
        await self._put_aside(row, message, verdict)
        return None

    async def _claim_one(self, candidate: Candidate, demand: Demand) -> Job | None:
        row, message = candidate.row, candidate.message
        # What cannot be read is not claimed.
        params = await self._payloads.params_of(row)
        while True:
            now = self._clock.now()
            verdict = self._judge(row.life)
            if verdict in (MessageAction.LATER, MessageAction.DELETE):
                await self._put_aside(row, message, verdict)
                return None
            written, row = await self._rows.write(row, self._next_life(row.life, verdict, demand, now))
            if written and verdict is MessageAction.CLAIM:
                return replace(await self._payloads.job_of(row, params), receipt=message.receipt)

    def _judge(self, life: Lifecycle) -> MessageAction:
        now = self._clock.now()
        return judge(life, now, self._wellness.well_since(now))

    async def _put_aside(self, row: Row, message: ReceivedWake, verdict: MessageAction) -> None:
        """Let a message come back when its job may be claimed, or never."""
        if verdict is MessageAction.LATER:
            wait_seconds = -(-self._wait_ms(row.life) // 1000)
            await self._messages.show_again(row.queue, [message.receipt], max(0, wait_seconds))
        else:
            self._messages.delete_later(row.queue, [message.receipt])

    def _wait_ms(self, life: Lifecycle) -> int:
        """Return how long a message is put away: until its job is due, or by steps until it lapses here.

        The steps are such that other replicas see the message meanwhile, and that it is not received often.
        """
        now = self._clock.now()
        if life.state is not JobState.RUNNING:
            return life.due_at - now
        left_ms = lapses_at(life, self._wellness.well_since(now)) - now
        return max(min(left_ms, _LEAST_PATIENCE_MS), left_ms // 4)

    async def _keep_from_reconciler(self, row: Row, now: int) -> None:
        """Say on a row, now and then, that its message is on its way: otherwise messages would pile up.

        Where an attempt lapsed, the reconciler looks first: its holder may come back, and must be watched.
        """
        check_at, life = number_at(row.item, "check_at"), row.life
        looked = life.state is JobState.SCHEDULED or check_at > life.visible_until + CHECK_AFTER_MS
        if not looked or check_at > now + SENT_CHECK_MS // 2:
            return
        try:
            changes = {"check_at": number(now + SENT_CHECK_MS), "sent_at": number(now)}
            await self._rows.update(row.job_id, changes, {"nonce": text(row.nonce)})
        except AirunnerError as error:
            # One message too many, then.
            _log.warning("aws.follow_up_failed", job_id=row.job_id, error=error.text)

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


def _seconds_until_next_look(life: Lifecycle, now: int) -> int:
    """Return how long a job rests that nobody can do: half of the time that it has waited, within bounds."""
    waited_seconds = (now - (life.claimable_from or now)) // 1000
    return min(max(_FIRST_REST_SECONDS, waited_seconds // 2), _LONGEST_REST_SECONDS)


def _successful(outcomes: Sequence[T | BaseException | None]) -> list[T]:
    """Return what succeeded: it must not be lost with what failed, whose messages come back by themselves."""
    found = [
        outcome for outcome in outcomes if outcome is not None and not isinstance(outcome, BaseException)
    ]
    failures = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    # Nobody else is held up by a job that cannot be read, or whose parameters are gone or refused to us.
    of_one_job = (UnreadableRow, JobNotFound, PayloadGone, PayloadRefused)
    failures = [failure for failure in failures if not isinstance(failure, of_one_job)]
    if failures and not found:
        raise failures[0]
    for failure in failures:
        _log.warning("aws.claim_failed", error=str(failure))
    return found
