"""What is done for an order, and what follows: `airunner generation worker --handlers painting.py`."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import asyncpg

from airunner import Context, GenerationFailure, GenerationSession, PermanentFailure, handler

FOLDER = Path(os.environ.get("PICTURES", "pictures"))
RESERVE = """
INSERT INTO reservations (id, account) VALUES ($1::text::uuid, $2) ON CONFLICT DO NOTHING RETURNING true
"""
PAY = "UPDATE accounts SET credits = credits - 1 WHERE id = $1 AND credits > 0 RETURNING true"


async def capture(connection: asyncpg.Connection, session: GenerationSession, result: Any) -> None:
    await connection.execute(
        "UPDATE reservations SET state = 'captured' WHERE id = $1::text::uuid", session.id
    )


async def refund(
    connection: asyncpg.Connection, session: GenerationSession, failure: GenerationFailure
) -> None:
    account = await connection.fetchval(
        "UPDATE reservations SET state = 'refunded' WHERE id = $1::text::uuid RETURNING account", session.id
    )
    await connection.execute("UPDATE accounts SET credits = credits + 1 WHERE id = $1", account)


@handler("paint", on_success=capture, compensate=refund)
async def paint(payload: dict[str, str], context: Context) -> dict[str, str]:
    if not payload["prompt"].strip():
        raise PermanentFailure("empty_prompt", "there is nothing to paint")
    await reserve(context.request_id, user=int(payload["user_id"]))
    picture = await ask_the_provider(payload["prompt"], idempotency_key=context.request_id)
    return {"place": await keep(picture, name=context.request_id)}


async def reserve(picture: str, *, user: int) -> None:
    """Take a credit where the order did not: `airunner outbox rerun` makes an id that nobody paid for."""
    connection = await asyncpg.connect(os.environ["DATABASE_URL"])
    try:
        async with connection.transaction():
            is_new = await connection.fetchval(RESERVE, picture, user)
            if is_new and not await connection.fetchval(PAY, user):
                raise PermanentFailure("no_credit", "there is no credit left")
    finally:
        await connection.close()


async def ask_the_provider(prompt: str, *, idempotency_key: str) -> bytes:
    """Stand for a call of your provider, which knows by the key that it was asked before."""
    return f"{prompt}, painted for {idempotency_key}\n".encode()


async def keep(picture: bytes, *, name: str) -> str:
    """Keep a picture under a name that a second try finds again, and return where."""
    place = FOLDER / f"{name}.txt"
    await asyncio.to_thread(FOLDER.mkdir, exist_ok=True)
    await asyncio.to_thread(place.write_bytes, picture)
    return str(place)
