"""Generation under test: handlers, a queue, and a consumer that works for a while."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from airunner.domain.clock import Clock, SystemClock
from airunner.domain.retry import RetryPolicy
from airunner.generation.sessions import SessionTable
from airunner.generation.work import WorkOptions
from airunner.generation.worker import GenerationConsumer, GenerationOptions
from airunner.handlers.registry import Hooks, Registry
from airunner.outbox.enqueueing import enqueue_generation
from airunner.postgres.pool import Database
from airunner.queues.memory import MemoryQueue
from airunner.queues.messages import MessageQueue, NewMessage
from tests.support.outbox import QUICK
from tests.support.postgres import rows_of

# Queues count whole seconds: anything but none at all would take one.
AT_ONCE = RetryPolicy(first_seconds=0, max_seconds=0)
LIMIT_MS = 20_000
ACCOUNTS = "CREATE TABLE IF NOT EXISTS public.effects (id text, what text, at serial)"


def registry(**functions: Any) -> Registry:
    """Return handlers by name; a pair is a handler and its hooks."""
    found = Registry()
    for name, given in functions.items():
        function, hooks = given if isinstance(given, tuple) else (given, Hooks())
        found.add(name, function, "test", hooks)
    return found


async def write_success(connection: Any, session: Any, result: Any) -> None:
    """Do what an application does once."""
    await connection.execute("INSERT INTO public.effects (id, what) VALUES ($1, 'done')", session.id)


async def write_failure(connection: Any, session: Any, failure: Any) -> None:
    """Undo what an application did."""
    await connection.execute(
        "INSERT INTO public.effects (id, what) VALUES ($1, $2)", session.id, f"failed:{failure.code}"
    )


HOOKS = Hooks(on_success=write_success, compensate=write_failure)


async def enqueue(database: Database, name: str, payload: object = None, **options: Any) -> str:
    async with database.transaction() as connection:
        return await enqueue_generation(connection, name, payload or {}, **options)


async def send_all(database: Database, queue: MessageQueue) -> None:
    """Send what is enqueued, as a relay does."""
    rows = await database.fetch(
        "UPDATE airunner.outbox SET state = 'dispatched', dispatched_at = airunner.instant() "
        "WHERE state = 'pending' RETURNING payload::text AS body"
    )
    await queue.send([NewMessage(body=row["body"]) for row in rows])


def make_consumer(
    queue: MessageQueue,
    sessions: SessionTable,
    handlers: Registry,
    *,
    clock: Clock | None = None,
    concurrency: Callable[[], int] = lambda: 5,
    policy: RetryPolicy = AT_ONCE,
    **work: Any,
) -> GenerationConsumer:
    options = GenerationOptions(
        work=WorkOptions(verdict_policy=QUICK, **work),
        wait_seconds=1,
        redelivery=policy,
        drain_seconds=5,
    )
    return GenerationConsumer(
        queue, sessions, handlers, clock or SystemClock(), options, concurrency=concurrency
    )


@asynccontextmanager
async def working(consumer: GenerationConsumer) -> AsyncIterator[GenerationConsumer]:
    task = asyncio.create_task(consumer.run())
    try:
        yield consumer
    finally:
        consumer.stop()
        await task


async def until_sessions(database: Database, **wanted: int) -> list[dict[str, Any]]:
    """Return all sessions once there are so many in these states."""
    clock = SystemClock()
    limit = clock.monotonic() + LIMIT_MS
    while True:
        found = await rows_of(database, "*", "generation_sessions")
        states = [row["state"] for row in found]
        if {state: states.count(state) for state in states} == wanted:
            return found
        assert clock.monotonic() < limit, states
        await clock.sleep(0.01)


async def effects(database: Database) -> list[tuple[str, str]]:
    return [
        (row["id"], row["what"]) for row in await database.fetch("SELECT * FROM public.effects ORDER BY at")
    ]


async def letters(queue: MemoryQueue) -> list[dict[str, Any]]:
    """Return the bodies of the dead letters, which stay there."""
    assert queue.dead_letters
    return [json.loads(message.body) for message in await queue.dead_letters.receive(10)]
