"""The application that people see: orders, what became of them, and a page.

python -m pictures.app --listen 127.0.0.1:8000
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import UUID

import aiohttp
import asyncpg
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from airunner import enqueue_generation
from pictures import database
from pictures.storage import storage_at

PAGE: Final = Path(__file__).parent / "page"
MAX_PROMPT: Final = 500
MAX_BODY_BYTES: Final = 10_000
# A stream says something every 15 seconds.
STREAM_TIMEOUT: Final = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=60)
HEADERS: Final = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}


@dataclass(frozen=True, slots=True)
class Order:
    """A picture that somebody wants. The page makes the id: sent twice, it is one order."""

    id: UUID
    prompt: str


async def order(request: Request) -> Response:
    """Take a credit and enqueue the work, both or neither: that is what the transaction is for."""
    wanted, account = await read_order(request), account_of(request)
    payload = {"prompt": wanted.prompt, "user_id": account}
    try:
        async with request.app.state.pool.acquire(timeout=5) as connection, connection.transaction():
            await database.reserve(connection, account, wanted.id, wanted.prompt)
            await enqueue_generation(connection, "paint", payload, request_id=wanted.id)
    except database.OutOfCredits:
        raise HTTPException(402, "there are no credits left") from None
    except asyncpg.UniqueViolationError:
        raise HTTPException(409, "this id was used for another order") from None
    return JSONResponse({"id": str(wanted.id)}, 202)


async def pictures(request: Request) -> Response:
    """Answer with the latest pictures of the account and its credits."""
    async with request.app.state.pool.acquire(timeout=5) as connection:
        found = await database.pictures_of(connection, account_of(request))
        left = await database.credits_of(connection, account_of(request))
    return JSONResponse({"credits": left, "pictures": found}, headers={"cache-control": "no-store"})


async def image(request: Request) -> Response:
    """Answer with a picture that is done."""
    picture = await owned_picture(request)
    if picture["state"] != "captured":
        raise HTTPException(404, "there is no such picture yet")
    content = await request.app.state.storage.get(f"{picture['id']}.png")
    return Response(content, media_type="image/png", headers={"cache-control": "private, max-age=86400"})


async def events(request: Request) -> Response:
    """Pass the events of one picture on: the key of airunner stays here, and we know who may see what."""
    picture = await owned_picture(request)
    seen = {name: request.headers[name] for name in ("last-event-id",) if name in request.headers}
    try:
        answer = await request.app.state.airunner.get(f"/v1/generations/{picture['id']}/events", headers=seen)
    except (aiohttp.ClientError, TimeoutError):
        raise HTTPException(502, "airunner does not answer") from None
    if answer.status != 200:
        answer.release()
        raise HTTPException(502, f"airunner answered with HTTP {answer.status}")
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return StreamingResponse(passed_on(answer), media_type="text/event-stream", headers=headers)


async def passed_on(answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Yield what comes, as it comes; a stream that breaks ends here too, and the browser comes back."""
    async with answer:
        with suppress(aiohttp.ClientError, TimeoutError):
            async for piece in answer.content.iter_any():
                yield piece


async def page(_request: Request) -> Response:
    """Answer with the page."""
    return FileResponse(PAGE / "index.html")


async def read_order(request: Request) -> Order:
    """Return the order of a request, or refuse it."""
    # A page of somebody else can make a browser send other types without asking first.
    if request.headers.get("content-type", "").partition(";")[0] != "application/json":
        raise HTTPException(415, "the body must be application/json")
    if int(request.headers.get("content-length", MAX_BODY_BYTES + 1)) > MAX_BODY_BYTES:
        raise HTTPException(413, f"the body must have at most {MAX_BODY_BYTES} bytes")
    try:
        given = json.loads(await request.body())
        wanted = Order(UUID(given["id"]), given["prompt"].strip())
        wanted.prompt.encode()
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise HTTPException(400, "the body must have an id, which is a UUID, and a prompt") from None
    if not 0 < len(wanted.prompt) <= MAX_PROMPT or "\0" in wanted.prompt:
        raise HTTPException(400, f"a prompt has 1 to {MAX_PROMPT} characters, none of them NUL")
    return wanted


async def owned_picture(request: Request) -> dict[str, str]:
    """Return the picture of the path if it is the caller's; who asks for another's learns nothing."""
    async with request.app.state.pool.acquire(timeout=5) as connection:
        found = await database.pictures_of(connection, account_of(request), request.path_params["id"])
    if not found:
        raise HTTPException(404, "there is no such picture")
    return found[0]


def account_of(_request: Request) -> str:
    """Return whose request it is. Your login belongs here."""
    return "demo"


async def refuse(_request: Request, error: Exception) -> Response:
    """Answer with the status of an error and its sentence; 503 where database or storage do not answer."""
    if isinstance(error, HTTPException):
        return JSONResponse({"error": error.detail}, error.status_code)
    return JSONResponse({"error": "something that is needed does not answer"}, 503)


class SecureHeaders:
    """Adds headers to every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                more = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message["headers"], *more]
            await send(message)

        await self.app(scope, receive, send_with_headers)


@asynccontextmanager
async def opened(app: Starlette) -> AsyncIterator[None]:
    """Open what requests need, by the variables of the process, for as long as the application runs."""
    key = {"authorization": f"Bearer {os.environ['AIRUNNER_API_KEY']}"}
    base = os.environ.get("AIRUNNER_SERVER", "http://127.0.0.1:8080")
    app.state.storage = storage_at(os.environ.get("PICTURES_STORAGE", "stored-pictures"))
    async with (
        asyncpg.create_pool(os.environ["DATABASE_URL"], min_size=1, command_timeout=10) as app.state.pool,
        aiohttp.ClientSession(base, headers=key, timeout=STREAM_TIMEOUT) as app.state.airunner,
    ):
        print(f"pictures on {app.state.url}", file=sys.stderr, flush=True)
        yield


app = Starlette(
    routes=[
        Route("/", page),
        Route("/pictures", order, methods=["POST"]),
        Route("/pictures", pictures),
        Route("/pictures/{id:uuid}/image", image),
        Route("/pictures/{id:uuid}/events", events),
        Mount("/page", StaticFiles(directory=PAGE)),
    ],
    middleware=[
        Middleware(SecureHeaders),
        Middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost"]),
    ],
    exception_handlers=dict.fromkeys((HTTPException, OSError, asyncpg.PostgresConnectionError), refuse),
    lifespan=opened,
)


def main() -> None:
    """Serve until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--listen", default="127.0.0.1:8000", help="HOST:PORT; port 0 takes a free one")
    host, _, port = parser.parse_args().listen.rpartition(":")
    listening = socket.create_server((host, int(port)))
    app.state.url = f"http://{host}:{listening.getsockname()[1]}"
    # Streams do not end by themselves: whoever follows one comes back.
    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=2)
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main()
