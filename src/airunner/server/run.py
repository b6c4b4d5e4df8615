"""Serving: bind, answer, and go away in good order."""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog
import uvicorn

from airunner.domain.errors import FailedPrecondition
from airunner.server.asgi import AppOptions, build_app
from airunner.server.guard import is_loopback

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from pathlib import Path

    from airunner.services.platform import Platform

_log = structlog.get_logger("airunner.server")
_BACKLOG = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """Where and how to serve."""

    host: str
    port: int
    app: AppOptions
    cert_file: Path | None = None
    key_file: Path | None = None
    shutdown_grace_seconds: float = 5


class Server:
    """One server. `run` returns after `stop`, or after a signal when `signals` is set."""

    def __init__(self, platform: Platform, options: ServeOptions) -> None:
        self._platform = platform
        self._options = options
        self._uvicorn: _Uvicorn | None = None
        self._stop = asyncio.Event()

    async def run(self, *, signals: bool = True, on_ready: Callable[[str], None] | None = None) -> None:
        """Serve until stopped: streams and long polls end at once, other calls have their grace."""
        listener = _bind(self._options.host, self._options.port)
        async with self._platform:
            await self._check_access()
            server = self._uvicorn = _Uvicorn(self._config())
            if signals:
                self._catch_signals()
            # What exists by now stays: the collector need not look at it again and again.
            gc.freeze()
            serving = asyncio.create_task(server.serve([listener]))
            if await _first(serving, server.ready.wait()):
                self._announce(listener, on_ready)
                await _first(serving, self._stop.wait())
            _log.info("server.stopping")
            await self._platform.stop()
            server.should_exit = True
            await serving
        _log.info("server.stopped")

    def stop(self) -> None:
        """Begin to go away; the second time, at once."""
        if self._stop.is_set() and self._uvicorn:
            self._uvicorn.force_exit = True
        self._stop.set()

    async def _check_access(self) -> None:
        """Refuse to serve the world without keys."""
        if self._options.app.no_auth:
            if not is_loopback(self._options.host):
                raise FailedPrecondition("--no-auth is for loopback addresses only")
            return
        if await self._platform.store.list_keys():
            return
        hint = "there are no API keys; make one with 'airunner keys create'"
        if not is_loopback(self._options.host):
            raise FailedPrecondition(f"{self._options.host} is not loopback, and {hint}")
        _log.warning("server.no_keys", hint=f"{hint}, or use --no-auth")

    def _config(self) -> uvicorn.Config:
        return uvicorn.Config(
            build_app(self._platform, self._options.app),
            http="httptools",
            loop="none",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=max(1, int(self._options.shutdown_grace_seconds)),
            ssl_certfile=self._options.cert_file,
            ssl_keyfile=self._options.key_file,
        )

    def _catch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)

    def _announce(self, listener: socket.socket, on_ready: Callable[[str], None] | None) -> None:
        host, port = listener.getsockname()[:2]
        scheme = "https" if self._options.cert_file else "http"
        url = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"
        _log.info("server.ready", url=url)
        if on_ready:
            on_ready(url)


class _Uvicorn(uvicorn.Server):
    """Tells when it serves, and leaves signals to us: it would wait for streams that only we can end."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture nothing."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and say so."""
        await super().startup(sockets)
        self.ready.set()


async def _first(serving: asyncio.Task[None], event: Coroutine[None, None, object]) -> bool:
    """Wait for an event while serving goes on; False when serving ended before it."""
    waiting = asyncio.ensure_future(event)
    await asyncio.wait((serving, waiting), return_when=asyncio.FIRST_COMPLETED)
    happened = waiting.done()
    waiting.cancel()
    return happened


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise FailedPrecondition(f"cannot listen on {host}:{port}: {error.strerror}") from None
