"""The handler of examples/application: whatever id the work comes with, it is paid for once."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from airunner import enqueue_generation
from airunner.domain.clock import SystemClock
from airunner.generation.sessions import SessionTable
from airunner.handlers.loading import load_handlers
from airunner.outbox.table import OutboxTable
from airunner.postgres.pool import Database
from airunner.queues.memory import MemoryQueue
from tests.support.generation import make_consumer, send_all, until_sessions, working

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "application"
USER = 1


@pytest.fixture
async def shop(
    database: Database, dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Database]:
    monkeypatch.setenv("DATABASE_URL", dsn)
    monkeypatch.setenv("PICTURES", str(tmp_path))
    # The other example has accounts too, and may have left them.
    await database.execute("DROP TABLE IF EXISTS pictures, accounts")
    await database.execute((EXAMPLE / "shop.sql").read_text())
    await database.execute("INSERT INTO accounts VALUES ($1, 2)", USER)
    yield database
    await database.execute("DROP TABLE reservations, accounts")


async def order(shop: Database, prompt: str) -> str:
    """Order a picture as the application does."""
    picture = uuid.uuid4()
    async with shop.transaction() as connection:
        await connection.execute("INSERT INTO reservations (id, account) VALUES ($1, $2)", picture, USER)
        await connection.execute("UPDATE accounts SET credits = credits - 1 WHERE id = $1", USER)
        payload = {"prompt": prompt, "user_id": str(USER)}
        return await enqueue_generation(connection, "paint", payload, request_id=picture)


async def work(shop: Database, **states: int) -> None:
    queue = MemoryQueue(SystemClock(), max_receive_count=5)
    await send_all(shop, queue)
    handlers = load_handlers([str(EXAMPLE / "painting.py")])
    async with working(make_consumer(queue, SessionTable(shop, "airunner"), handlers)):
        await until_sessions(shop, **states)


async def books(shop: Database) -> tuple[int, dict[str, str]]:
    """Return the credits that are left, and the state of each reservation."""
    rows = await shop.fetch("SELECT id::text, state FROM reservations")
    left = await shop.fetch_value("SELECT credits FROM accounts WHERE id = $1", USER)
    return left, {row["id"]: row["state"] for row in rows}


async def test_an_order_is_paid_for_once_and_once_more_when_it_is_run_again(shop: Database) -> None:
    table = OutboxTable(shop, "airunner")
    first = await order(shop, "a boat")
    await work(shop, done=1)
    assert await books(shop) == (1, {first: "captured"})
    again = await table.rerun(first)
    assert again
    await work(shop, done=2)
    assert await books(shop) == (0, {first: "captured", again.row_id: "captured"})
    assert await table.rerun(again.row_id)
    await work(shop, done=2, failed=1)
    assert await books(shop) == (0, {first: "captured", again.row_id: "captured"})
    codes = await shop.fetch("SELECT code FROM airunner.generation_sessions WHERE state = 'failed'")
    assert [row["code"] for row in codes] == ["no_credit"]


async def test_an_order_that_fails_is_refunded_once(shop: Database) -> None:
    first = await order(shop, " ")
    await work(shop, failed=1)
    assert await books(shop) == (2, {first: "refunded"})
