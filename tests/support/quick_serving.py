"""A real server on loopback whose start and end cost no time, for tests that need hundreds of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import uvicorn

from airunner.server.asgi import AppOptions, build_app
from airunner.server.connections import ConnectionGuard, ConnectionLimits
from airunner.server.guarded_protocol import GuardedProtocol
from airunner.services.composition import Services
from airunner.testing.conditions import until
from tests.support.serving import OPEN


@asynccontextmanager
async def serve_quickly(services: Services, options: AppOptions = OPEN) -> AsyncIterator[str]:
    """Serve a platform that is open already, without the loop that looks for signals ten times a second."""
    app = build_app(services, options)
    guard = ConnectionGuard(ConnectionLimits(), services.clock)
    guard.thin_calls = app.thin_calls
    config = uvicorn.Config(
        app,
        http=partial(GuardedProtocol, guard=guard),  # type: ignore[arg-type]  # it is only ever called
        host="127.0.0.1",
        port=0,
        loop="none",
        lifespan="off",
        log_config=None,
        access_log=False,
    )
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    await server.startup()
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        await services.stop()
        for listener in server.servers:
            listener.close()
        for connection in list(server.server_state.connections):
            connection.shutdown()
        await until(lambda: not server.server_state.tasks and not server.server_state.connections)
