"""The stream of the events table: which jobs got events, through whichever server.

It is a hint that comes sooner than the next look of the poller, and no more: whatever goes wrong here,
watchers only learn of their events a moment later. So nothing is ever read twice to be sure of it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from airunner.aws.paging import Pages
from airunner.domain.errors import AirunnerError, FailedPrecondition

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator

    from airunner.aws.calls import Aws
    from airunner.domain.clock import Clock
    from airunner.stores.aws.layout import Layout

# New shards are looked for when one has ended, and so often besides.
_LOOK_EVERY_MS: Final = 60_000
# AWS lets an iterator go after 15 minutes; what happened in between is the poller's by then.
_STALE_MS: Final = 60_000
_RECORDS_AT_ONCE: Final = 1_000
_PAGES_AT_ONCE: Final = 5


class EventStream:
    """Follows the shards of the stream from the first read on. One reader at a time."""

    def __init__(self, aws: Aws, layout: Layout, clock: Clock) -> None:
        self._aws = aws
        self._layout = layout
        self._clock = clock
        self._arn = ""
        self._iterators: dict[str, str] = {}
        self._known: set[str] = set()
        self._looked_at = self._read_at = 0
        self._just_changed: set[str] = set()

    async def read(self) -> set[str]:
        """Return the jobs that are worth a look: what the last call returned newly, and what came since.

        An event is written just before the row that shows it, so who looks at once may be too early: each job
        is named by two calls. The first call begins with what comes then; so does the next one after a long
        pause or a failure, such as an iterator that has expired.
        """
        now = self._clock.now()
        if now - self._read_at > _STALE_MS:
            self._forget()
        try:
            if not self._iterators or now - self._looked_at > _LOOK_EVERY_MS:
                await self._look_for_shards(now)
            found = await asyncio.gather(*map(self._read_shard, list(self._iterators)))
        except AirunnerError:
            self._forget()
            raise
        self._read_at = now
        before, self._just_changed = self._just_changed, {job_id for some in found for job_id in some}
        return before | self._just_changed

    def _forget(self) -> None:
        self._arn = ""
        self._iterators.clear()
        self._known.clear()

    async def _look_for_shards(self, now: int) -> None:
        """Begin with shards that were not there before: first all that are open, later what follows them.

        A shard that appears while we follow its stream holds nothing that is old.
        """
        is_first = not self._arn
        if is_first:
            self._arn = await self._find()
        shards = {shard["ShardId"]: shard async for shard in self._shards()}
        for name in shards.keys() - self._known:
            if is_first and "EndingSequenceNumber" in shards[name].get("SequenceNumberRange", {}):
                continue
            await self._begin(name, "LATEST" if is_first else "TRIM_HORIZON")
        self._known = set(shards)
        self._looked_at = now

    async def _find(self) -> str:
        answer = await self._aws.dynamodb("DescribeTable", TableName=self._layout.events_table)
        arn: str = answer["Table"].get("LatestStreamArn", "")
        if not arn:
            raise FailedPrecondition(f"table {self._layout.events_table} has no stream")
        return arn

    async def _shards(self) -> AsyncIterator[dict[str, Any]]:
        async def describe(operation: str, **arguments: Any) -> dict[str, Any]:
            answer = await self._aws.streams(operation, **arguments)
            return dict(answer["StreamDescription"])

        async for page in Pages(describe, "DescribeStream", StreamArn=self._arn):
            for shard in page["Shards"]:
                yield shard

    async def _begin(self, shard: str, kind: str) -> None:
        arguments = {"StreamArn": self._arn, "ShardId": shard, "ShardIteratorType": kind}
        answer = await self._aws.streams("GetShardIterator", **arguments)
        self._iterators[shard] = answer["ShardIterator"]

    async def _read_shard(self, shard: str) -> set[str]:
        """Read a shard until a page of it is not full; what is more than a few pages waits for the next call.

        One that has ended is followed no more, but by others.
        """
        changed: set[str] = set()
        for _ in range(_PAGES_AT_ONCE):
            answer = await self._aws.streams(
                "GetRecords", ShardIterator=self._iterators[shard], Limit=_RECORDS_AT_ONCE
            )
            changed.update(_changed(answer["Records"]))
            if not answer.get("NextShardIterator"):
                del self._iterators[shard]
                self._looked_at = 0
                break
            self._iterators[shard] = answer["NextShardIterator"]
            if len(answer["Records"]) < _RECORDS_AT_ONCE:
                break
        return changed


def _changed(records: Iterable[dict[str, Any]]) -> Iterator[str]:
    for record in records:
        # What retention takes away is nobody's news.
        if record["eventName"] != "REMOVE":
            yield record["dynamodb"]["Keys"]["job_id"]["S"]
