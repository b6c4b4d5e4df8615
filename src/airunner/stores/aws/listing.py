"""Lists of jobs and queues, from indexes that are a little behind and rows that are not."""

from __future__ import annotations

import asyncio
import heapq
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from airunner.aws.paging import Pages
from airunner.domain.answers import QueueStats
from airunner.domain.errors import InvalidArgument
from airunner.domain.job import JobState
from airunner.domain.listing import JobPage, abridged
from airunner.stores.aws.items import number, number_at, text, text_at
from airunner.stores.aws.layout import LISTING_INDEX, queue_key
from airunner.stores.pages import PageBounds, cut_page, keys_wanted
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from airunner.aws.calls import Aws
    from airunner.domain.clock import Clock
    from airunner.domain.job import Job
    from airunner.domain.listing import JobQuery
    from airunner.stores.aws.items import Item
    from airunner.stores.aws.known_queues import KnownQueues
    from airunner.stores.aws.layout import Layout
    from airunner.stores.aws.payloads import Payloads
    from airunner.stores.aws.rows import Rows
    from airunner.stores.aws.upkeep.open_jobs import OpenJobs

_log = get_logger("airunner.aws")

_PAGES_LOOKED_AT: Final = 10
_LEAST_AT_ONCE: Final = 20
_WARN_EVERY_MS: Final = 60_000
_CURSOR: Final = re.compile(r"k(\d{13}-[0-9a-f]{6}-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListingBounds(PageBounds):
    """How much a list looks at."""

    looked_at: int = 1_000
    """How many jobs of a shard a query looks at, those of other states included; ten queries are the most."""


class Listing:
    """Newest first, merged from the shards of the index."""

    def __init__(
        self,
        aws: Aws,
        layout: Layout,
        clock: Clock,
        *,
        rows: Rows,
        payloads: Payloads,
        known_queues: KnownQueues,
        open_jobs: OpenJobs,
        bounds: ListingBounds | None = None,
    ) -> None:
        self._aws = aws
        self._layout = layout
        self._clock = clock
        self._rows = rows
        self._payloads = payloads
        self._known_queues = known_queues
        self._warned_at: int | None = None
        self._open_jobs = open_jobs
        self._bounds = bounds or ListingBounds()

    async def jobs(self, query: JobQuery, queues: Collection[str] = ()) -> JobPage:
        """Return a page of jobs; where queues are given, only jobs of these.

        One of a state that is rare among many jobs may be short or empty, and go on by its cursor.
        """
        known = [queue for queue in self._known_queues.names if not queues or queue in queues]
        searched = [query.queue] if query.queue else known
        if len(searched) > 1:
            self._warn_of_all(len(searched))
        before = _parse_cursor(query.cursor) if query.cursor else ""
        wanted = keys_wanted(query, self._bounds)
        keys, stopped_at = await self._keys(searched, query.state, before, wanted)
        page = cut_page(keys, query, self._bounds, given_up=bool(stopped_at))
        return JobPage(
            jobs=await self._fetch(page.keys, query.state),
            last_page=page.last_page,
            next_cursor=_make_cursor(page.keys[-1] if page.is_followed else stopped_at),
        )

    async def queues(self, after: str, limit: int) -> list[QueueStats]:
        """Return queues that were used, by name: the first so many whose names come after another."""
        names = sorted(queue for queue in self._known_queues.names if queue > after)
        items = await self._rows.read_many([queue_key(queue) for queue in names])
        found: list[QueueStats] = []
        for queue in names:
            if len(found) == limit:
                break
            if queue_key(queue) in items:
                stats = await self._stats(queue, items[queue_key(queue)])
                # One that is configured no more is of interest as long as it has jobs.
                if self._known_queues.is_configured(queue) or stats.scheduled or stats.running:
                    found.append(stats)
        return found

    def _warn_of_all(self, queues: int) -> None:
        """Say what a list of all queues costs; a console asks for it every few seconds."""
        now = self._clock.now()
        if self._warned_at is None or not 0 <= now - self._warned_at < _WARN_EVERY_MS:
            self._warned_at = now
            _log.warning("aws.list_all", queues=queues)

    async def _keys(
        self, queues: Sequence[str], state: JobState | None, before: str, limit: int
    ) -> tuple[list[str], str]:
        """Return order keys, newest first, and where the search was given up, if it was."""
        names = [f"{queue}#{shard}" for queue in queues for shard in range(self._layout.listing_shards)]
        # Jobs are spread evenly, so a little more than a fair share of each is mostly enough.
        at_once = self._bounds.looked_at
        if state is None:
            at_once = min(at_once, limit * 5 // (max(1, len(names)) * 4) + _LEAST_AT_ONCE)
        shards = [
            _Shard(self._pages(self._index_query(name, state, before, at_once), _PAGES_LOOKED_AT))
            for name in names
        ]
        found: list[str] = []
        firsts = zip(await asyncio.gather(*(shard.next() for shard in shards)), shards, strict=True)
        heads = [(_Descending(key), shard) for key, shard in firsts if key]
        heapq.heapify(heads)
        while heads and len(found) < limit:
            head, shard = heads[0]
            if shard.is_given_up:
                return found, head.key
            found.append(head.key)
            if following := await shard.next():
                heapq.heapreplace(heads, (_Descending(following), shard))
            else:
                heapq.heappop(heads)
        return found, ""

    def _index_query(self, key: str, state: JobState | None, before: str, at_once: int) -> dict[str, Any]:
        condition, values = "list_key = :key", {":key": text(key)}
        if before:
            condition += " AND order_key < :before"
            values[":before"] = text(before)
        arguments: dict[str, Any] = {
            "IndexName": LISTING_INDEX,
            "KeyConditionExpression": condition,
            "ExpressionAttributeValues": values,
            "ScanIndexForward": False,
            "Limit": at_once,
        }
        if state is not None:
            values[":state"] = number(int(state))
            arguments |= {
                "FilterExpression": "#state = :state",
                "ExpressionAttributeNames": {"#state": "state"},
            }
        return arguments

    def _pages(self, query: dict[str, Any], max_pages: int) -> Pages:
        table = self._layout.jobs_table
        return Pages(self._aws.dynamodb, "Query", max_pages=max_pages, TableName=table, **query)

    async def _fetch(self, keys: Sequence[str], state: JobState | None) -> list[Job]:
        """Return the jobs of order keys as their rows are now, without those that have left the state."""
        names = [key[21:] for key in keys]
        items = await self._rows.read_seen(names) if names else {}
        rows = self._rows.rows_of(items[name] for name in names if name in items)
        wanted = [row for row in rows if state in (None, row.life.state)]
        return [abridged(job) for job in await asyncio.gather(*map(self._payloads.readable_job_of, wanted))]

    async def _stats(self, queue: str, item: Item) -> QueueStats:
        jobs = await self._open_jobs.overview(queue)
        return QueueStats(
            name=queue,
            paused=self._rows.is_paused(item),
            paused_by=text_at(item, "paused_by"),
            paused_at=number_at(item, "paused_at"),
            scheduled=jobs.scheduled,
            running=jobs.running,
            oldest_scheduled_at=jobs.oldest_scheduled_at,
        )


class _Shard:
    """One query of the listing index, item by item."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        self._items: list[Item] = []
        self.is_given_up = False

    async def next(self) -> str:
        """Return the next order key, empty at the end; if it is given up here, the key that it came to."""
        while not self._items and (page := await anext(self._pages, None)):
            # Older versions list API keys here, beside the jobs of a queue that is called `keys`.
            self._items = [item for item in page["Items"][::-1] if "state" in item]
        if self._items:
            return str(self._items.pop()["order_key"]["S"])
        self.is_given_up = self._pages.next_position is not None
        return str(self._pages.next_position["order_key"]["S"]) if self.is_given_up else ""

    def __lt__(self, _: object) -> bool:
        # Only asked when two keys are equal, which they never are.
        return False


class _Descending:
    """An order key that is the smaller the newer it is."""

    __slots__ = ("key",)

    def __init__(self, key: str) -> None:
        self.key = key

    def __lt__(self, other: _Descending) -> bool:
        return self.key > other.key


def _make_cursor(key: str) -> str:
    """Return the cursor that continues after an order key; empty for none."""
    return f"k{key}" if key else ""


def _parse_cursor(cursor: str) -> str:
    match = _CURSOR.fullmatch(cursor)
    if match is None:
        raise InvalidArgument("cursor is not one that a response returned")
    return match[1]
