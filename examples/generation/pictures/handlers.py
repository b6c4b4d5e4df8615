"""What the worker does: paint a picture, and write its verdict into our own tables.

airunner generation worker --handlers pictures.handlers
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import UUID

from airunner import Context, Image, Images, PermanentFailure, handler
from pictures.database import OutOfCredits, reserve_for_work
from pictures.provider import MockProvider, Provider, provider_of
from pictures.storage import storage_at

if TYPE_CHECKING:
    from airunner import GenerationFailure, GenerationSession
    from pictures.database import Connection

MAX_OUTPUTS: Final = 4
provider = provider_of(os.environ)
storage = storage_at(os.environ.get("PICTURES_STORAGE", "stored-pictures"))


@dataclass(frozen=True, slots=True)
class Order:
    """What was enqueued; the defaults are for `airunner diag queue`, which sends a test through all of it."""

    user_id: str
    prompt: str = "a test of the queue"
    outputs: int = 1
    use_mock: bool = False


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
    """Paint what was ordered. Safe to repeat: the id of the order goes with all that it does."""
    if not 1 <= order.outputs <= MAX_OUTPUTS:
        raise PermanentFailure("outputs", f"an order is for 1 to {MAX_OUTPUTS} pictures")
    # A test of the queue costs nobody anything.
    if not order.use_mock:
        await pay(order, ctx.request_id)
    painter = MockProvider() if order.use_mock else provider
    keys = [ctx.request_id, *(f"{ctx.request_id}-{number}" for number in range(2, order.outputs + 1))]
    return Images([await paint_one(painter, order.prompt, key) for key in keys])


async def pay(order: Order, picture: str) -> None:
    """See to it that the picture is paid for, also where 'airunner outbox rerun' gave it a new id."""
    try:
        await reserve_for_work(os.environ["DATABASE_URL"], order.user_id, UUID(picture), order.prompt)
    except OutOfCredits:
        raise PermanentFailure("out_of_credits", "there are no credits left") from None


async def paint_one(painter: Provider, prompt: str, key: str) -> Image:
    """Have a picture painted, and keep it."""
    picture = await painter.paint(prompt, idempotency_key=key)
    return Image.of(await storage.put(f"{key}.png", picture), "image/png", picture)
