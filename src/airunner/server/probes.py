"""The two pages of a process that is no server: /metrics and /healthz."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from airunner.server.listening import HttpServer, bind, first, http_config, url_of
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

    listener = bind(host, port, "--metrics-listen")
    pages = Starlette(routes=[Route("/healthz", healthz), Route("/metrics", metrics)])
    server = HttpServer(http_config(pages, timeout_graceful_shutdown=1))
    serving = asyncio.create_task(server.serve([listener]))
    await first(serving, server.ready.wait())
    try:
        yield url_of(listener)
    finally:
        server.should_exit = True
        await serving
