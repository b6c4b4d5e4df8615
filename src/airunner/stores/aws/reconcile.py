"""The reconciler: every job that has not ended is looked at again in time, whatever was lost meanwhile.

It repairs sends that failed, messages that were lost, expired or dead-lettered, and visibilities that SQS
does not grant. Every replica does it at once: a conditional write decides whose turn a job is.
"""

from __future__ import annotations

import asyncio
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

from airunner.aws.calls import ConditionFailed
from airunner.aws.paging import Pages
from airunner.domain import lifecycle
from airunner.domain.errors import JobNotFound
from airunner.domain.job import JobState
from airunner.domain.limits import MAX_VISIBILITY_SECONDS
from airunner.stores.aws.claim import SKEW_MS, lapses_at
from airunner.stores.aws.enqueue import SENT_CHECK_MS
from airunner.stores.aws.items import number, text
from airunner.stores.aws.layout import CHECKS_INDEX, sentinel_key
from airunner.stores.aws.rows import CHECK_AFTER_MS
from airunner.stores.aws.unreadable import UnreadableRow
from airunner.stores.aws.wakeups import Wake
from airunner.stores.records import Upkeep

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Sequence

    from airunner.aws.calls import Aws
    from airunner.aws.wellness import Wellness
    from airunner.domain.clock import Clock
    from airunner.domain.lifecycle import Lifecycle
    from airunner.stores.aws.event_log import EventLog
    from airunner.stores.aws.items import Row
    from airunner.stores.aws.known_queues import KnownQueues
    from airunner.stores.aws.layout import Layout
    from airunner.stores.aws.payloads import Payloads
    from airunner.stores.aws.rows import Rows
    from airunner.stores.aws.wakeups import Messages
    from airunner.stores.records import Retention

T = TypeVar("T")

# In the place of a queue: the jobs that have ended, of all queues.
_ENDED: Final = ""
PASS_MS: Final = 20_000
"""How long one pass may take, so that it is never taken for a loop that is stuck."""
# How many jobs are looked at together, and how often that is done for a shard in one pass.
_AT_ONCE: Final = 25
_PAGES: Final = 40
# Of a queue that is not configured: how long a job is left to servers that have the queue, and then alone.
_UNCONFIGURED_WAIT_MS: Final = 5 * 60_000
_UNCONFIGURED_REST_MS: Final = 3600_000


class Reconciler:
    """Looks at the jobs whose time for it has come. A pass is bounded; another one goes on."""

    def __init__(
        self,
        aws: Aws,
        layout: Layout,
        *,
        rows: Rows,
        payloads: Payloads,
        log: EventLog,
        messages: Messages,
        wellness: Wellness,
        known_queues: KnownQueues,
        real_clock: Clock,
    ) -> None:
        self._aws = aws
        self._layout = layout
        self._rows = rows
        self._payloads = payloads
        self._log = log
        self._messages = messages
        self._wellness = wellness
        self._known_queues = known_queues
        # Rows that cannot be read stay at the front of their shard: the next pass goes on behind them.
        self._stuck: dict[str, dict[str, Any]] = {}
        self._real_clock = real_clock
        self._first_shard = 0
        self._give_up_at = 0
        self._is_cut = False

    async def run(self, retention: Retention, now: int) -> Upkeep:
        """One pass: over the jobs that have not ended, and over those whose retention is over.

        It stops after 20 s, and after so many jobs of a shard; then there is more, if it got anything done.
        """
        # Servers whose passes coincide mostly look at different shards, and find done what others did.
        self._first_shard = secrets.randbelow(self._layout.listing_shards)
        self._give_up_at, self._is_cut = self._real_clock.monotonic() + PASS_MS, False
        ended: list[str] = []
        purged = events = 0
        for queue in rotated([*self._known_queues.names, _ENDED]):
            if queue != _ENDED:
                async for rows in self._due(f"open#{queue}", now):
                    over = await _together([self._look_at(row, now) for row in rows])
                    ended += [row.job_id for row, is_over in zip(rows, over, strict=True) if is_over]
                continue
            async for rows in self._due("purge", now - retention.jobs_ms):
                old = [row for row in rows if row.life.state.terminal]
                events += sum(await _together([self._purge(row) for row in old]))
                purged += len(old)
        has_more = self._is_cut and bool(ended or purged)
        return Upkeep(ended_jobs=ended, purged_jobs=purged, purged_events=events, has_more=has_more)

    async def recall(self, now: int) -> None:
        """Bring back visibilities that a wrong clock has given, of this server or of another."""

        def recalled(life: Lifecycle) -> Lifecycle:
            return lifecycle.recall(life, now=now)

        for queue in self._known_queues.names:
            async for job_id in self._far_ahead(queue, now + MAX_VISIBILITY_SECONDS * 1000 + CHECK_AFTER_MS):
                with suppress(JobNotFound):
                    await self._rows.revise(job_id, recalled)

    async def _far_ahead(self, queue: str, since: int) -> AsyncIterator[str]:
        """Yield the running jobs of a queue that would be looked at only after an instant."""
        for shard in range(self._layout.listing_shards):
            key = text(f"open#{queue}#{shard}")
            running = number(int(JobState.RUNNING))
            pages = Pages(
                self._aws.dynamodb,
                "Query",
                max_pages=_PAGES,
                TableName=self._layout.jobs_table,
                IndexName=CHECKS_INDEX,
                KeyConditionExpression="check_key = :key AND check_at > :since",
                FilterExpression="#state = :running",
                ExpressionAttributeNames={"#state": "state"},
                ExpressionAttributeValues={":key": key, ":since": number(since), ":running": running},
            )
            async for page in pages:
                for item in page["Items"]:
                    yield item["job_id"]["S"]

    async def _due(self, key: str, until: int) -> AsyncIterator[list[Row]]:
        """Yield the rows of an index key that are to be looked at, some at a time, over all of its shards."""
        shards = range(self._layout.listing_shards)
        for shard in (*shards[self._first_shard :], *shards[: self._first_shard]):
            if self._is_late():
                return
            name, is_stuck = f"{key}#{shard}", False
            begin = {"ExclusiveStartKey": self._stuck[name]} if name in self._stuck else {}
            pages = Pages(
                self._aws.dynamodb,
                "Query",
                max_pages=_PAGES,
                TableName=self._layout.jobs_table,
                IndexName=CHECKS_INDEX,
                KeyConditionExpression="check_key = :key AND check_at <= :until",
                ExpressionAttributeValues={":key": text(name), ":until": number(until)},
                Limit=_AT_ONCE,
                **begin,
            )
            async for page in pages:
                names = [item["job_id"]["S"] for item in page["Items"]]
                items = await self._rows.read_many(names) if names else {}
                # Without the result: that of a purge that was interrupted may be gone already.
                rows = self._rows.rows_of(items[name] for name in names if name in items)
                is_stuck |= len(rows) < len(items)
                yield rows
                if self._is_late():
                    break
            self._is_cut |= bool(pages.next_position)
            self._stuck.pop(name, None)
            if is_stuck and pages.next_position:
                self._stuck[name] = pages.next_position

    def _is_late(self) -> bool:
        """Whether the pass has had its time; then it is cut."""
        is_late = self._real_clock.monotonic() >= self._give_up_at
        self._is_cut |= is_late
        return is_late

    async def _look_at(self, row: Row, now: int) -> bool:
        """Do what a job needs; return whether that ended it.

        One that vanished was purged elsewhere; what nobody here can read any more is for others.
        """
        with suppress(JobNotFound, UnreadableRow):
            return await self._settle(row, now)
        return False

    async def _settle(self, row: Row, now: int) -> bool:
        """Do what a job needs; return whether that ended it."""
        life = row.life
        # The index may lag behind the row, and another replica may be quicker.
        if life.state.terminal or number_of_check(row) > now:
            return False
        if life.state is JobState.RUNNING and life.visible_until + SKEW_MS > now:
            await self._look_again(row, life.visible_until + CHECK_AFTER_MS)
            return False
        if life.state is JobState.RUNNING and lapses_at(life, self._wellness.well_since(now)) > now:
            # Its time in the index stays: replicas that were not cut off with us may act on it before.
            return False
        if life.claimable_from is None:
            return await self._end(row, now)
        if life.state is JobState.SCHEDULED and life.due_at > now:
            await self._look_again(row, life.due_at)
            return False
        await self._wake(row, now)
        return False

    async def _wake(self, row: Row, now: int) -> None:
        """Send a message for a job that can be claimed; whoever moves its time first, sends."""
        if not self._known_queues.is_configured(row.queue):
            # Nobody here can send. A server that can comes first; then it rests, lest every pass looks at it.
            if number_of_check(row) + _UNCONFIGURED_WAIT_MS <= now:
                await self._look_again(row, now + _UNCONFIGURED_REST_MS)
            return
        moved = await self._look_again(row, now + CHECK_AFTER_MS)
        if moved is None:
            return
        (sent,) = await self._messages.send(row.queue, [Wake(row.job_id, row.life.attempt + 1)])
        if sent:
            await self._look_again(moved, now + SENT_CHECK_MS)

    async def _look_again(self, row: Row, when: int) -> Row | None:
        written, after = await self._rows.update(
            row.job_id, {"check_at": number(when)}, {"nonce": text(row.nonce)}
        )
        return after if written else None

    async def _end(self, row: Row, now: int) -> bool:
        def expired(life: Lifecycle) -> Lifecycle:
            return lifecycle.expire(life, now=now)

        after = await self._rows.revise(row.job_id, expired)
        return after.life.state.terminal

    async def _purge(self, row: Row) -> int:
        """Remove all of a job, its row last: what is interrupted is done again."""
        events = await self._log.remove(row.job_id)
        await self._payloads.remove(row)
        # After a purge that was interrupted here the request may have been made again, for another job.
        with suppress(ConditionFailed):
            await self._delete(
                sentinel_key(row.principal, row.request_id),
                ConditionExpression="target = :job",
                ExpressionAttributeValues={":job": text(row.job_id)},
            )
        await self._delete(row.job_id)
        return events

    async def _delete(self, key: str, **conditions: Any) -> None:
        await self._aws.dynamodb(
            "DeleteItem", TableName=self._layout.jobs_table, Key={"job_id": text(key)}, **conditions
        )


async def _together(works: Sequence[Awaitable[T]]) -> list[T]:
    """Do all at once; when this fails, nothing of it goes on any more."""
    results = await asyncio.gather(*works, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if not isinstance(result, BaseException)]


def rotated(things: Sequence[T]) -> list[T]:
    """Return things in their order, from one on that is drawn: a pass that is cut shall not favour any."""
    first = secrets.randbelow(len(things)) if things else 0
    return [*things[first:], *things[:first]]


def number_of_check(row: Row) -> int:
    """Return when a job is to be looked at, as its row says."""
    value: dict[str, Any] = row.item.get("check_at", {"N": "0"})
    return int(value["N"])
