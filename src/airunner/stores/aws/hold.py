"""What the holder of a job does: extend, publish, complete and release. The row answers; SQS follows."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from airunner.domain import lifecycle
from airunner.domain.limits import MAX_VISIBILITY_SECONDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airunner.domain.event import EncodedEvent
    from airunner.domain.lifecycle import Lifecycle
    from airunner.stores.aws.event_log import EventLog
    from airunner.stores.aws.items import Row
    from airunner.stores.aws.rows import Change, Removal, Rows
    from airunner.stores.aws.wakeups import Messages
    from airunner.stores.records import AttemptKey, Completion, Release

# The message of a running job shall not come before its row lets go of it.
BEYOND_ROW_SECONDS: Final = 15


class Holding:
    """Writes of holders, each one conditional on the attempt being theirs."""

    def __init__(self, *, rows: Rows, log: EventLog, messages: Messages, address: str = "") -> None:
        self._rows = rows
        self._address = address
        self._log = log
        self._messages = messages

    async def extend(self, key: AttemptKey, visibility_seconds: int, now: int) -> Lifecycle:
        """Give the holder more time."""

        def extended(life: Lifecycle) -> Lifecycle:
            longer = lifecycle.extend(life, key.attempt, now=now, visibility_seconds=visibility_seconds)
            return replace(longer, holder_at=self._address)

        row = await self._rows.revise(key.job_id, extended)
        if key.receipt:
            seconds = row.life.visibility_seconds + BEYOND_ROW_SECONDS
            self._messages.extend_later(row.queue, [key.receipt], seconds)
        return row.life

    async def append(self, key: AttemptKey, events: Sequence[EncodedEvent], now: int) -> Lifecycle:
        """Store the events that continue the attempt."""
        continuing: list[EncodedEvent] = []

        def appended(life: Lifecycle) -> Lifecycle:
            after, continuing[:] = lifecycle.append(life, key.attempt, events, now=now)
            return after

        return (await self._write(key, appended, continuing, now)).life

    async def complete(self, completion: Completion, now: int) -> Lifecycle:
        """End a job; its last events become visible together with its end."""
        key = completion.key
        continuing: list[EncodedEvent] = []

        def finished(life: Lifecycle) -> Lifecycle:
            after, continuing[:] = lifecycle.finish(
                life, key.attempt, completion.result, completion.events, now=now
            )
            return after

        row = await self._write(key, finished, continuing, now)
        self._messages.delete_later(row.queue, [key.receipt])
        return row.life

    async def release(self, release: Release, now: int) -> Lifecycle:
        """Give a job back; its message shows again when it is due."""
        key = release.key
        continuing: list[EncodedEvent] = []

        def released(life: Lifecycle) -> Lifecycle:
            after, continuing[:] = lifecycle.append(life, key.attempt, release.events, now=now)
            return lifecycle.release(
                after,
                key.attempt,
                now=now,
                delay_seconds=release.delay_seconds,
                unstarted=release.unstarted,
                error=release.error,
            )

        row = await self._write(key, released, continuing, now)
        if row.life.state.terminal or release.delay_seconds > MAX_VISIBILITY_SECONDS:
            self._messages.delete_later(row.queue, [key.receipt])
        elif key.receipt:
            await self._messages.show_again(row.queue, [key.receipt], release.delay_seconds)
        return row.life

    async def _write(self, key: AttemptKey, change: Change, events: list[EncodedEvent], now: int) -> Row:
        async def put() -> Removal | None:
            in_the_way = await self._log.put(key.job_id, events, now)
            return None if in_the_way is None else partial(self._log.remove, in_the_way)

        return await self._rows.revise(key.job_id, change, prepare=put)
