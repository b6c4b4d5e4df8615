"""What the outbox costs beside the bare calls that it needs.

A relay: the claim, the sends and the mark of a hundred rows, beside bare asyncpg and aiobotocore with the
same statements; SQS has its answer ready. Enqueueing: the function, beside the bare inserts of the same two
rows in one transaction. PostgreSQL is a local one, which does not sync.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import asyncpg
from aiobotocore.session import get_session

from airunner.aws.calls import Aws, AwsOptions
from airunner.aws.clients import OF_A_QUEUE
from airunner.domain.clock import SystemClock
from airunner.local.postgres import LocalPostgres
from airunner.outbox import statements
from airunner.outbox.enqueueing import enqueue_generation
from airunner.outbox.relay import Relay, RelayOptions
from airunner.outbox.schema import migrate_outbox
from airunner.outbox.sqs_sink import SqsSink
from airunner.outbox.table import OutboxTable
from airunner.postgres.pool import Database, PostgresOptions
from airunner.queues.sqs import SqsQueue
from benchmarks.canned_aws import QUEUE_URL
from benchmarks.harness import Row, free_port, median, running, until_listening

_NAME = "bench"
_ROWS = 100
_ROUNDS = 15
_GOAL = 1.5
_ENQUEUES = 600
_WRITERS = (1, 16)
_PAYLOAD = {"prompt": "a boat on a lake", "user_id": "42", "outputs": 1}
_INSERT_SESSION = """
INSERT INTO airunner.generation_sessions (id, principal, user_id, name, request, outputs, created_at)
VALUES ($1, 'bench', '42', 'paint', $2, 1, now())
"""
_INSERT_ROW = """
INSERT INTO airunner.outbox (id, queue, name, payload, created_at, due_at)
VALUES ($1, 'generation', 'paint', $2, now(), now())
"""


async def run() -> list[Row]:
    """One row for the relay, and one for each number of writers."""
    port = free_port()
    with LocalPostgres() as postgres, running(sys.executable, "-m", "benchmarks.canned_aws", str(port)):
        await until_listening(port)
        dsn = postgres.dsn()
        async with Database(PostgresOptions(dsn=dsn)) as database:
            await migrate_outbox(database, "airunner")
            relay = await _compare_relay(database, dsn, f"http://127.0.0.1:{port}")
            return [relay, *[await _compare_enqueue(database, dsn, count) for count in _WRITERS]]


async def _compare_relay(database: Database, dsn: str, url: str) -> Row:
    """Take turns, so that whatever else the machine does disturbs both alike."""
    options = AwsOptions(
        region="eu-west-1", endpoint_url=url, access_key=_NAME, secret_key=_NAME, clients=OF_A_QUEUE
    )
    async with Aws(options) as aws, _bare_sqs(url) as sqs:
        connection = await asyncpg.connect(dsn)
        sink = SqsSink({"generation": SqsQueue(aws, QUEUE_URL)})
        relay = Relay(OutboxTable(database, "airunner"), sink, SystemClock(), RelayOptions(relay_id="bench"))

        async def ours() -> None:
            relay._begin(await relay._claim())  # noqa: SLF001  one turn of its loop
            await relay._sending.finish()  # noqa: SLF001

        async def bare() -> None:
            await _send_bare(connection, sqs)

        pairs = []
        for turn in range(_ROUNDS + 1):
            pair = await _micros_per_row(connection, ours), await _micros_per_row(connection, bare)
            pairs += [pair] if turn else []  # the first opens the connections and prepares the statements
        await connection.close()
    return _row("relay: a row, of a hundred at once", pairs, "bare asyncpg and aiobotocore")


async def _send_bare(connection: asyncpg.Connection, sqs: Any) -> None:
    """Claim a hundred rows, send them in tens, mark them: as little as that takes."""
    claim = statements.render(statements.CLAIM, "airunner")
    mark = statements.render(statements.MARK, "airunner")
    rows = await connection.fetch(claim, _ROWS, [], 120.0, 1_000)
    sent: list[str] = []
    for start in range(0, len(rows), 10):
        entries = [
            {"Id": str(number), "MessageBody": row["body"]}
            for number, row in enumerate(rows[start : start + 10])
        ]
        answer = await sqs.send_message_batch(QueueUrl=QUEUE_URL, Entries=entries)
        sent += [entry["MessageId"] for entry in answer["Successful"]]
    count = len(rows)
    await connection.execute(
        mark,
        [row["id"] for row in rows],
        ["dispatched"] * count,
        [""] * count,
        [0] * count,
        [0.0] * count,
        sent,
    )


async def _micros_per_row(connection: asyncpg.Connection, send: Callable[[], Awaitable[None]]) -> float:
    await connection.execute("TRUNCATE airunner.outbox, airunner.generation_sessions CASCADE")
    await connection.execute(
        "SELECT airunner.enqueue('paint', $1) FROM generate_series(1, $2)", json.dumps(_PAYLOAD), _ROWS
    )
    began = time.perf_counter()
    await send()
    spent = time.perf_counter() - began
    left = await connection.fetchval("SELECT count(*) FROM airunner.outbox WHERE state <> 'dispatched'")
    assert left == 0, f"{left} rows are left"
    return spent / _ROWS * 1_000_000


async def _compare_enqueue(database: Database, dsn: str, writers: int) -> Row:
    async with _connections(dsn, writers) as connections:

        async def ours(number: int) -> None:
            connection = connections[number % writers]
            async with connection.transaction():
                await enqueue_generation(connection, "paint", _PAYLOAD)

        async def bare(number: int) -> None:
            row_id, connection = uuid.uuid4(), connections[number % writers]
            body = json.dumps({"id": str(row_id), "name": "paint", "payload": _PAYLOAD})
            async with connection.transaction():
                await connection.execute(_INSERT_SESSION, row_id, json.dumps(_PAYLOAD))
                await connection.execute(_INSERT_ROW, row_id, body)

        pairs = []
        for turn in range(_ROUNDS // 2 + 1):
            pair = await _micros_each(ours, writers), await _micros_each(bare, writers)
            pairs += [pair] if turn else []
            await database.execute("TRUNCATE airunner.outbox, airunner.generation_sessions CASCADE")
    return _row(f"outbox: enqueue, writers: {writers}", pairs, "bare inserts of both rows")


async def _micros_each(call: Callable[[int], Awaitable[None]], writers: int) -> float:
    async def write(writer: int) -> None:
        for _ in range(_ENQUEUES // writers):
            await call(writer)

    began = time.perf_counter()
    await asyncio.gather(*(write(writer) for writer in range(writers)))
    return (time.perf_counter() - began) / (_ENQUEUES // writers * writers) * 1_000_000


@asynccontextmanager
async def _connections(dsn: str, count: int) -> AsyncIterator[list[asyncpg.Connection]]:
    opened = [await asyncpg.connect(dsn) for _ in range(count)]
    yield opened
    for connection in opened:
        await connection.close()


@asynccontextmanager
async def _bare_sqs(url: str) -> AsyncIterator[Any]:
    async with AsyncExitStack() as stack:
        yield await stack.enter_async_context(
            get_session().create_client(
                "sqs",
                region_name="eu-west-1",
                endpoint_url=url,
                aws_access_key_id=_NAME,
                aws_secret_access_key=_NAME,
            )
        )


def _row(name: str, pairs: list[tuple[float, float]], beside: str) -> Row:
    ratio = median([here / there for here, there in pairs])
    return Row(
        name=name,
        measured=f"{median([here for here, _ in pairs]):,.0f} us",
        limit=f"{median([there for _, there in pairs]):,.0f} us, {beside}",
        ratio=ratio,
        goal=f"<= {_GOAL}",
        met=ratio <= _GOAL,
    )
