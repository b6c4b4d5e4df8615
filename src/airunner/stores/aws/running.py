"""The jobs that run, all of them: found in the index of what is to be looked at, and read in their rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from airunner.aws.paging import Pages
from airunner.domain.errors import InvalidArgument
from airunner.domain.job import JobState
from airunner.stores.aws.items import number, number_at, text, text_at
from airunner.stores.aws.layout import CHECKS_INDEX
from airunner.stores.aws.unreadable import key_of
from airunner.stores.pages import RUNNING_AT_ONCE
from airunner.stores.records import RunningJob, RunningPage

if TYPE_CHECKING:
    from airunner.aws.calls import Aws
    from airunner.stores.aws.items import Item
    from airunner.stores.aws.known_queues import KnownQueues
    from airunner.stores.aws.layout import Layout
    from airunner.stores.aws.rows import Rows
    from airunner.stores.aws.unreadable import UnreadableRows

_COLUMNS: Final = ("job_id", "state", "attempt", "instance_id")


class RunningWalk:
    """Walks over the shards of all queues, those that are not configured any more included.

    The index is a little behind: a job that began a moment ago may be missing, and the rows say whether one
    that ended a moment ago still runs. A row whose holder cannot be read makes the walk fail: somebody may
    have it.
    """

    def __init__(
        self,
        aws: Aws,
        layout: Layout,
        *,
        rows: Rows,
        known_queues: KnownQueues,
        unreadable: UnreadableRows,
    ) -> None:
        self._aws = aws
        self._layout = layout
        self._rows = rows
        self._known_queues = known_queues
        self._unreadable = unreadable

    async def page(self, cursor: str) -> RunningPage:
        """Return the running jobs of a page of one shard; there may be none, and more in the next one."""
        keys = sorted(
            f"open#{queue}#{shard}"
            for queue in await self._known_queues.all_names()
            for shard in range(self._layout.listing_shards)
        )
        key, position = _parse_cursor(cursor) if cursor else (keys[0], {})
        pages = self._pages(key, position)
        page = await anext(pages)
        jobs = await self._read([item["job_id"]["S"] for item in page["Items"]])
        if pages.next_position:
            return RunningPage(jobs=jobs, next_cursor=_make_cursor(key, pages.next_position))
        following = next((other for other in keys if other > key), None)
        return RunningPage(jobs=jobs, next_cursor=_make_cursor(following, {}) if following else "")

    async def _read(self, job_ids: list[str]) -> list[RunningJob]:
        names = {f"#{column}": column for column in _COLUMNS}
        items = await self._rows.read_many(
            list(dict.fromkeys(job_ids)),
            ProjectionExpression=", ".join(names),
            ExpressionAttributeNames=names,
        )
        running = [item for item in items.values() if number_at(item, "state") == int(JobState.RUNNING)]
        return [self._running_job(item) for item in running]

    def _running_job(self, item: Item) -> RunningJob:
        with self._unreadable.reading("job", key_of(item)):
            return RunningJob(
                text_at(item, "job_id"), number_at(item, "attempt"), text_at(item, "instance_id")
            )

    def _pages(self, key: str, position: Item) -> Pages:
        begin: dict[str, Any] = (
            {"ExclusiveStartKey": {**position, "check_key": text(key)}} if position else {}
        )
        return Pages(
            self._aws.dynamodb,
            "Query",
            TableName=self._layout.jobs_table,
            IndexName=CHECKS_INDEX,
            KeyConditionExpression="check_key = :key",
            FilterExpression="#state = :running",
            ExpressionAttributeNames={"#state": "state"},
            ExpressionAttributeValues={":key": text(key), ":running": number(int(JobState.RUNNING))},
            Limit=10 * RUNNING_AT_ONCE,
            **begin,
        )


def _make_cursor(key: str, position: Item) -> str:
    """Return the cursor that continues at a position of a key, or at its begin."""
    return f"{key} {number_at(position, 'check_at')} {text_at(position, 'job_id')}"


def _parse_cursor(cursor: str) -> tuple[str, Item]:
    key, *rest = cursor.split(" ")
    if not key.startswith("open#") or len(rest) != 2 or not rest[0].isdigit():
        raise InvalidArgument("cursor is not one that a response returned")
    position = {"check_at": number(int(rest[0])), "job_id": text(rest[1])}
    return key, position if rest[1] else {}
