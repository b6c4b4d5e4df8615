"""Visibilities that a wrong clock has given are brought back: else nobody looks at their jobs in time."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from airunner.aws.paging import Pages
from airunner.domain import lifecycle
from airunner.domain.errors import JobNotFound
from airunner.domain.job import JobState
from airunner.domain.limits import MAX_VISIBILITY_SECONDS
from airunner.stores.aws.items import number, text
from airunner.stores.aws.layout import CHECKS_INDEX
from airunner.stores.aws.rows import CHECK_AFTER_MS
from airunner.stores.aws.unreadable import UnreadableRow

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from airunner.aws.calls import Aws
    from airunner.domain.lifecycle import Lifecycle
    from airunner.stores.aws.known_queues import KnownQueues
    from airunner.stores.aws.layout import Layout
    from airunner.stores.aws.rows import Rows

_PAGES: Final = 20


class Recall:
    """Looks for running jobs that would be looked at only long after any visibility is over."""

    def __init__(self, aws: Aws, layout: Layout, *, rows: Rows, known_queues: KnownQueues) -> None:
        self._aws = aws
        self._layout = layout
        self._rows = rows
        self._known_queues = known_queues

    async def run(self, now: int) -> None:
        """Bring back visibilities that a wrong clock has given, of this server or of another."""

        def recalled(life: Lifecycle) -> Lifecycle:
            return lifecycle.recall(life, now=now)

        for queue in self._known_queues.names:
            async for job_id in self._far_ahead(queue, now + MAX_VISIBILITY_SECONDS * 1000 + CHECK_AFTER_MS):
                # One that nobody here can read is for others.
                with suppress(JobNotFound, UnreadableRow):
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
