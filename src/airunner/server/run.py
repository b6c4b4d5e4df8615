"""Serving: bind, answer, and go away in good order."""

from __future__ import annotations

import asyncio
import gc
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import uvicorn

from airunner.domain import limits
from airunner.domain.errors import FailedPrecondition
from airunner.domain.limits import is_loopback
from airunner.server.asgi import AppOptions, build_app
from airunner.server.companions import Companions
from airunner.server.connections import ConnectionGuard, ConnectionLimits
from airunner.server.guarded_protocol import GuardedProtocol
from airunner.server.listening import HttpServer, bind, first, http_config, url_of
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Sequence
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from airunner.generation.session_api.service import GenerationService
    from airunner.server.companions import CompanionKind
    from airunner.services.composition import Services

_log = get_logger("airunner.server")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """Where and how to serve."""

    host: str
    port: int
    app: AppOptions
    cert_file: Path | None = None
    key_file: Path | None = None
    # Whether keys and secrets may come from other machines without TLS: behind a proxy, or since it was said.
    allow_plaintext: bool = False
    shutdown_grace_seconds: float = 5
    connections: ConnectionLimits = ConnectionLimits()


def check_plaintext(options: ServeOptions) -> None:
    """Refuse to take API keys and secrets from other machines in the clear, unless that was allowed."""
    if options.cert_file or options.allow_plaintext or options.app.no_auth or is_loopback(options.host):
        return
    raise FailedPrecondition(
        f"{options.host} is not loopback, and without TLS anyone on the network path can read API keys and "
        "secrets: "
        "give tls.cert_file and tls.key_file, or set server.behind_proxy if a proxy ends TLS; "
        "--insecure-plaintext serves without TLS anyway"
    )


class Server:
    """One server. `run` returns after `stop`; the second `stop` waits for no open call and no companion."""

    def __init__(
        self,
        services: Services,
        options: ServeOptions,
        resources: Sequence[AbstractAsyncContextManager[object]] = (),
        generations: GenerationService | None = None,
        companions: Sequence[CompanionKind] = (),
    ) -> None:
        """`companions` work in its process, from when it serves until it goes.

        `resources` are open around the services: what is built into these may use them.
        """
        self._services = services
        self._options = options
        self._resources = resources
        self._generations = generations
        self._guard = ConnectionGuard(options.connections, services.clock)
        services.add_loop(self._guard.periodic())
        self._companions = Companions(companions, services.clock)
        services.watch(lambda: self._companions.unwell, waiting=lambda: self._companions.waiting)
        self._uvicorn: HttpServer | None = None
        self._stop = asyncio.Event()

    async def run(self, *, on_ready: Callable[[str], None] | None = None) -> None:
        """Serve until stopped: streams and long polls end at once then, other calls have their grace.

        Companions drain before that, while everything is still answered.
        `on_ready` is given the URL once the server listens.
        """
        check_plaintext(self._options)
        listener = bind(self._options.host, self._options.port)
        async with AsyncExitStack() as stack:
            generations = [self._generations] if self._generations else []
            for resource in (*self._resources, *generations, self._services):
                await stack.enter_async_context(resource)
            await self._check_access()
            self._warn_of_small_messages()
            server = self._uvicorn = HttpServer(self._config())
            # What exists by now stays: the collector need not look at it again and again.
            gc.freeze()
            serving = asyncio.create_task(server.serve([listener]))
            try:
                if await first(serving, server.ready.wait()):
                    self._announce(listener, on_ready)
                    self._companions.start()
                    await first(serving, self._stop.wait())
            finally:
                # Whoever looks at /readyz sends nothing new to this server while its companions drain.
                self._services.leave()
                _log.info("server.stopping")
                await self._companions.drain()
            await self._services.stop()
            server.should_exit = True
            await serving
        _log.info("server.stopped")

    def stop(self) -> None:
        """Begin to go away; the second time, at once."""
        if self._stop.is_set() and self._uvicorn:
            self._uvicorn.force_exit = True
            self._companions.kill()
        self._stop.set()

    async def _check_access(self) -> None:
        """Refuse to serve the world without keys."""
        if self._options.app.no_auth:
            if not is_loopback(self._options.host):
                raise FailedPrecondition("--no-auth is for loopback addresses only")
            return
        if await self._services.store.list_keys():
            return
        hint = "there are no API keys; create one with 'airunner keys create'"
        if not is_loopback(self._options.host):
            raise FailedPrecondition(f"{self._options.host} is not loopback, and {hint}")
        _log.warning("server.no_keys", hint=f"{hint}, or use --no-auth")

    def _warn_of_small_messages(self) -> None:
        """Say that workers send more than this server takes: it would refuse results of jobs."""
        limit = self._options.app.max_message_bytes
        if limit < limits.MESSAGE_BYTES:
            hint = (
                f"workers and clients send up to {limits.MESSAGE_BYTES} bytes: raise limits.max_message_bytes"
            )
            _log.warning("server.small_messages", max_message_bytes=limit, hint=hint)

    def _config(self) -> uvicorn.Config:
        app = build_app(self._services, self._options.app, self._generations)
        self._guard.thin_calls = app.thin_calls
        return http_config(
            app,
            http=partial(GuardedProtocol, guard=self._guard),
            timeout_keep_alive=75,
            timeout_graceful_shutdown=max(1, int(self._options.shutdown_grace_seconds)),
            ssl_certfile=self._options.cert_file,
            ssl_keyfile=self._options.key_file,
        )

    def _announce(self, listener: socket.socket, on_ready: Callable[[str], None] | None) -> None:
        url = url_of(listener, "https" if self._options.cert_file else "http")
        _log.info("server.ready", url=url)
        if on_ready:
            on_ready(url)
