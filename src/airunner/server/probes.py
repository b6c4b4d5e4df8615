"""The two pages of a process that is no server: /metrics and /healthz."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from airunner.server.listening import HttpServer, bind, first, url_of
from airunner.server.pages import metrics_page

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from starlette.requests import Request


@asynccontextmanager
async def serve_probes(host: str, port: int, status: Callable[[], str]) -> AsyncIterator[str]:
    """Serve the pages as long as the context lasts, and yield their address.

    That the health page answers says that the loop turns; what it says is the status.
    """

    async def healthz(_: Request) -> Response:
        return JSONResponse({"status": status()})

    async def metrics(_: Request) -> Response:
        return await metrics_page()

    listener = bind(host, port)
    server = HttpServer(_config(Starlette(routes=[Route("/healthz", healthz), Route("/metrics", metrics)])))
    serving = asyncio.create_task(server.serve([listener]))
    await first(serving, server.ready.wait())
    try:
        yield url_of(listener)
    finally:
        server.should_exit = True
        await serving


def _config(app: Starlette) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http="httptools",
        loop="none",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=1,
    )
