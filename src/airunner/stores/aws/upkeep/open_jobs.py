"""How many jobs of a queue have not ended: counted in the index without reading them, and then remembered."""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from airunner.aws.paging import Pages
from airunner.domain.background import together
from airunner.domain.job import JobState
from airunner.stores.aws.items import number, text
from airunner.stores.aws.layout import CHECKS_INDEX

if TYPE_CHECKING:
    from airunner.aws.calls import Aws
    from airunner.domain.clock import Clock
    from airunner.stores.aws.items import Item
    from airunner.stores.aws.layout import Layout
    from airunner.stores.aws.unreadable import UnreadableRows

TRUSTED_MS: Final = 5_000
"""How long a count is trusted at least."""
# It is trusted for longer the more it cost: a queue costs each server so many read units a second at most.
_UNITS_A_SECOND: Final = 100
_ENTRY_UNITS: Final = 90 / 4096 / 2
# A page has about 11,000 entries.
_PAGES_OF_SHARD: Final = 5
# How many entries of a shard are looked at for the oldest job.
_FIRST_ENTRIES: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenJobCounts:
    """How many jobs of a queue wait and run, without what other servers did in the last seconds."""

    scheduled: int
    running: int
    oldest_scheduled_at: int
    """When the oldest job that waits was made, among the first that are to be looked at; 0 if none waits."""


@dataclass(slots=True)
class _Count:
    scheduled: int
    running: int
    goal: float
    """How many scheduled jobs would have been enough."""
    is_final: bool
    """Whether counting on would have found no more, or was not allowed."""
    trusted_until: int
    oldest_scheduled_at: int = 0

    def answers(self, goal: float, now: int) -> bool:
        """Return whether it says what somebody wants to know who counts up to a goal."""
        return now < self.trusted_until and (self.is_final or self.goal >= goal)


@dataclass(slots=True)
class _PageSums:
    """What the pages of a count have said so far."""

    scheduled: int = 0
    entries: int = 0
    units: float = 0.0
    is_final: bool = True

    def add(self, page: dict[str, Any]) -> None:
        self.scheduled += page["Count"]
        self.entries += page["ScannedCount"]
        taken = page.get("ConsumedCapacity", {}).get("CapacityUnits", 0)
        self.units += max(taken, page["ScannedCount"] * _ENTRY_UNITS)


class OpenJobs:
    """Counts jobs that have not ended, for each queue once in five seconds at most.

    In between it adds what this server does itself. A count is a bounded number of calls, those of all shards
    at the same time, whose answers have a number and no entries.
    """

    def __init__(self, aws: Aws, layout: Layout, clock: Clock, unreadable: UnreadableRows) -> None:
        self._aws = aws
        self._layout = layout
        self._clock = clock
        self._unreadable = unreadable
        self._counts: dict[str, _Count] = {}
        # Whoever wants to know while a count is under way waits for it.
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def scheduled(self, queue: str, enough: int) -> int:
        """Return how many jobs of a queue wait to be claimed; from `enough` on, there may be more."""
        async with self._turns[queue]:
            return (await self._counted(queue, enough)).scheduled

    async def overview(self, queue: str) -> OpenJobCounts:
        """Return what there is of a queue, as far as a few pages of each shard go."""
        async with self._turns[queue]:
            count = await self._counted(queue, math.inf)
            if count.scheduled and not count.oldest_scheduled_at:
                count.oldest_scheduled_at = await self._oldest(queue)
            return OpenJobCounts(
                scheduled=count.scheduled,
                running=count.running,
                oldest_scheduled_at=count.oldest_scheduled_at,
            )

    async def with_message(self, queue: str, until: int, enough: int) -> int:
        """Return how many jobs of a queue should have a message: all but those not due until an instant.

        From `enough` on, there may be more. This is counted each time.
        """
        near = await self._tally(queue, "<=", until, enough=enough)
        if near.entries >= enough:
            return near.entries
        far = await self._tally(queue, ">", until, max_pages=1)
        return near.entries + far.entries - far.scheduled

    def moved(self, queue: str, before: JobState | None, after: JobState) -> None:
        """Take note that this server moved a job from a state, None for a new job, to another."""
        if count := self._counts.get(queue):
            count.scheduled = max(0, count.scheduled + _change(before, after, JobState.SCHEDULED))
            count.running = max(0, count.running + _change(before, after, JobState.RUNNING))
            if not count.scheduled or (before, after) == (JobState.RUNNING, JobState.SCHEDULED):
                # One that is given back may be older than the oldest that waited.
                count.oldest_scheduled_at = 0

    async def _counted(self, queue: str, goal: float) -> _Count:
        count = self._counts.get(queue)
        if not count or not count.answers(goal, self._clock.monotonic()):
            count = self._counts[queue] = await self._count(queue, goal)
        return count

    async def _count(self, queue: str, goal: float) -> _Count:
        tally = await self._tally(queue, ">", 0, enough=goal, only_scheduled=True)
        trusted_ms = max(TRUSTED_MS, int(tally.units * 1000 / _UNITS_A_SECOND))
        return _Count(
            scheduled=tally.scheduled,
            running=tally.entries - tally.scheduled,
            goal=goal,
            is_final=tally.is_final,
            trusted_until=self._clock.monotonic() + trusted_ms,
        )

    async def _tally(
        self,
        queue: str,
        comparison: str,
        when: int,
        *,
        enough: float = math.inf,
        only_scheduled: bool = False,
        max_pages: int = _PAGES_OF_SHARD,
    ) -> _PageSums:
        """Count jobs that are to be looked at before or after an instant, a page of each shard at a time."""
        tally = _PageSums()
        shards = [
            self._entries(key, comparison, when, max_pages, Select="COUNT") for key in self._keys(queue)
        ]
        while shards:
            pages = await together([anext(shard, None) for shard in shards])
            for page in filter(None, pages):
                tally.add(page)
            shards = [
                shard for shard, page in zip(shards, pages, strict=True) if page and shard.next_position
            ]
            if (tally.scheduled if only_scheduled else tally.entries) >= enough:
                break
        tally.is_final = not shards
        return tally

    async def _oldest(self, queue: str) -> int:
        """Return when the oldest was made of those scheduled jobs that are to be looked at first."""
        shards = [self._entries(key, ">", 0, 1, Limit=_FIRST_ENTRIES) for key in self._keys(queue)]
        pages = await together([anext(shard) for shard in shards])
        found = [
            made for page in pages for made in self._unreadable.readable("job", page["Items"], _created_at)
        ]
        return min(found, default=0)

    def _keys(self, queue: str) -> list[str]:
        return [f"open#{queue}#{shard}" for shard in range(self._layout.listing_shards)]

    def _entries(self, key: str, comparison: str, when: int, max_pages: int, **how: Any) -> Pages:
        return Pages(
            self._aws.dynamodb,
            "Query",
            max_pages=max_pages,
            TableName=self._layout.jobs_table,
            IndexName=CHECKS_INDEX,
            KeyConditionExpression=f"check_key = :key AND check_at {comparison} :when",
            FilterExpression="#state = :scheduled",
            ExpressionAttributeNames={"#state": "state"},
            ExpressionAttributeValues={
                ":key": text(key),
                ":when": number(when),
                ":scheduled": number(int(JobState.SCHEDULED)),
            },
            **how,
        )


def _change(before: JobState | None, after: JobState, state: JobState) -> int:
    return (after is state) - (before is state)


def _created_at(item: Item) -> int:
    """Return when a job of the index was made: its id begins with that instant."""
    name = item["job_id"]["S"]
    return int(name[:8] + name[9:13], 16)
