"""The transaction of an enqueue: what each new job writes, and how many jobs one transaction takes."""

from __future__ import annotations

import itertools
import secrets
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from airunner.stores.aws.items import blob, life_changes, number, text
from airunner.stores.aws.layout import TTL_ATTRIBUTE, sentinel_key
from airunner.stores.aws.rows import check_of
from airunner.stores.aws.upkeep.expiry import forgotten_until

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from airunner.aws.calls import Aws
    from airunner.stores.aws.forms.payloads import RowForm
    from airunner.stores.aws.items import Item
    from airunner.stores.aws.layout import Layout
    from airunner.stores.aws.payloads import Payloads
    from airunner.stores.records import NewJob

# DynamoDB takes 100 actions and 4 MB in a transaction; a body of over 1 MiB, base64 and all, blocks the loop.
_ACTIONS_AT_ONCE: Final = 100
_BYTES_AT_ONCE: Final = 700 * 1024
_ROW_BYTES: Final = 2 * 1024


@dataclass(frozen=True, slots=True)
class NewJobItems:
    """All items of a new job; the sentinel of its request is the first of them."""

    new: NewJob
    items: Sequence[Item]
    gone: str = ""
    """A job that the same request has made before and that is gone: the request counts as new."""

    @property
    def row(self) -> Item:
        """The row of the job."""
        return self.items[1]


class EnqueueTransactions:
    """Writes new jobs, many in one transaction. Jobs of one instant keep the order of their preparation."""

    def __init__(self, aws: Aws, layout: Layout, payloads: Payloads) -> None:
        self._aws = aws
        self._layout = layout
        self._payloads = payloads
        self._order = itertools.count()

    async def prepare(self, new: NewJob) -> NewJobItems:
        """Return what a job writes; parameters that go to S3 are there then."""
        life = new.first_life()
        params, beside = await self._payloads.keep_params(new)
        shard = zlib.crc32(new.job_id.encode()) % self._layout.listing_shards
        row: Item = {
            "job_id": text(new.job_id),
            "queue": text(new.queue),
            "created_at": number(new.created_at),
            "request_id": text(new.request_id),
            "principal": text(new.principal),
            "retried_from": text(new.retried_from),
            **self._payloads.form.execution(new.execution),
            "handler": text(new.params.handler_key),
            "shard": number(shard),
            "nonce": text(secrets.token_hex(8)),
            "list_key": text(f"{new.queue}#{shard}"),
            "order_key": text(f"{new.created_at:013d}-{next(self._order) & 0xFFFFFF:06x}-{new.job_id}"),
            **life_changes(None, life),
            **check_of(new.queue, shard, life),
            **params,
        }
        sentinel = {
            "job_id": text(sentinel_key(new.principal, new.request_id)),
            "target": text(new.job_id),
            "fingerprint": blob(new.fingerprint),
        }
        return NewJobItems(new, (sentinel, row, *([beside] if beside else [])))

    async def write(self, jobs: Iterable[NewJobItems]) -> None:
        """Write all jobs or none.

        TransactionCancelled has a reason for each item, with what stood in the place of one that was refused.
        """
        actions = [
            {
                "Put": {
                    "TableName": self._layout.jobs_table,
                    "Item": item,
                    "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
                    **(_if_absent() if index else _if_forgotten(job)),
                }
            }
            for job in jobs
            for index, item in enumerate(job.items)
        ]
        await self._aws.dynamodb("TransactWriteItems", TransactItems=actions)


def _if_absent() -> dict[str, Any]:
    return {"ConditionExpression": "attribute_not_exists(job_id)"}


def _if_forgotten(job: NewJobItems) -> dict[str, Any]:
    """Return the condition of a request: there is none, or only that of a job whose retention is over."""
    condition = "attribute_not_exists(job_id) OR #ttl <= :forgotten"
    values = {":forgotten": number(forgotten_until(job.new.created_at))}
    if job.gone:
        condition, values = f"{condition} OR target = :gone", {**values, ":gone": text(job.gone)}
    return {
        "ConditionExpression": condition,
        "ExpressionAttributeNames": {"#ttl": TTL_ATTRIBUTE},
        "ExpressionAttributeValues": values,
    }


def fill_transaction(indexes: Sequence[int], jobs: Sequence[NewJob], form: RowForm) -> list[int]:
    """Return the first indexes of jobs whose requests differ, as many as a transaction takes."""
    chosen: dict[tuple[str, str], int] = {}
    actions, room = _ACTIONS_AT_ONCE, _BYTES_AT_ONCE
    for index in indexes:
        new = jobs[index]
        if (new.principal, new.request_id) in chosen:
            continue
        params = form.params(new.params, new.params_bytes)
        actions -= 3 if params.goes_beside else 2
        room -= _ROW_BYTES + (len(params.content) if params.goes_beside else 0)
        if actions < 0 or room < 0:
            break
        chosen[new.principal, new.request_id] = index
    return list(chosen.values())
