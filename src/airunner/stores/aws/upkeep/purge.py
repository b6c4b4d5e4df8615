"""The purge: jobs whose retention is over are gone for everybody, and DynamoDB deletes what is left of them.

A row is marked and leaves both indexes; objects of S3 are deleted. Items stay until they expire, and so do
events, which nobody can read without the row.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final

from airunner.aws.calls import ConditionFailed
from airunner.stores.aws.items import number, number_if_any, text, text_at, update_expression
from airunner.stores.aws.layout import TTL_ATTRIBUTE, sentinel_key
from airunner.stores.aws.upkeep.expiry import GRACE_MS, PURGED_AT, expires_at

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airunner.aws.calls import Aws
    from airunner.stores.aws.items import Item, Row
    from airunner.stores.aws.layout import Layout
    from airunner.stores.aws.payloads import Payloads
    from airunner.stores.aws.rows import Rows
    from airunner.stores.aws.upkeep.expiry import Expiry

# What takes the row out of the indexes, and what was the job's own.
_REMOVED: Final = ("check_key", "check_at", "list_key", "order_key", "job_params", "result")


class Purge:
    """Marks rows. What is interrupted is done again: a row is the last of its job to be marked."""

    def __init__(self, aws: Aws, layout: Layout, *, rows: Rows, payloads: Payloads, expiry: Expiry) -> None:
        self._aws = aws
        self._layout = layout
        self._rows = rows
        self._payloads = payloads
        self._expiry = expiry

    async def requests_of(self, rows: Sequence[Row]) -> Mapping[str, Item]:
        """Return what is known of the requests of jobs, by key, as it was a moment ago."""
        keys = dict.fromkeys(sentinel_key(row.principal, row.request_id) for row in rows)
        return await self._rows.read_many(
            list(keys),
            ConsistentRead=False,
            ProjectionExpression="job_id, target, #ttl",
            ExpressionAttributeNames={"#ttl": TTL_ATTRIBUTE},
        )

    async def mark(self, row: Row, requests: Mapping[str, Item], now: int) -> bool:
        """Make a job that ended gone for everybody; return whether that was done here."""
        await self._payloads.remove_objects(row)
        # One that ended under a longer retention, or at a server that said nothing of it, expires now.
        latest = (now + GRACE_MS) // 1000
        expires = min(number_if_any(row.item, TTL_ATTRIBUTE) or latest, latest)
        request = requests.get(sentinel_key(row.principal, row.request_id), {})
        if text_at(request, "target") == row.job_id:
            known = number_if_any(request, TTL_ATTRIBUTE)
            if not 0 < known <= expires:
                await self._expiry.spread(row, expires_at(expires * 1000))
        return await self._mark(row, expires, now)

    async def _mark(self, row: Row, expires: int, now: int) -> bool:
        changes = {
            PURGED_AT: number(now),
            "nonce": text(secrets.token_hex(8)),
            **expires_at(expires * 1000),
        }
        try:
            await self._aws.dynamodb(
                "UpdateItem",
                TableName=self._layout.jobs_table,
                Key={"job_id": text(row.job_id)},
                **update_expression(changes, _REMOVED, {"nonce": text(row.nonce)}),
            )
        except ConditionFailed:
            # Another server was quicker, or it expired.
            return False
        return True
