"""The tables of the application: `python -m pictures.database` makes them in DATABASE_URL, and an account."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Final, TypeAlias

import asyncpg

if TYPE_CHECKING:
    from uuid import UUID

    from asyncpg.pool import PoolConnectionProxy

    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record] | PoolConnectionProxy[asyncpg.Record]

TABLES: Final = """
CREATE TABLE IF NOT EXISTS accounts (
    id text PRIMARY KEY,
    credits integer NOT NULL CHECK (credits >= 0)
);
CREATE TABLE IF NOT EXISTS pictures (
    id uuid PRIMARY KEY,  -- of the order, its work, its session and its file
    account text NOT NULL REFERENCES accounts,
    prompt text NOT NULL,
    state text NOT NULL DEFAULT 'reserved' CHECK (state IN ('reserved', 'captured', 'refunded')),
    reason text NOT NULL DEFAULT '',
    ordered_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX IF NOT EXISTS pictures_of_account ON pictures (account, ordered_at);
INSERT INTO accounts VALUES ('demo', 10) ON CONFLICT DO NOTHING;
"""


class OutOfCredits(Exception):
    """The account has nothing left to pay with, or is none."""


async def reserve(connection: Connection, account: str, picture: UUID, prompt: str) -> None:
    """Take a credit for a picture, within the caller's transaction; nothing if that order has one already."""
    is_new = await connection.fetchval(
        """
        INSERT INTO pictures (id, account, prompt) VALUES ($1, $2, $3)
        ON CONFLICT (id) DO NOTHING RETURNING true
        """,
        picture,
        account,
        prompt,
    )
    taken = "UPDATE accounts SET credits = credits - 1 WHERE id = $1 AND credits > 0 RETURNING true"
    if is_new and not await connection.fetchval(taken, account):
        raise OutOfCredits


async def reserve_for_work(dsn: str, account: str, picture: UUID, prompt: str) -> None:
    """Take a credit for work that comes without one, in a transaction of its own.

    An order was paid for when it was enqueued: nothing happens. What `airunner outbox rerun` enqueues has a
    new id that nobody paid for yet.
    """
    connection = await asyncpg.connect(dsn, timeout=10, command_timeout=10)
    try:
        async with connection.transaction():
            await reserve(connection, account, picture, prompt)
    except asyncpg.ForeignKeyViolationError:
        raise OutOfCredits from None
    finally:
        await connection.close()


async def credits_of(connection: Connection, account: str) -> int:
    """Return how many pictures an account can pay for."""
    return int(await connection.fetchval("SELECT credits FROM accounts WHERE id = $1", account) or 0)


async def pictures_of(
    connection: Connection, account: str, picture: UUID | None = None
) -> list[dict[str, str]]:
    """Return the latest pictures of an account, the newest first, or one of them."""
    rows = await connection.fetch(
        """
        SELECT id::text, prompt, state, reason FROM pictures
        WHERE account = $1 AND id = coalesce($2, id) ORDER BY ordered_at DESC LIMIT 12
        """,
        account,
        picture,
    )
    return [dict(row) for row in rows]


async def make_tables(dsn: str) -> None:
    """Make what is missing."""
    connection = await asyncpg.connect(dsn, timeout=10, command_timeout=10)
    try:
        await connection.execute(TABLES)
    finally:
        await connection.close()


if __name__ == "__main__":
    asyncio.run(make_tables(os.environ["DATABASE_URL"]))
