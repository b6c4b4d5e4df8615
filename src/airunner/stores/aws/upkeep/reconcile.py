"""The reconciler: every job that has not ended is looked at again in time, whatever was lost meanwhile.

It repairs sends that failed, messages that were lost, expired or dead-lettered, and visibilities that SQS
does not grant. Every replica does it at once: a conditional write decides whose turn a job is.
"""

from __future__ import annotations

import asyncio
import secrets
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final, TypeVar

from airunner import telemetry
from airunner.aws.paging import Pages
from airunner.domain import lifecycle
from airunner.domain.errors import (
    AirunnerError,
    JobNotFound,
    ResourceExhausted,
    Unavailable,
    error_text,
)
from airunner.domain.job import JobState
from airunner.stores.aws.claim import SKEW_MS, lapses_at
from airunner.stores.aws.items import number, number_at, text
from airunner.stores.aws.layout import CHECKS_INDEX
from airunner.stores.aws.rows import CHECK_AFTER_MS
from airunner.stores.aws.unreadable import UnreadableRow
from airunner.stores.records import PurgedJobs, Upkeep
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from airunner.aws.calls import Aws
    from airunner.aws.wellness import Wellness
    from airunner.domain.clock import Clock
    from airunner.domain.lifecycle import Lifecycle
    from airunner.stores.aws.items import Row
    from airunner.stores.aws.known_queues import KnownQueues
    from airunner.stores.aws.layout import Layout
    from airunner.stores.aws.rows import Rows
    from airunner.stores.aws.unreadable import NamesInLog
    from airunner.stores.aws.upkeep.purge import Purge
    from airunner.stores.aws.upkeep.resend import Resender
    from airunner.stores.records import Retention

_log = get_logger("airunner.aws")

T = TypeVar("T")

# In the place of a queue: the jobs that have ended, of all queues.
_ENDED: Final = ""
PASS_MS: Final = 20_000
"""How long one pass may take, so that it is never taken for a loop that is stuck."""
# How many jobs are looked at together, and how often that is done for a shard in one pass.
_AT_ONCE: Final = 50
_PAGES: Final = 20
# Of a queue that is not configured: how long a job is left to servers that have the queue, and then alone.
_UNCONFIGURED_WAIT_MS: Final = 5 * 60_000
_UNCONFIGURED_REST_MS: Final = 3600_000


class _Need(Enum):
    """What is left to do for a job that was looked at."""

    NOTHING = auto()
    MESSAGE = auto()
    END = auto()
    """Nothing: the look ended it."""


class Reconciler:
    """Looks at the jobs whose time for it has come. A pass is bounded; another one goes on.

    A job that cannot be seen to is skipped, counted and named, and holds nobody up.
    """

    def __init__(
        self,
        aws: Aws,
        layout: Layout,
        *,
        rows: Rows,
        resender: Resender,
        purge: Purge,
        names: NamesInLog,
        wellness: Wellness,
        known_queues: KnownQueues,
        real_clock: Clock,
    ) -> None:
        self._aws = aws
        self._layout = layout
        self._rows = rows
        self._resender = resender
        self._purge = purge
        self._names = names
        self._wellness = wellness
        self._known_queues = known_queues
        # Rows that stay at the front of their shard, for nothing can be done about them now: the next pass
        # goes on behind them.
        self._stuck: dict[str, dict[str, Any]] = {}
        self._staying = 0
        self._real_clock = real_clock
        self._first_shard = 0
        self._give_up_at = 0
        self._is_cut = False
        self._is_fruitful = False

    async def run(self, retention: Retention, now: int) -> Upkeep:
        """One pass: over the jobs that have not ended, and over those whose retention is over.

        It stops after 20 s, and after so many jobs of a shard; then there is more, if it got anything done.
        If AWS fails in the midst of it, what was done so far is returned: somebody waits for these ends.
        """
        self._begin()
        ended: list[str] = []
        purged = 0
        try:
            for queue in rotated([*self._known_queues.names, _ENDED]):
                if queue == _ENDED:
                    if retention.jobs_ms is None:
                        continue
                    async for rows in self._due("purge", now - retention.jobs_ms):
                        purged += await self._purge_all([row for row in rows if row.life.state.terminal], now)
                else:
                    async for rows in self._due(f"open#{queue}", now):
                        ended += await self._look_after(queue, rows, now)
        except AirunnerError as error:
            if not ended:
                raise
            _log.warning("maintenance.pass_cut", ended=len(ended), error=error.text)
        has_more = self._is_cut and (self._is_fruitful or bool(ended or purged))
        return Upkeep(ended_jobs=ended, purged_jobs=purged, has_more=has_more)

    async def purge(self, before: int, now: int, *, limit: int, dry_run: bool) -> PurgedJobs:
        """Purge up to so many jobs that ended until an instant, or count them. Not beside another pass."""
        self._begin()
        purged = 0
        # No more entries and rows are read than may still be purged.
        due = self._due("purge", before, room=lambda: limit - purged)
        async for rows in due:
            ended = [row for row in rows if row.life.state.terminal]
            purged += len(ended) if dry_run else await self._purge_all(ended, now)
            if purged >= limit:
                return PurgedJobs(jobs=purged, has_more=True)
        return PurgedJobs(jobs=purged, has_more=self._is_cut and purged > 0)

    def _begin(self) -> None:
        # Servers whose passes coincide mostly look at different shards, and find done what others did.
        self._first_shard = secrets.randbelow(self._layout.listing_shards)
        self._give_up_at = self._real_clock.monotonic() + PASS_MS
        self._is_cut = self._is_fruitful = False

    async def _due(
        self,
        key: str,
        until: int,
        *,
        room: Callable[[], int] = lambda: _AT_ONCE,
    ) -> AsyncIterator[list[Row]]:
        """Yield the rows of an index key that are to be looked at, some at a time, over all of its shards.

        `room` says how many the next page may have at most.
        """
        shards = range(self._layout.listing_shards)
        for shard in (*shards[self._first_shard :], *shards[: self._first_shard]):
            if self._is_late():
                return
            name, is_stuck = f"{key}#{shard}", False
            pages = self._pages(name, until, min(room(), _AT_ONCE))
            async for page in pages:
                # An entry that moves in the index may be there twice for a moment.
                found = list(dict.fromkeys(item["job_id"]["S"] for item in page["Items"]))
                names = found[: room()]
                self._is_cut |= len(names) < len(found)
                items = await self._rows.read_many(names) if names else {}
                # Without the result: nobody needs it here, and it may be gone already.
                rows = self._rows.rows_of(items[name] for name in names if name in items)
                staying_before = self._staying
                yield rows
                is_stuck |= len(rows) < len(items) or self._staying > staying_before
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

    def _pages(self, name: str, until: int, at_once: int) -> Pages:
        begin = {"ExclusiveStartKey": self._stuck[name]} if name in self._stuck else {}
        return Pages(
            self._aws.dynamodb,
            "Query",
            max_pages=_PAGES,
            TableName=self._layout.jobs_table,
            IndexName=CHECKS_INDEX,
            KeyConditionExpression="check_key = :key AND check_at <= :until",
            ExpressionAttributeValues={":key": text(name), ":until": number(until)},
            Limit=at_once,
            **begin,
        )

    async def _look_after(self, queue: str, rows: Sequence[Row], now: int) -> list[str]:
        """Do what jobs of a queue need; return those that this ended."""
        needs = await self._for_each(rows, lambda row: self._settle(row, now))
        waiting = [row for row, need in zip(rows, needs, strict=True) if need is _Need.MESSAGE]
        if waiting:
            await self._wake(queue, waiting, now)
        return [row.job_id for row, need in zip(rows, needs, strict=True) if need is _Need.END]

    async def _wake(self, queue: str, rows: Sequence[Row], now: int) -> None:
        """Let jobs have their messages; those for which that fails are skipped."""
        try:
            failures = await self._resender.wake(queue, rows, now)
        except Exception as error:  # noqa: BLE001  what AWS refuses is known there: this is a surprise
            failures = {row.job_id: error for row in rows}
        self._is_fruitful |= len(failures) < len(rows)
        for job_id, failure in failures.items():
            self._skip(job_id, failure)

    async def _purge_all(self, rows: Sequence[Row], now: int) -> int:
        """Purge jobs; return how many."""
        if not rows:
            return 0
        requests = await self._purge.requests_of(rows)
        return sum(map(bool, await self._for_each(rows, lambda row: self._purge.mark(row, requests, now))))

    async def _for_each(self, rows: Sequence[Row], work: Callable[[Row], Awaitable[T]]) -> list[T | None]:
        """Do a work for all rows at once; one that fails is skipped, unless AWS fails for all of them.

        One that vanished was purged elsewhere; what nobody here can read any more is for others.
        """
        outcomes = await asyncio.gather(*map(work, rows), return_exceptions=True)
        failures = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        away = [failure for failure in failures if isinstance(failure, Unavailable | ResourceExhausted)]
        if len(away) == len(rows) > 1:
            raise away[0]
        for row, outcome in zip(rows, outcomes, strict=True):
            if isinstance(outcome, Exception) and not isinstance(outcome, JobNotFound | UnreadableRow):
                self._skip(row.job_id, outcome)
            elif isinstance(outcome, BaseException) and not isinstance(outcome, Exception):
                raise outcome
        return [None if isinstance(outcome, BaseException) else outcome for outcome in outcomes]

    def _skip(self, job_id: str, error: Exception) -> None:
        self._staying += 1
        telemetry.maintenance_jobs_skipped.add(1)
        if self._names.may_name(job_id):
            _log.error("maintenance.job_skipped", job_id=job_id, error=error_text(error))

    async def _settle(self, row: Row, now: int) -> _Need:
        """Do what a job needs but for a message."""
        life = row.life
        # The index may lag behind the row, and another replica may be quicker.
        if life.state.terminal or number_at(row.item, "check_at") > now:
            return _Need.NOTHING
        if life.state is JobState.RUNNING and life.visible_until + SKEW_MS > now:
            await self._look_again(row, life.visible_until + CHECK_AFTER_MS)
            return _Need.NOTHING
        if life.state is JobState.RUNNING and lapses_at(life, self._wellness.well_since(now)) > now:
            # Its time in the index stays: replicas that were not cut off with us may act on it before.
            self._staying += 1
            return _Need.NOTHING
        if life.claimable_from is None:
            return _Need.END if await self._end(row, now) else _Need.NOTHING
        if life.state is JobState.SCHEDULED and life.due_at > now:
            await self._look_again(row, life.due_at)
            return _Need.NOTHING
        if self._known_queues.is_configured(row.queue):
            return _Need.MESSAGE
        # Nobody here can send. A server that can comes first; then it rests, lest every pass looks at it.
        if number_at(row.item, "check_at") + _UNCONFIGURED_WAIT_MS <= now:
            await self._look_again(row, now + _UNCONFIGURED_REST_MS)
        else:
            self._staying += 1
        return _Need.NOTHING

    async def _look_again(self, row: Row, when: int) -> None:
        """Move the time to look at a job, unless something happened to it."""
        await self._rows.update(row.job_id, {"check_at": number(when)}, {"nonce": text(row.nonce)})

    async def _end(self, row: Row, now: int) -> bool:
        def expired(life: Lifecycle) -> Lifecycle:
            return lifecycle.expire(life, now=now)

        after = await self._rows.revise(row.job_id, expired)
        return after.life.state.terminal


def rotated(things: Sequence[T]) -> list[T]:
    """Return things in their order, from one on that is drawn: a pass that is cut shall not favour any."""
    first = secrets.randbelow(len(things)) if things else 0
    return [*things[first:], *things[:first]]
