"""Events: written before the row that makes them visible, read up to what the row says."""

from __future__ import annotations

import secrets
import sys
from contextlib import suppress
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final

from airunner.aws.calls import ConditionFailed
from airunner.aws.paging import Pages
from airunner.domain.background import together
from airunner.domain.splitting import split_by_count
from airunner.stores.aws.items import (
    LAST_SEQUENCE,
    event_from_item,
    event_item,
    number,
    number_at,
    number_if_any,
    sort_key,
    text,
    unreadable_event,
)
from airunner.stores.aws.unreadable import key_of
from airunner.stores.records import fill_page

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from airunner.aws.calls import Aws
    from airunner.domain.event import EncodedEvent
    from airunner.stores.aws.items import Item, Row
    from airunner.stores.aws.layout import Layout
    from airunner.stores.aws.unreadable import UnreadableRows
    from airunner.stores.records import EventPage, EventQuery


# How many events of one publish are written, or deleted, at the same time.
_AT_ONCE: Final = 25


class _Before(Enum):
    """What was in the place of an item."""

    NOTHING = auto()
    SAME = auto()
    OTHER = auto()


class EventLog:
    """The events table. An event that lies beyond the last sequence of its attempt's row does not exist."""

    def __init__(self, aws: Aws, layout: Layout, *, ttl_ms: int, unreadable: UnreadableRows) -> None:
        self._aws = aws
        self._layout = layout
        self._ttl_ms = ttl_ms
        self._unreadable = unreadable

    async def put(self, job_id: str, events: Sequence[EncodedEvent], now: int) -> list[Item] | None:
        """Write events that nobody sees yet, one item each; return what is in their way, None if nothing is.

        These may be leftovers of a publish that was never acknowledged, or events that everybody sees, or
        will see in a moment: see `remove`. What lies beyond is in the way, too: it would be seen once the
        attempt has come so far, between events that were cut otherwise.
        """
        nonce = secrets.token_hex(8)
        items = [event_item(job_id, event, now + self._ttl_ms, nonce) for event in events]
        if not items or await self._add(items):
            return None
        return await self._strangers(items)

    async def remove(self, found: Sequence[Item]) -> None:
        """Delete what was in the way of a put, but for what was written again since it was found.

        Only for who has changed the nonce of the row since then: nobody sees it yet, and who would have made
        it seen has to write it again. The first goes last: where it is gone, no put looks for others beyond.
        """
        for some in (*split_by_count(found[1:], _AT_ONCE), found[:1]):
            await together([self._remove(item) for item in some])

    async def read(self, row: Row, query: EventQuery, now: int) -> EventPage:
        """Return events after a position, in order; see JobStore.read_events."""
        wanted: list[EncodedEvent] = []
        size = 0
        async for event in self._after(row, query, now):
            if event.last_timestamp < query.from_timestamp:
                continue
            wanted.append(event)
            size += len(event.payload)
            if len(wanted) == query.limit or size >= query.max_bytes:
                break
        return fill_page(wanted, query, state=row.life.state, attempt=row.life.attempt)

    async def _add(self, items: Sequence[Item]) -> bool:
        """Write items that continue an attempt, unless something else is there; return whether all are.

        The others follow the first at once: where nothing was in its place, nothing lies beyond. Where it was
        there already, others may lie there that a publish has left, with gaps between them.
        """
        first = await self._put_new(items[0])
        if first is _Before.OTHER or (first is _Before.SAME and await self._strangers(items)):
            return False
        for some in split_by_count(items[1:], _AT_ONCE):
            if _Before.OTHER in await together([self._put_new(item) for item in some]):
                return False
        return True

    async def _put_new(self, item: Item) -> _Before:
        """Write an item unless another one is there; return what was there."""
        try:
            answer = await self._put(
                item,
                ConditionExpression="attribute_not_exists(job_id) OR digest = :digest",
                ExpressionAttributeValues={":digest": item["digest"]},
                ReturnValues="ALL_OLD",
            )
        except ConditionFailed:
            return _Before.OTHER
        return _Before.SAME if answer.get("Attributes") else _Before.NOTHING

    async def _put(self, item: Item, **conditions: Any) -> dict[str, Any]:
        return await self._aws.dynamodb(
            "PutItem", TableName=self._layout.events_table, Item=item, **conditions
        )

    async def _strangers(self, items: Sequence[Item]) -> list[Item]:
        """Return keys and nonces of what is in their attempt, from the first on, and none of some items."""
        known = {item["sequence"]["N"]: item["digest"] for item in items}
        attempt, sequence = divmod(number_at(items[0], "sequence"), LAST_SEQUENCE + 1)
        between = self._between(items[0]["job_id"]["S"], attempt + 1, sequence, LAST_SEQUENCE)
        found: list[Item] = []
        async for page in Pages(
            self._aws.dynamodb, "Query", **between, ProjectionExpression="job_id, #sequence, nonce, digest"
        ):
            found += [
                item for item in page["Items"] if known.get(item["sequence"]["N"]) != item.pop("digest", None)
            ]
        return found

    async def _remove(self, found: Item) -> None:
        nonce = found.get("nonce")
        condition: dict[str, Any] = {"ConditionExpression": "attribute_not_exists(nonce)"}
        if nonce:
            values = {":nonce": nonce}
            condition = {"ConditionExpression": "nonce = :nonce", "ExpressionAttributeValues": values}
        with suppress(ConditionFailed):
            await self._aws.dynamodb(
                "DeleteItem",
                TableName=self._layout.events_table,
                Key={"job_id": found["job_id"], "sequence": found["sequence"]},
                **condition,
            )

    async def _after(self, row: Row, query: EventQuery, now: int) -> AsyncIterator[EncodedEvent]:
        """Yield the visible events after a position, attempt by attempt."""
        first = max(query.after.attempt, 1)
        for attempt, last in sorted(row.last_sequences.items()):
            if attempt < first or query.only_attempt not in (0, attempt):
                continue
            after = query.after.sequence if attempt == query.after.attempt else 0
            if after < last:
                async for event in self._of_attempt(query, attempt, after, last, now):
                    yield event

    async def _of_attempt(
        self, query: EventQuery, attempt: int, after: int, last: int, now: int
    ) -> AsyncIterator[EncodedEvent]:
        start = after + 1
        if after and not query.after_is_an_end:
            start = await self._floor(query.job_id, attempt, start)
        if query.from_timestamp:
            start = await self._seek(query, attempt, start, last)
        if start > last:
            return
        between = self._between(query.job_id, attempt, start, last)
        async for page in Pages(self._aws.dynamodb, "Query", **between, Limit=query.limit):
            for item in page["Items"]:
                event, expires_at = self._read(item)
                if after < event.last_sequence <= last and expires_at > now:
                    yield event

    def _read(self, item: Item) -> tuple[EncodedEvent, int]:
        """Return the event of an item and when it expires; one that cannot be read is a gap."""
        try:
            return event_from_item(item), number_at(item, "ttl") * 1000
        except Exception as error:  # noqa: BLE001  whatever somebody wrote there
            event = unreadable_event(item)
            self._unreadable.note("event", f"{key_of(item)} {event.position.cursor}", error)
            return event, sys.maxsize

    async def _floor(self, job_id: str, attempt: int, sequence: int) -> int:
        """Return the first sequence of the stored event that contains a sequence."""
        arguments = self._between(job_id, attempt, 1, sequence)
        answer = await self._aws.dynamodb(
            "Query",
            **arguments,
            ScanIndexForward=False,
            Limit=1,
            ProjectionExpression="#sequence",
        )
        found = [event_key(item) for item in answer["Items"]]
        return found[0] if found else sequence

    async def _seek(self, query: EventQuery, attempt: int, first: int, last: int) -> int:
        """Return the first sequence of the first stored event at or after the time of a query.

        Without payloads, and in pages as large as they come: a long log is passed over within one read.
        """
        between = self._between(query.job_id, attempt, first, last)
        between["ExpressionAttributeNames"] |= {"#timestamp": "timestamp"}
        columns = "#sequence, #timestamp, last_timestamp"
        async for page in Pages(self._aws.dynamodb, "Query", **between, ProjectionExpression=columns):
            for item in page["Items"]:
                at = number_if_any(item, "last_timestamp") or number_if_any(item, "timestamp")
                if at >= query.from_timestamp:
                    return event_key(item)
        return last + 1

    def _between(self, job_id: str, attempt: int, first: int, last: int) -> dict[str, Any]:
        return {
            "TableName": self._layout.events_table,
            "ConsistentRead": True,
            "KeyConditionExpression": "job_id = :job AND #sequence BETWEEN :first AND :last",
            "ExpressionAttributeNames": {"#sequence": "sequence"},
            "ExpressionAttributeValues": {
                ":job": text(job_id),
                ":first": number(sort_key(attempt, first)),
                ":last": number(sort_key(attempt, last)),
            },
        }


def event_key(item: Item) -> int:
    """Return the first sequence of an event's item, within its attempt."""
    return sort_key(1, number_at(item, "sequence") % 10**12)
