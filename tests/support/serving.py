"""A real server on loopback, in the event loop of the test."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import uvicorn

from airunner.client.loop_thread import LoopThread
from airunner.domain.clock import SystemClock
from airunner.generation.session_api.service import GenerationService
from airunner.server.asgi import AppOptions, build_app
from airunner.server.connections import ConnectionGuard, ConnectionLimits
from airunner.server.guarded_protocol import GuardedProtocol
from airunner.services.composition import Services
from airunner.stores.memory import MemoryStore
from airunner.testing.conditions import until
from airunner.testing.factories import make_services

OPEN = AppOptions(no_auth=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    cert_file: Path
    key_file: Path


@asynccontextmanager
async def serve(
    services: Services,
    options: AppOptions = OPEN,
    certificate: Certificate | None = None,
    guard: ConnectionGuard | None = None,
    listener: socket.socket | None = None,
    generations: GenerationService | None = None,
    *,
    short_ways: bool = True,
) -> AsyncIterator[str]:
    """Serve a platform that is open already; several servers may share one, like replicas a store."""
    app = build_app(services, options, generations)
    guard = guard or ConnectionGuard(ConnectionLimits(), services.clock)
    if short_ways:
        guard.thin_calls = app.thin_calls
    config = uvicorn.Config(
        app,
        host="127.0.0.1",
        port=0,
        http=partial(GuardedProtocol, guard=guard),  # type: ignore[arg-type]  # it is only ever called
        loop="none",
        lifespan="off",
        log_config=None,
        timeout_graceful_shutdown=1,
        ssl_certfile=certificate.cert_file if certificate else None,
        ssl_keyfile=certificate.key_file if certificate else None,
    )
    server = uvicorn.Server(config)
    # The signals of the test are not the server's.
    server.capture_signals = nullcontext  # type: ignore[method-assign,assignment]
    serving = asyncio.create_task(server.serve([listener] if listener else None))
    try:
        await until(lambda: server.started or serving.done())
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"{'https' if certificate else 'http'}://127.0.0.1:{port}"
    finally:
        await services.stop()
        server.should_exit = True
        await serving


@contextmanager
def serve_in_thread() -> Iterator[tuple[str, Services]]:
    """Serve a platform in memory beside the test's own thread, which is free to block."""
    thread = LoopThread("test-server")
    try:
        serving = _memory_server()
        yield thread.run(serving.__aenter__())
        thread.run(serving.__aexit__(None, None, None))
    finally:
        thread.close()


@asynccontextmanager
async def _memory_server() -> AsyncIterator[tuple[str, Services]]:
    clock = SystemClock()
    async with make_services(MemoryStore(clock), clock) as services, serve(services) as url:
        yield url, services
