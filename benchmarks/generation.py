"""How long a committed enqueue takes to the start of its handler, beside the least that such a way needs.

The way: a notification wakes the relay, which claims, sends and marks; the worker's long poll answers, the
start of the try is written, the handler is called. Beside it, in turns and in the same process: a commit
with a NOTIFY, bare asyncpg that hears it, and one message through the queue by bare aiobotocore. Both queues
are on the same emulated SQS, both tables in the same local PostgreSQL, which does not sync.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import asyncpg
from aiobotocore.session import get_session

from airunner.app import provision_generation
from airunner.aws.provision.resources import ResourceKind
from airunner.config import Settings, load_settings
from airunner.domain.clock import SystemClock
from airunner.generation.start import GenerationWorker
from airunner.handlers.registry import Registry
from airunner.local.emulator.moto_process import ACCESS_KEY, REGION, SECRET_KEY, EmulatorProcess
from airunner.local.postgres import LocalPostgres
from airunner.outbox.enqueueing import enqueue_generation
from airunner.outbox.schema import migrate_outbox
from airunner.outbox.start import OutboxRelay
from airunner.postgres.pool import Database, PostgresOptions
from benchmarks.harness import Row, median

_TURNS = 60
_GOAL = 3.0
_CHANNEL = "bench"
_IS_WAITING = "SELECT EXISTS (SELECT FROM airunner.outbox_relays WHERE waiting_until > now())"
# How long a long poll takes to arrive before what it waits for is sent.
_SETTLE_SECONDS = 0.05


async def run() -> list[Row]:
    """One row: the medians of both, taken in turns."""
    emulator = await asyncio.to_thread(EmulatorProcess().start)
    try:
        with LocalPostgres() as postgres:
            dsn = postgres.dsn()
            async with Database(PostgresOptions(dsn=dsn)) as database:
                await migrate_outbox(database, "airunner")
            pairs = await _compare(dsn, emulator.url)
    finally:
        emulator.stop()
    ours, bare = median([here for here, _ in pairs]), median([there for _, there in pairs])
    return [
        Row(
            name="generation: commit to handler start, p50, emulated SQS",
            measured=f"{ours:.1f} ms",
            limit=f"{bare:.1f} ms, NOTIFY and one queue round trip",
            ratio=ours / bare,
            goal=f"<= {_GOAL}",
            met=ours / bare <= _GOAL,
        )
    ]


async def _compare(dsn: str, endpoint: str) -> list[tuple[float, float]]:
    settings = _settings(dsn, endpoint)
    made = await provision_generation(settings)
    (url,) = (resource.url for resource in made if resource.kind is ResourceKind.QUEUE)
    settings = _settings(dsn, endpoint, queue_url=url)
    async with AsyncExitStack() as stack:
        connection = await asyncpg.connect(dsn)
        stack.push_async_callback(connection.close)
        way = await stack.enter_async_context(_our_way(settings, connection))
        bare = await stack.enter_async_context(_bare_way(dsn, endpoint, connection))
        pairs = []
        for turn in range(_TURNS + 1):
            pair = await way(), await bare()
            pairs += [pair] if turn else []  # the first opens connections and prepares statements
    return pairs


@asynccontextmanager
async def _our_way(settings: Settings, connection: asyncpg.Connection) -> AsyncIterator[Any]:
    loop = asyncio.get_running_loop()
    began: asyncio.Queue[float] = asyncio.Queue()

    async def stamp() -> None:
        loop.call_soon_threadsafe(began.put_nowait, time.perf_counter())

    handlers = Registry()
    handlers.add("stamp", stamp, "bench")
    worker = GenerationWorker(settings, handlers, SystemClock())
    relay = OutboxRelay(settings, SystemClock())
    working = asyncio.create_task(worker.run())
    await relay.start()

    async def measure() -> float:
        while not await connection.fetchval(_IS_WAITING):  # noqa: ASYNC110  the database tells it
            await asyncio.sleep(0.01)
        await asyncio.sleep(_SETTLE_SECONDS)
        async with connection.transaction():
            await enqueue_generation(connection, "stamp", {})
        committed = time.perf_counter()
        return (await began.get() - committed) * 1000

    try:
        yield measure
    finally:
        worker.stop()
        await relay.stop()
        await working


@asynccontextmanager
async def _bare_way(dsn: str, endpoint: str, connection: asyncpg.Connection) -> AsyncIterator[Any]:
    async with AsyncExitStack() as stack:
        sending, receiving = [await stack.enter_async_context(_sqs(endpoint)) for _ in range(2)]
        url = (await sending.create_queue(QueueName="bare"))["QueueUrl"]
        listener = await asyncpg.connect(dsn)
        stack.push_async_callback(listener.close)
        heard: asyncio.Queue[None] = asyncio.Queue()
        await listener.add_listener(_CHANNEL, lambda *_: heard.put_nowait(None))

        async def measure() -> float:
            poll = receiving.receive_message(QueueUrl=url, WaitTimeSeconds=20)
            receive = asyncio.create_task(poll)
            await asyncio.sleep(_SETTLE_SECONDS)
            async with connection.transaction():
                await connection.execute("SELECT pg_notify($1, '')", _CHANNEL)
            committed = time.perf_counter()
            await heard.get()
            await sending.send_message(QueueUrl=url, MessageBody="{}")
            (message,) = (await receive)["Messages"]
            spent = (time.perf_counter() - committed) * 1000
            await receiving.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
            return spent

        yield measure


def _sqs(endpoint: str) -> Any:
    return get_session().create_client(
        "sqs",
        region_name=REGION,
        endpoint_url=endpoint,
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=SECRET_KEY,
    )


def _settings(dsn: str, endpoint: str, queue_url: str | None = None) -> Settings:
    flags = {
        "postgres.dsn": dsn,
        "generation.queue_url": queue_url,
        "store.aws.region": REGION,
        "store.aws.endpoint_url": endpoint,
        "store.aws.access_key_id": ACCESS_KEY,
        "store.aws.secret_access_key": SECRET_KEY,
        "log_level": "error",
    }
    return load_settings(environ={}, flags=flags).settings
