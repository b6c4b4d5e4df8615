"""An application that sells pictures, with FastAPI and asyncpg: `uvicorn shop_fastapi:app`."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated
from uuid import UUID

import asyncpg
import httpx
from fastapi import Depends, FastAPI, Header, HTTPException, Request
from fastapi.responses import StreamingResponse
from starlette.background import BackgroundTask

from airunner import enqueue_generation


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    key = os.environ.get("AIRUNNER_API_KEY", "")
    async with (
        asyncpg.create_pool(os.environ["DATABASE_URL"]) as app.state.database,
        httpx.AsyncClient(
            base_url=os.environ.get("AIRUNNER_SERVER", "http://127.0.0.1:8080"),
            headers={"authorization": f"Bearer {key}"},
            timeout=60,
        ) as app.state.airunner,
    ):
        yield


app = FastAPI(lifespan=lifespan)


async def current_user(x_user: Annotated[int, Header()]) -> int:
    """Stand for the login of your application."""
    return x_user


@app.post("/pictures", status_code=202)
async def order_picture(
    prompt: str,
    request: Request,
    user: Annotated[int, Depends(current_user)],
    idempotency_key: Annotated[UUID, Header()],
) -> dict[str, str]:
    try:
        async with request.app.state.database.acquire() as connection, connection.transaction():
            if await reserve(connection, idempotency_key, user):
                await pay(connection, user)
            payload = {"prompt": prompt, "user_id": str(user)}
            picture = await enqueue_generation(connection, "paint", payload, request_id=idempotency_key)
    except asyncpg.UniqueViolationError:
        raise HTTPException(409, "this idempotency key was used for something else") from None
    return {"id": picture}


async def reserve(connection: asyncpg.Connection, picture: UUID, user: int) -> bool:
    """Reserve a picture, and return whether that is new: a request may come twice."""
    statement = "INSERT INTO reservations (id, account) VALUES ($1, $2) ON CONFLICT DO NOTHING RETURNING true"
    return bool(await connection.fetchval(statement, picture, user))


async def pay(connection: asyncpg.Connection, user: int) -> None:
    """Take a credit; without one, everything of the transaction is undone."""
    statement = "UPDATE accounts SET credits = credits - 1 WHERE id = $1 AND credits > 0 RETURNING true"
    if not await connection.fetchval(statement, user):
        raise HTTPException(402, "there is no credit left")


@app.get("/pictures/{picture}/events")
async def picture_events(
    picture: UUID, request: Request, user: Annotated[int, Depends(current_user)]
) -> StreamingResponse:
    # A stream lasts: it must not keep a connection to the database.
    statement = "SELECT account = $2 FROM reservations WHERE id = $1"
    if not await request.app.state.database.fetchval(statement, picture, user):
        raise HTTPException(404, "there is no such picture")
    seen = {name: request.headers[name] for name in ["last-event-id"] if name in request.headers}
    airunner: httpx.AsyncClient = request.app.state.airunner
    asked = airunner.build_request("GET", f"/v1/generations/{picture}/events", headers=seen)
    answer = await airunner.send(asked, stream=True)
    return StreamingResponse(
        answer.aiter_raw(),
        answer.status_code,
        media_type="text/event-stream",
        background=BackgroundTask(answer.aclose),
    )
