"""What the worker does: paint a picture, and write its verdict into our own tables.

airunner generation worker --handlers pictures.handlers
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airunner import Context, Image, Images, handler
from pictures.provider import provider_of
from pictures.storage import storage_at

if TYPE_CHECKING:
    from airunner import GenerationFailure, GenerationSession
    from pictures.database import Connection

provider = provider_of(os.environ)
storage = storage_at(os.environ.get("PICTURES_STORAGE", "stored-pictures"))


@dataclass(frozen=True, slots=True)
class Order:
    """What was enqueued with an order."""

    prompt: str
    user_id: str


async def capture(connection: Connection, session: GenerationSession, _images: Images) -> None:
    """Keep the credit: called once for each picture, in the transaction that says that it is done."""
    await connection.execute("UPDATE pictures SET state = 'captured' WHERE id = $1::text::uuid", session.id)


async def refund(connection: Connection, session: GenerationSession, failure: GenerationFailure) -> None:
    """Give the credit back: called once, in the transaction that says that the picture failed."""
    await connection.execute(
        """
        WITH failed AS (
            UPDATE pictures SET state = 'refunded', reason = $2 WHERE id = $1::text::uuid RETURNING account
        )
        UPDATE accounts SET credits = credits + 1 FROM failed WHERE accounts.id = failed.account
        """,
        session.id,
        failure.reason,
    )


@handler("paint", on_success=capture, compensate=refund)
async def paint(order: Order, ctx: Context) -> Images:
    """Paint and keep a picture. Safe to repeat: the id of the order goes with all that it does."""
    picture = await provider.paint(order.prompt, idempotency_key=ctx.request_id)
    location = await storage.put(f"{ctx.request_id}.png", picture)
    return Images([Image.of(location, "image/png", picture)])
