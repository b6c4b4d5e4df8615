"""The queues that the jobs table knows: those that are configured here, and those that once were.

A queue that was taken out of the settings may still have jobs. They are looked after like all others, but
nobody can add to them or claim them.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from airunner import telemetry
from airunner.aws.calls import ConditionFailed
from airunner.domain.errors import AirunnerError, InvalidArgument, Unavailable
from airunner.stores.aws.items import text, text_at, update_expression
from airunner.stores.aws.layout import CHECKS_INDEX, queue_key
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from airunner.aws.calls import Aws
    from airunner.domain.clock import Clock
    from airunner.stores.aws.items import Item
    from airunner.stores.aws.layout import Layout
    from airunner.stores.aws.rows import Rows

_log = get_logger("airunner.aws")

LOOK_AGAIN_MS: Final = 10 * 60 * 1000
# No queue of jobs can have such a name.
_LIST_KEY: Final = "#queues"
_MAX_LABELS: Final = 100


class KnownQueues:
    """Reads them at open and every ten minutes; until that succeeds, it knows those that are configured."""

    def __init__(self, aws: Aws, layout: Layout, rows: Rows, clock: Clock) -> None:
        self._aws = aws
        self._layout = layout
        self._rows = rows
        self._clock = clock
        self._removed: set[str] = set()
        self._unnoted = set(layout.queues)
        self._looked_at: int | None = None

    @property
    def names(self) -> Sequence[str]:
        """All queues, those that are configured first."""
        return (*self._layout.queues, *sorted(self._removed))

    def is_configured(self, queue: str) -> bool:
        """Return whether jobs may be added to a queue and claimed from it here."""
        return queue in self._layout.queues

    async def look_if_due(self) -> None:
        """Find out which queues there are, if that was long ago; a failure is only told, and tried again."""
        now = self._clock.now()
        if self._looked_at is not None and 0 <= now - self._looked_at < LOOK_AGAIN_MS:
            return
        try:
            await self._look()
        except AirunnerError as error:
            _log.warning("aws.queues_unknown", error=error.text)
        else:
            self._looked_at = now

    async def all_names(self) -> Sequence[str]:
        """Return all queues, or raise Unavailable while it could not be found out which there are."""
        await self.look_if_due()
        if self._looked_at is None:
            raise Unavailable("the server does not know yet which queues have jobs")
        return self.names

    async def check(self, queue: str) -> None:
        """Raise InvalidArgument unless a queue is configured, or may have jobs from when it was."""
        if self.is_configured(queue) or queue in self._removed:
            return
        if not await self._note([queue]):
            raise InvalidArgument(f"queue {queue} is not configured on this server: see store.sqs.queues")
        self._removed.add(queue)

    async def _look(self) -> None:
        # Servers of older versions made queues known without noting them in the index.
        await self._note(sorted(self._unnoted))
        self._unnoted.clear()
        names = [text_at(entry, "order_key") for entry in await self._rows.read_listed(_LIST_KEY)]
        self._removed.update(name for name in names if not self.is_configured(name))
        await self._tell()

    async def _note(self, queues: Sequence[str]) -> Collection[str]:
        """Put those queues into the index that the table knows without it; return all that it knows."""
        items = await self._rows.read_many([queue_key(queue) for queue in queues]) if queues else {}
        known = [queue for queue in queues if queue_key(queue) in items]
        for queue in known:
            if "list_key" not in items[queue_key(queue)]:
                with suppress(ConditionFailed):
                    await self._aws.dynamodb(
                        "UpdateItem",
                        TableName=self._layout.jobs_table,
                        Key={"job_id": text(queue_key(queue))},
                        **update_expression(
                            index_entry(queue), conditions={"job_id": text(queue_key(queue))}
                        ),
                    )
        return known

    async def _tell(self) -> None:
        """Warn of queues that are not configured any more and have jobs that have not ended."""
        removed = sorted(self._removed)
        are_used = await asyncio.gather(*map(self._has_open_jobs, removed))
        used = [queue for queue, is_used in zip(removed, are_used, strict=True) if is_used]
        telemetry.queue_unconfigured.show({(queue,): 1.0 for queue in used[:_MAX_LABELS]})
        for queue in used[:_MAX_LABELS]:
            _log.warning("aws.queue_not_configured", queue=queue)

    async def _has_open_jobs(self, queue: str) -> bool:
        answers = await asyncio.gather(
            *(
                self._aws.dynamodb(
                    "Query",
                    TableName=self._layout.jobs_table,
                    IndexName=CHECKS_INDEX,
                    KeyConditionExpression="check_key = :key",
                    ExpressionAttributeValues={":key": text(f"open#{queue}#{shard}")},
                    Limit=1,
                )
                for shard in range(self._layout.listing_shards)
            )
        )
        return any(answer["Items"] for answer in answers)


def index_entry(queue: str) -> Item:
    """Return what notes a queue in the index of known ones, as attributes of its item."""
    return {"list_key": text(_LIST_KEY), "order_key": text(queue)}
