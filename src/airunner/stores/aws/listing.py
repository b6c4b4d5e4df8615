"""Lists of jobs and queues, from indexes that are a little behind and rows that are not."""

from __future__ import annotations

import heapq
import re
from typing import TYPE_CHECKING, Any, Final

import structlog

from airunner.domain.errors import InvalidArgument
from airunner.domain.job import JobState
from airunner.stores.aws.claiming import is_paused
from airunner.stores.aws.enqueueing import queue_key
from airunner.stores.aws.items import number, row_from_item, text
from airunner.stores.aws.layout import CHECKS_INDEX, LISTING_INDEX
from airunner.stores.base import JobPage, QueueStats
from airunner.stores.listing import count_pages

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from airunner.domain.job import Job
    from airunner.stores.aws.connection import Aws
    from airunner.stores.aws.items import Item
    from airunner.stores.aws.layout import Layout
    from airunner.stores.aws.payloads import Payloads
    from airunner.stores.aws.rows import Rows
    from airunner.stores.base import JobQuery

_log = structlog.get_logger("airunner.aws")

# Pages are counted up to here; what lies beyond is only known to be more.
_COUNTED: Final = 1_000
_STATS_PAGES: Final = 5
_CURSOR: Final = re.compile(r"k(\d{13}-[0-9a-f]{6}-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})")


class Listing:
    """Newest first, merged from the shards of the index."""

    def __init__(self, aws: Aws, layout: Layout, *, rows: Rows, payloads: Payloads) -> None:
        self._aws = aws
        self._layout = layout
        self._rows = rows
        self._payloads = payloads

    async def jobs(self, query: JobQuery) -> JobPage:
        """Return a page of jobs. Pages are numbered up to a thousand jobs, and one further than is known."""
        queues = [query.queue] if query.queue else list(self._layout.queues)
        if not query.queue:
            _log.warning("aws.list_all", queues=len(queues))
        before = _parse_cursor(query.cursor) if query.cursor else ""
        skip = 0 if query.cursor else (query.page - 1) * query.page_size
        enough = skip + query.page_size + 1
        wanted = enough if query.cursor else max(_COUNTED + 1, enough)
        keys = [key async for key in self._keys(queues, query.state, before, min(wanted, _COUNTED * 10))]
        chosen = keys[skip : skip + query.page_size]
        more = len(keys) > skip + query.page_size
        return JobPage(
            jobs=await self._fetch(chosen, query.state),
            last_page=_last_page(len(keys), query),
            next_cursor=f"k{chosen[-1]}" if more and chosen else "",
        )

    async def queues(self) -> list[QueueStats]:
        """Return the queues that were used, by name."""
        items = await self._rows.read_many([queue_key(queue) for queue in self._layout.queues])
        used = sorted(queue for queue in self._layout.queues if queue_key(queue) in items)
        return [await self._stats(queue, items[queue_key(queue)]) for queue in used]

    async def count_scheduled(self, queue: str) -> int:
        """Return how many jobs of a queue wait to be claimed."""
        return sum(state is JobState.SCHEDULED for _, state in await self._open_jobs(queue))

    async def _keys(
        self, queues: Sequence[str], state: JobState | None, before: str, limit: int
    ) -> AsyncIterator[str]:
        """Yield order keys, newest first."""
        shards = [
            _Shard(self._aws, self._index_query(f"{queue}#{shard}", state, before, limit))
            for queue in queues
            for shard in range(self._layout.listing_shards)
        ]
        heads = [(_Descending(key), shard) for shard in shards if (key := await shard.next())]
        heapq.heapify(heads)
        while heads and limit:
            head, shard = heads[0]
            yield head.key
            limit -= 1
            following = await shard.next()
            if following:
                heapq.heapreplace(heads, (_Descending(following), shard))
            else:
                heapq.heappop(heads)

    def _index_query(self, key: str, state: JobState | None, before: str, limit: int) -> dict[str, Any]:
        condition, values = "list_key = :key", {":key": text(key)}
        if before:
            condition += " AND order_key < :before"
            values[":before"] = text(before)
        arguments: dict[str, Any] = {
            "TableName": self._layout.jobs_table,
            "IndexName": LISTING_INDEX,
            "KeyConditionExpression": condition,
            "ExpressionAttributeValues": values,
            "ScanIndexForward": False,
            "Limit": min(limit, _COUNTED),
        }
        if state is not None:
            values[":state"] = number(int(state))
            arguments |= {
                "FilterExpression": "#state = :state",
                "ExpressionAttributeNames": {"#state": "state"},
            }
        return arguments

    async def _fetch(self, keys: Sequence[str], state: JobState | None) -> list[Job]:
        """Return the jobs of order keys as their rows are now, without those that have left the state."""
        names = [key[21:] for key in keys]
        items = await self._rows.read_many(names) if names else {}
        rows = [row_from_item(items[name]) for name in names if name in items]
        return [await self._payloads.job_of(row) for row in rows if state in (None, row.life.state)]

    async def _stats(self, queue: str, item: Item) -> QueueStats:
        jobs = await self._open_jobs(queue)
        scheduled = [job_id for job_id, state in jobs if state is JobState.SCHEDULED]
        return QueueStats(
            name=queue,
            paused=is_paused(item),
            scheduled=len(scheduled),
            running=len(jobs) - len(scheduled),
            # A job id begins with the instant of its making.
            oldest_scheduled_at=min((int(name[:8] + name[9:13], 16) for name in scheduled), default=0),
        )

    async def _open_jobs(self, queue: str) -> list[tuple[str, JobState]]:
        """Return the jobs of a queue that have not ended, as far as a few pages of each shard go."""
        found: list[tuple[str, JobState]] = []
        for shard in range(self._layout.listing_shards):
            query = _Shard(
                self._aws,
                {
                    "TableName": self._layout.jobs_table,
                    "IndexName": CHECKS_INDEX,
                    "KeyConditionExpression": "check_key = :key",
                    "ExpressionAttributeValues": {":key": text(f"open#{queue}#{shard}")},
                },
            )
            for _ in range(_STATS_PAGES):
                items = await query.page()
                found += [(item["job_id"]["S"], JobState(int(item["state"]["N"]))) for item in items]
        return found


class _Shard:
    """One query of an index, page by page or item by item."""

    def __init__(self, aws: Aws, arguments: dict[str, Any]) -> None:
        self._aws = aws
        self._arguments: dict[str, Any] | None = arguments
        self._items: list[Item] = []

    async def next(self) -> str:
        """Return the next order key, empty at the end."""
        while not self._items and self._arguments:
            self._items = (await self.page())[::-1]
        return str(self._items.pop()["order_key"]["S"]) if self._items else ""

    async def page(self) -> list[Item]:
        """Return the next items; none at the end."""
        if self._arguments is None:
            return []
        answer = await self._aws.dynamodb("Query", **self._arguments)
        following = answer.get("LastEvaluatedKey")
        self._arguments = {**self._arguments, "ExclusiveStartKey": following} if following else None
        items: list[Item] = answer["Items"]
        return items

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


def _last_page(known: int, query: JobQuery) -> int:
    if query.cursor or known > _COUNTED:
        return query.page + 1 if known > query.page * query.page_size else query.page
    return count_pages(known, query.page_size)


def _parse_cursor(cursor: str) -> str:
    match = _CURSOR.fullmatch(cursor)
    if match is None:
        raise InvalidArgument("cursor is not one of ours")
    return match[1]
