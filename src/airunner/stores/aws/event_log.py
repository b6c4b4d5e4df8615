"""Events: written before the row that makes them visible, read up to what the row says."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from airunner.aws.calls import ConditionFailed
from airunner.aws.paging import Pages, delete_items
from airunner.stores.aws.items import (
    LAST_SEQUENCE,
    blob,
    event_from_item,
    event_item,
    number,
    number_at,
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


class EventLog:
    """The events table. An event that lies beyond the last sequence of its attempt's row does not exist."""

    def __init__(self, aws: Aws, layout: Layout, *, ttl_ms: int, unreadable: UnreadableRows) -> None:
        self._aws = aws
        self._layout = layout
        self._ttl_ms = ttl_ms
        self._unreadable = unreadable

    async def put(self, job_id: str, events: Sequence[EncodedEvent], now: int, *, replace: bool) -> bool:
        """Write events that nobody sees yet, one item each; False if others are in their place.

        These may be the leftovers of a publish that was never acknowledged, or events that everybody sees:
        only who has just read the row knows, and may `replace` them. Then all leftovers go: those that lie
        beyond would be seen once the attempt has come so far, between events that were cut otherwise.
        """
        for event in events:
            item = event_item(job_id, event, now + self._ttl_ms)
            try:
                await self._put(
                    item,
                    ConditionExpression="attribute_not_exists(job_id) OR event_payload = :payload",
                    ExpressionAttributeValues={":payload": blob(event.payload)},
                )
            except ConditionFailed:
                if not replace:
                    return False
                await self._remove(self._between(job_id, event.attempt, event.first_sequence, LAST_SEQUENCE))
                await self._put(item)
        return True

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

    async def remove(self, job_id: str) -> int:
        """Delete all events of a job; return how many. May be repeated."""
        return await self._remove(
            {
                "TableName": self._layout.events_table,
                "KeyConditionExpression": "job_id = :job",
                "ExpressionAttributeValues": {":job": text(job_id)},
                "ExpressionAttributeNames": {"#sequence": "sequence"},
            }
        )

    async def _remove(self, query: dict[str, Any]) -> int:
        """Delete what a query of the table finds."""
        removed = 0
        pages = Pages(self._aws.dynamodb, "Query", **query, ProjectionExpression="job_id, #sequence")
        async for page in pages:
            await delete_items(self._aws, self._layout.events_table, page["Items"])
            removed += len(page["Items"])
        return removed

    async def _put(self, item: Item, **conditions: Any) -> None:
        await self._aws.dynamodb("PutItem", TableName=self._layout.events_table, Item=item, **conditions)

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
