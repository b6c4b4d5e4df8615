"""Job rows: read consistently, written on a condition, and a lost reply told from a lost race.

Every write of a life sets a new nonce. A write that is refused gets the row as it is: with our own nonce the
write was ours after all and only its answer was lost; with another one somebody was quicker, and the change
is decided anew on what they left. The rules are those of `domain.lifecycle`, here as in every store.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from airunner.aws.calls import ConditionFailed
from airunner.aws.paging import Pages, read_items
from airunner.aws.sqs import MAX_SEND_DELAY_SECONDS
from airunner.domain.errors import AirunnerError, JobNotFound, Unavailable
from airunner.domain.job import JobState
from airunner.domain.limits import MAX_VISIBILITY_SECONDS
from airunner.stores.aws.items import (
    life_changes,
    number,
    row_from_item,
    text,
    update_expression,
)
from airunner.stores.aws.layout import LISTING_INDEX, queue_key
from airunner.stores.aws.unreadable import key_of
from airunner.stores.aws.upkeep.expiry import is_gone

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from airunner.aws.calls import Aws
    from airunner.domain.clock import Clock
    from airunner.domain.job import JobResult
    from airunner.domain.lifecycle import Lifecycle
    from airunner.stores.aws.items import Item, Row, Value
    from airunner.stores.aws.layout import Layout
    from airunner.stores.aws.payloads import Payloads
    from airunner.stores.aws.unreadable import UnreadableRows
    from airunner.stores.aws.upkeep.expiry import Expiry
    from airunner.stores.aws.upkeep.open_jobs import OpenJobs

Change: TypeAlias = "Callable[[Lifecycle], Lifecycle]"
"""A rule of the lifecycle, all but for the life that it is applied to."""
Removal: TypeAlias = "Callable[[], Awaitable[None]]"
"""Removes what is in the way of a write."""

CHECK_AFTER_MS: Final = 60_000
_RACES: Final = 20
_MOST_REMEMBERED: Final = 10_000


class Rows:
    """The jobs table, a row at a time."""

    def __init__(
        self,
        aws: Aws,
        layout: Layout,
        *,
        payloads: Payloads,
        unreadable: UnreadableRows,
        open_jobs: OpenJobs,
        expiry: Expiry,
        clock: Clock,
    ) -> None:
        self._aws = aws
        self._layout = layout
        self._payloads = payloads
        self._unreadable = unreadable
        self._open_jobs = open_jobs
        self._expiry = expiry
        self._clock = clock
        self._remembered: OrderedDict[str, Row] = OrderedDict()

    async def read_bare(self, job_id: str) -> Row:
        """Return a row as it is now, without a result that is elsewhere, or raise JobNotFound.

        One that the purge has marked, or that expired, is not found.
        """
        answer = await self._aws.dynamodb(
            "GetItem",
            TableName=self._layout.jobs_table,
            Key={"job_id": text(job_id)},
            ConsistentRead=True,
        )
        if "Item" not in answer:
            raise JobNotFound
        return self.row_of(self.seen(answer["Item"]))

    def seen(self, item: Item) -> Item:
        """Return the item of a job that anybody may see, or raise JobNotFound."""
        if is_gone(item, self._clock.now()):
            raise JobNotFound
        return item

    async def read_seen(self, job_ids: Sequence[str], **options: Any) -> dict[str, Item]:
        """Return the items of those jobs that anybody may see; see `read_many`."""
        items, now = await self.read_many(job_ids, **options), self._clock.now()
        return {job_id: item for job_id, item in items.items() if not is_gone(item, now)}

    def row_of(self, item: Item) -> Row:
        """Return the row of a job's item, or raise UnreadableRow."""
        with self._unreadable.reading("job", key_of(item)):
            return row_from_item(item)

    def rows_of(self, items: Iterable[Item]) -> list[Row]:
        """Return the rows of items, without those that cannot be read."""
        return self._unreadable.readable("job", items, row_from_item)

    def is_paused(self, item: Item | None) -> bool:
        """Return whether the item of a queue says that nothing may be claimed from it."""
        if item is None or "paused" not in item:
            return False
        (paused,) = self._unreadable.readable("queue", [item], _paused) or (False,)
        return paused

    async def read_paused(self, queue: str) -> bool:
        """Return whether a queue is paused now."""
        key = {"job_id": text(queue_key(queue))}
        answer = await self._aws.dynamodb(
            "GetItem", TableName=self._layout.jobs_table, Key=key, ConsistentRead=True
        )
        return self.is_paused(answer.get("Item"))

    async def read_listed(self, list_key: str) -> list[Item]:
        """Return all entries of the listing index under a key that has few, in their order."""
        pages = Pages(
            self._aws.dynamodb,
            "Query",
            TableName=self._layout.jobs_table,
            IndexName=LISTING_INDEX,
            KeyConditionExpression="list_key = :key",
            ExpressionAttributeValues={":key": text(list_key)},
        )
        return [entry async for page in pages for entry in page["Items"]]

    async def read_many(self, keys: Sequence[str], **options: Any) -> dict[str, Item]:
        """Return the items that exist of these keys, consistently unless told otherwise."""
        options.setdefault("ConsistentRead", True)
        wanted = [{"job_id": text(key)} for key in keys]
        items = await read_items(self._aws, self._layout.jobs_table, wanted, **options)
        return {item["job_id"]["S"]: item for item in items}

    async def revise(
        self,
        job_id: str,
        change: Change,
        *,
        prepare: Callable[[], Awaitable[Removal | None]] | None = None,
    ) -> Row:
        """Change a life by a rule of the lifecycle, whoever else does; return the row as it is then.

        What the rule raises is raised; a rule that changes nothing writes nothing. A row that is remembered
        saves the read, but all that it can lead to is a write that is refused if it was out of date: whatever
        else follows from it is decided anew on a row that was read. `prepare` is done before each write; what
        it finds in the way is removed on a row that was read, and then all is decided anew.
        """
        row, was_read = self._remembered.get(job_id), False
        for _ in range(_RACES):
            if row is None:
                row = await self._payloads.with_result_if_any(await self.read_bare(job_id))
                was_read = True
            try:
                life = change(row.life)
            except AirunnerError:
                if was_read:
                    raise
                row = None
                continue
            if life is row.life and was_read:
                return row
            remove = await prepare() if prepare and life is not row.life else None
            if not was_read and (remove or life is row.life):
                row = None
                continue
            if remove:
                row = await self._clear(row, remove)
                continue
            written, row = await self.write(row, life)
            was_read = True
            if written:
                return row
        raise Unavailable("too many others change this job at the same time")

    async def _clear(self, row: Row, remove: Removal) -> Row:
        """Remove what is in the way of a write, once nobody can make it seen; return the row as it is then.

        Who has written it decided on the nonce that is gone then, and must write it again.
        """
        written, row = await self.update(row.job_id, {}, {"nonce": text(row.nonce)})
        if written:
            await remove()
        return row

    async def write(self, row: Row, life: Lifecycle) -> tuple[bool, Row]:
        """Write a life over the one that was read; return whether that was done, and the row as it is then.

        If somebody was quicker, nothing is written, and the row is the one that they left.
        """
        written, after = await self._write(row, life)
        if written:
            self._open_jobs.moved(row.queue, row.life.state, life.state)
        return written, after

    async def _write(self, row: Row, life: Lifecycle) -> tuple[bool, Row]:
        changes = life_changes(row.life, life) | _check_changes(row, life)
        nonce = {"nonce": text(row.nonce)}
        if not life.result or row.life.result:
            return await self.update(row.job_id, changes, nonce)
        expires = self._expiry.of_end(life.finished_at)
        kept = await self._payloads.keep_result(row.job_id, life.attempt, life.result, expires)
        changes |= self._payloads.changes_at_end(row) | kept | expires
        try:
            written, after = await self.update(row.job_id, changes, nonce, result=life.result)
        except JobNotFound:
            await self._payloads.forget_result(kept)
            raise
        if not written and not _may_yet_name(after, life.attempt, kept):
            await self._payloads.forget_result(kept)
        if written:
            await self._payloads.drop_secrets(after)
            self._expiry.spread_later(after)
        return written, after

    async def update(
        self,
        job_id: str,
        changes: Item,
        conditions: Mapping[str, Value | None],
        *,
        result: JobResult | None = None,
    ) -> tuple[bool, Row]:
        """Write attributes on conditions, under a new nonce; return whether that was done, and the row.

        `result` is what the changes say of it, so that it need not be read again.
        """
        nonce = text(secrets.token_hex(8))
        try:
            answer = await self._aws.dynamodb(
                "UpdateItem",
                TableName=self._layout.jobs_table,
                Key={"job_id": text(job_id)},
                ReturnValues="ALL_NEW",
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
                **update_expression({**changes, "nonce": nonce}, conditions=conditions),
            )
        except ConditionFailed as refused:
            if not refused.item:
                raise JobNotFound from None
            row = await self._payloads.with_result_if_any(self.row_of(self.seen(refused.item)))
            return row.nonce == nonce["S"], self._remember(row)
        row = self.row_of(answer["Attributes"])
        if result:
            return True, self._remember(replace(row, life=replace(row.life, result=result)))
        return True, self._remember(await self._payloads.with_result_if_any(row))

    def _remember(self, row: Row) -> Row:
        """Keep the rows of running jobs at hand: their holders mostly come back to us."""
        self._remembered.pop(row.job_id, None)
        if row.life.state is JobState.RUNNING:
            self._remembered[row.job_id] = row
            if len(self._remembered) > _MOST_REMEMBERED:
                self._remembered.popitem(last=False)
        return row


def _check_changes(row: Row, life: Lifecycle) -> Item:
    """Return when the reconciler is to look at a job again, if a change of its life moves that."""
    before = row.life
    if before.visible_until < life.updated_at <= life.visible_until and before.state is JobState.RUNNING:
        # Its holder came back after its time: another message may be sent by now, and nobody look for hours.
        return check_of(row.queue, row.shard, life)
    if life.state is JobState.RUNNING and life.visible_until < before.visible_until:
        return check_of(row.queue, row.shard, life)
    is_cancelled = life.cancel_requested and not before.cancel_requested
    if is_cancelled or (life.claimable_from is None and before.claimable_from is not None):
        # Its message may have been sent again already, and nobody may come for it: it is to end all the same.
        # So it is after a cancellation, and when the holder of the last try gives its first sign too late.
        return check_of(row.queue, row.shard, life)
    if (life.state, life.attempt, life.due_at) == (before.state, before.attempt, before.due_at):
        return {}
    return check_of(row.queue, row.shard, life)


def _may_yet_name(row: Row, attempt: int, kept: Item) -> bool:
    """Return whether a row names what was kept for the end of an attempt, or may do so one day.

    While the attempt runs, another call may be about to end it with the same bytes, under the same name.
    """
    if row.life.state is JobState.RUNNING and row.life.attempt == attempt:
        return True
    return row.result_place == kept.get("result_place", {}).get("S")


def _paused(item: Item) -> bool:
    return bool(item["paused"]["BOOL"])


def check_of(queue: str, shard: int, life: Lifecycle) -> Item:
    """Return the place of a job in the index of what is to be looked at, and when.

    A job whose message is on its way is looked at when that should long have come; one that is due only after
    longer than SQS delays or hides a message has none, and is looked at as soon as it is due.
    """
    if life.state.terminal:
        return {"check_key": text(f"purge#{shard}"), "check_at": number(life.finished_at)}
    when = life.visible_until + CHECK_AFTER_MS
    if life.state is JobState.SCHEDULED:
        longest_seconds = MAX_VISIBILITY_SECONDS if life.attempt else MAX_SEND_DELAY_SECONDS
        has_message = life.due_at - life.updated_at <= longest_seconds * 1000
        when = max(life.due_at, life.updated_at) + (CHECK_AFTER_MS if has_message else 0)
    return {"check_key": text(f"open#{queue}#{shard}"), "check_at": number(when)}
