"""What replicas tell each other on the rows of jobs: what changed, who watches, and where to ring for it."""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING, Final

from airunner.aws.calls import ConditionFailed
from airunner.domain.job import stored_state
from airunner.stores.aws.items import (
    WATCHER_PREFIX,
    number,
    number_at,
    number_if_any,
    text,
    update_expression,
)
from airunner.stores.aws.layout import TTL_ATTRIBUTE
from airunner.stores.aws.unreadable import key_of
from airunner.stores.records import JobMark

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airunner.aws.calls import Aws
    from airunner.domain.lifecycle import Lifecycle
    from airunner.stores.aws.items import Item, Row
    from airunner.stores.aws.layout import Layout
    from airunner.stores.aws.rows import Rows
    from airunner.stores.aws.unreadable import UnreadableRows

MAX_ADDRESSES: Final = 16
"""How many servers may be named on a row as watching; further ones poll."""
# One that has not said for so long that it watches is gone, or nobody watches there any more.
_GONE_MS: Final = 60_000
_MOST_REMEMBERED: Final = 10_000


class SharedMarks:
    """Reads the marks of jobs, and writes who watches them where. `address` is this replica's, if it has one.

    What is written here leaves lives and nonces as they are, so it gets in nobody's way.
    """

    def __init__(
        self, aws: Aws, layout: Layout, *, rows: Rows, unreadable: UnreadableRows, address: str
    ) -> None:
        self._aws = aws
        self._layout = layout
        self._rows = rows
        self._unreadable = unreadable
        self._address = address
        self._own_name = f"{WATCHER_PREFIX}{hashlib.sha256(address.encode()).hexdigest()[:8]}"
        # Of jobs that were noted, other names on their rows: until when each says that it watches.
        self._others: dict[str, Mapping[str, int]] = {}

    async def marks(self, job_ids: Sequence[str]) -> dict[str, JobMark]:
        """Return what others may have changed of jobs, as it was a moment ago."""
        items = await self._rows.read_seen(
            job_ids,
            ConsistentRead=False,
            ProjectionExpression="job_id, #state, attempt, sequences, cancel_requested, watched_until,"
            " purged_at, #ttl",
            ExpressionAttributeNames={"#state": "state", "#ttl": TTL_ATTRIBUTE},
        )
        marks = self._unreadable.readable("job", items.values(), lambda item: (key_of(item), _mark(item)))
        return dict(marks)

    async def note_watched(self, job_ids: Sequence[str], until: int, now: int) -> dict[str, Lifecycle]:
        """Say on jobs that somebody looks at them, and where; return the lives of those that exist.

        All are noted that can be; the first error is raised when that is done.
        """
        rows = await asyncio.gather(
            *(self._note(job_id, until, now) for job_id in job_ids), return_exceptions=True
        )
        lives: dict[str, Lifecycle] = {}
        for job_id, row in zip(job_ids, rows, strict=True):
            if isinstance(row, BaseException):
                raise row
            if row is not None:
                lives[job_id] = row.life
        return lives

    async def _note(self, job_id: str, until: int, now: int) -> Row | None:
        others = self._others.pop(job_id, {})
        changes: Item = {"watched_until": number(until)}
        if self._address and sum(at > now for at in others.values()) < MAX_ADDRESSES - 1:
            changes[self._own_name] = {"M": {"address": text(self._address), "until": number(until)}}
        gone = [place for place, at in others.items() if at < now - _GONE_MS]
        try:
            answer = await self._aws.dynamodb(
                "UpdateItem",
                TableName=self._layout.jobs_table,
                Key={"job_id": text(job_id)},
                ReturnValues="ALL_NEW",
                **update_expression(changes, gone, conditions={"job_id": text(job_id)}),
            )
        except ConditionFailed:
            return None
        item = answer["Attributes"]
        if names := _other_names(item, but=self._own_name):
            self._remember(job_id, names)
        return next(iter(self._rows.rows_of([item])), None)

    def _remember(self, job_id: str, names: Mapping[str, int]) -> None:
        if len(self._others) >= _MOST_REMEMBERED:
            # Mostly of jobs that nobody watches any more; what is forgotten is only removed later.
            self._others.clear()
        self._others[job_id] = names


def _other_names(item: Item, *, but: str) -> dict[str, int]:
    names = [name for name in item if name.startswith(WATCHER_PREFIX) and name != but]
    # One that cannot be read is as good as gone.
    return {name: number_if_any(item[name].get("M", {}), "until") for name in names}


def _mark(item: Item) -> JobMark:
    attempt = number_at(item, "attempt")
    return JobMark(
        state=stored_state(number_at(item, "state")),
        attempt=attempt,
        last_sequence=number_at(item.get("sequences", {"M": {}})["M"], str(attempt)),
        cancel_requested=bool(item.get("cancel_requested", {}).get("BOOL")),
        watched_until=number_at(item, "watched_until"),
    )
