"""When what an ended job leaves behind expires: DynamoDB deletes it by itself then, and charges nothing.

The end of a job says so on its row, in the write that ends it; then on its payloads, and last on its request.
A request that says it has payloads that say it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from airunner.aws.calls import ConditionFailed
from airunner.stores.aws.items import number, number_if_any, text, update_expression
from airunner.stores.aws.layout import TTL_ATTRIBUTE, sentinel_key

if TYPE_CHECKING:
    from airunner.aws.calls import Aws
    from airunner.domain.background import BackgroundTasks
    from airunner.stores.aws.items import Item, Row
    from airunner.stores.aws.layout import Layout

GRACE_MS: Final = 2 * 24 * 3600 * 1000
"""How long after its retention a job expires: a net below the purge, which comes first."""
PURGED_AT: Final = "purged_at"
"""The attribute of a row that is gone for everybody, and only waits for DynamoDB to delete it."""


class Expiry:
    """Sets the time from which DynamoDB may delete what belongs to a job that ended."""

    def __init__(
        self, aws: Aws, layout: Layout, *, jobs_kept_ms: int, background_tasks: BackgroundTasks
    ) -> None:
        self._aws = aws
        self._layout = layout
        self._jobs_kept_ms = jobs_kept_ms
        self._background_tasks = background_tasks

    def of_end(self, finished_at: int) -> Item:
        """Return what says on an item of a job that ended when it expires."""
        return expires_at(finished_at + self._jobs_kept_ms + GRACE_MS)

    def spread_later(self, row: Row) -> None:
        """Say it on all that belongs to a row, while others go on. What fails, the purge makes good."""
        self._background_tasks.begin("expire", self.spread(row, self.of_end(row.life.finished_at)))

    async def spread(self, row: Row, expires: Item) -> None:
        """Say on payloads and request of a row when they expire. May be repeated."""
        for key in row.items_beside:
            await self._set(key, {"job_id": text(key)}, expires)
        # The request may have been made again since, for another job.
        await self._set(sentinel_key(row.principal, row.request_id), {"target": text(row.job_id)}, expires)

    async def _set(self, key: str, conditions: Item, expires: Item) -> None:
        try:
            await self._aws.dynamodb(
                "UpdateItem",
                TableName=self._layout.jobs_table,
                Key={"job_id": text(key)},
                **update_expression(expires, conditions=conditions),
            )
        except ConditionFailed:
            # It is gone already, or another job's.
            return


def expires_at(when: int) -> Item:
    """Return the attribute that says when an item expires."""
    return {TTL_ATTRIBUTE: number(when // 1000)}


def is_gone(item: Item, now: int) -> bool:
    """Return whether the row of a job is one that nobody is to see: marked by the purge, or expired."""
    return PURGED_AT in item or 0 < number_if_any(item, TTL_ATTRIBUTE) * 1000 <= now


def is_forgotten(sentinel: Item, now: int) -> bool:
    """Return whether a request may be made again: the retention of its job is over."""
    return 0 < number_if_any(sentinel, TTL_ATTRIBUTE) <= forgotten_until(now)


def forgotten_until(now: int) -> int:
    """Return the last time of expiry, in seconds, of a request that may be made again."""
    return (now + GRACE_MS) // 1000
