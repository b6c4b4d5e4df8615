"""An outbox under test: a sink that says what it is told to, relays that run for a while, and their rows."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from airunner.domain.clock import SystemClock
from airunner.domain.retry import RetryPolicy
from airunner.outbox.relay import Relay, RelayOptions
from airunner.outbox.rows import ClaimedRow, SendOutcome, Sent
from airunner.outbox.table import OutboxTable
from airunner.postgres.pool import Database
from tests.support.postgres import rows_of

QUICK = RetryPolicy(first_seconds=0.01, max_seconds=0.05)
LIMIT_MS = 60_000


@dataclass(slots=True)
class ScriptedSink:
    """Takes what it has no answer for."""

    answers: dict[str, SendOutcome] = field(default_factory=dict)
    hung: dict[str, asyncio.Event] = field(default_factory=dict)
    error: Exception | None = None
    sent: list[str] = field(default_factory=list)
    calls: list[tuple[str, int]] = field(default_factory=list)
    max_rows: int = 10

    def knows(self, queue: str) -> bool:
        return queue != "nowhere"

    async def send(self, queue: str, rows: Sequence[ClaimedRow]) -> Sequence[SendOutcome]:
        self.calls.append((queue, len(rows)))
        if queue in self.hung:
            await self.hung[queue].wait()
        if self.error:
            raise self.error
        outcomes = [self.answers.get(row.name, Sent(f"ref-{row.name}")) for row in rows]
        self.sent += [row.row_id for row, told in zip(rows, outcomes, strict=True) if isinstance(told, Sent)]
        return outcomes


def make_relay(table: OutboxTable, sink: Any, relay_id: str = "one", **options: Any) -> Relay:
    given = RelayOptions(relay_id=relay_id, database_policy=QUICK, **options)
    return Relay(table, sink, SystemClock(), given)


@asynccontextmanager
async def running(relay: Relay) -> AsyncIterator[Relay]:
    task = asyncio.create_task(relay.run())
    try:
        yield relay
    finally:
        await relay.drain()
        await task


async def send_once(relay: Relay) -> None:
    """Let a relay claim what it can, send it, and mark it."""
    relay._begin(await relay._claim())
    await relay._sending.finish()


async def states(database: Database) -> Counter[str]:
    return Counter(row["state"] for row in await rows_of(database, "state"))


async def until_states(database: Database, **wanted: int) -> None:
    """Return once the rows are in these states."""
    clock = SystemClock()
    limit = clock.monotonic() + LIMIT_MS
    while (found := await states(database)) != Counter(wanted):
        assert clock.monotonic() < limit, found
        await clock.sleep(0.01)
