"""Messages for jobs that wait: for those that have none, and for so many others as the queue is short of.

The row of a job says since when it has a message: `sent_at`, or six hours before it is to be looked at, which
is what whoever sends writes. One that was sent after it became claimable merely waits.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from airunner.aws import sqs
from airunner.domain.errors import AirunnerError, JobNotFound
from airunner.stores.aws.enqueue import SENT_CHECK_MS
from airunner.stores.aws.items import number, number_at, text
from airunner.stores.aws.layout import queue_key
from airunner.stores.aws.rows import CHECK_AFTER_MS
from airunner.stores.aws.unreadable import UnreadableRow
from airunner.stores.aws.wakeups import Wake
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airunner.aws.calls import Aws
    from airunner.domain.clock import Clock
    from airunner.stores.aws.items import Item, Row
    from airunner.stores.aws.rows import Rows
    from airunner.stores.aws.upkeep.open_jobs import OpenJobs
    from airunner.stores.aws.wakeups import Messages

_log = get_logger("airunner.aws")

TRUSTED_MS: Final = 10_000
"""How long the shortfall of a queue is trusted."""
_DAY_MS: Final = 24 * 3600 * 1000
# SQS forgets a message after 14 days.
_MESSAGE_LIVES_MS: Final = 13 * _DAY_MS
# With so many messages nobody waits for one that is missing: it is found when the queue is shorter.
_DEEP: Final = 50_000
# How many missing messages are counted at once.
_MOST_MISSING: Final = 10_000


@dataclass(slots=True)
class _Shortfall:
    missing: int
    trusted_until: int


class Resender:
    """Sends messages in tens, then writes on each row what came of it: one write for each row."""

    def __init__(
        self, aws: Aws, *, rows: Rows, messages: Messages, open_jobs: OpenJobs, clock: Clock
    ) -> None:
        self._aws = aws
        self._rows = rows
        self._messages = messages
        self._open_jobs = open_jobs
        self._clock = clock
        self._shortfalls: dict[str, _Shortfall] = {}

    async def wake(self, queue: str, rows: Sequence[Row], now: int) -> dict[str, Exception]:
        """See to jobs of a queue that can be claimed and whose time to be looked at has come.

        One that vanished meanwhile, or that another replica saw to, is left alone. Returns the jobs of which
        nothing could be written: they are looked at again.
        """
        unsent = [row for row in rows if needs_message(row, now)]
        waiting = [row for row in rows if not needs_message(row, now)]
        changes: list[tuple[Row, Item]] = []
        if waiting:
            short, rest = await self._split(queue, waiting, now)
            unsent += short
            changes += [(row, _looked_at(sent_at(row), again_at)) for row, again_at in rest]
        changes += await self._send(queue, unsent, now)
        failures = await asyncio.gather(*(self._note(row, change) for row, change in changes))
        return {row.job_id: error for (row, _), error in zip(changes, failures, strict=True) if error}

    async def _split(
        self, queue: str, waiting: Sequence[Row], now: int
    ) -> tuple[Sequence[Row], list[tuple[Row, int]]]:
        """Return the jobs that get another message, and the others with the time to look at them again."""
        try:
            shortfall = await self._shortfall(queue, now)
        except AirunnerError as error:
            _log.warning("aws.shortfall_unknown", queue=queue, error=error.text)
            return [], [(row, now + CHECK_AFTER_MS) for row in waiting]
        short = waiting[: shortfall.missing]
        shortfall.missing -= len(short)
        return short, [(row, now + SENT_CHECK_MS) for row in waiting[len(short) :]]

    async def _shortfall(self, queue: str, now: int) -> _Shortfall:
        """Return by how many messages a queue has less than jobs that should have one."""
        known = self._shortfalls.get(queue)
        if known and self._clock.monotonic() < known.trusted_until:
            return known
        missing = await self._missing(queue, now)
        found = _Shortfall(missing, self._clock.monotonic() + TRUSTED_MS)
        self._shortfalls[queue] = found
        return found

    async def _missing(self, queue: str, now: int) -> int:
        item = (await self._rows.read_many([queue_key(queue)])).get(queue_key(queue))
        if self._rows.is_paused(item):
            return 0
        messages = sum((await sqs.count_messages(self._aws, self._messages.url(queue))).values())
        if messages >= _DEEP:
            return 0
        enough = messages + _MOST_MISSING
        return max(0, await self._open_jobs.with_message(queue, now + SENT_CHECK_MS, enough) - messages)

    async def _send(self, queue: str, rows: Sequence[Row], now: int) -> list[tuple[Row, Item]]:
        """Send a message for each job; return what is to be written on its row."""
        wakes = [Wake(row.job_id, row.life.attempt + 1) for row in rows]
        sent = await self._messages.send(queue, wakes) if wakes else []
        return [
            (row, _looked_at(now, now + SENT_CHECK_MS) if was_sent else _looked_at(0, now + CHECK_AFTER_MS))
            for row, was_sent in zip(rows, sent, strict=True)
        ]

    async def _note(self, row: Row, changes: Item) -> Exception | None:
        """Write when to look at a job again, unless something happened to it; return what failed."""
        try:
            await self._rows.update(row.job_id, changes, {"nonce": text(row.nonce)})
        except (JobNotFound, UnreadableRow):
            # Purged elsewhere; or for others, who can read it.
            return None
        except Exception as error:  # noqa: BLE001  whatever it is, it is about this job
            return error
        return None


def sent_at(row: Row) -> int:
    """Return when the last message of a job was sent, as far as its row says."""
    return number_at(row.item, "sent_at") or number_at(row.item, "check_at") - SENT_CHECK_MS


def needs_message(row: Row, now: int) -> bool:
    """Return whether a job that can be claimed has no message as far as is known, or soon will have none."""
    when = sent_at(row)
    return when < (row.life.claimable_from or 0) or when <= now - _MESSAGE_LIVES_MS


def _looked_at(sent: int, again_at: int) -> Item:
    return {"check_at": number(again_at), **({"sent_at": number(sent)} if sent else {})}
