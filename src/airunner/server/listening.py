"""Binding an address, and uvicorn on it without its own ideas of signals."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import uvicorn

from airunner.domain.errors import FailedPrecondition

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

_BACKLOG = 2048


class HttpServer(uvicorn.Server):
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


def bind(host: str, port: int, option: str = "--listen") -> socket.socket:
    """Return a socket that listens there; an error names the option that chooses another address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        # What Python adds to the text of the system repeats the address.
        reason = os.strerror(error.errno) if error.errno else error
        raise FailedPrecondition(
            f"cannot listen on {host}:{port}: {reason}; choose another address with {option}"
        ) from None


def url_of(listener: socket.socket, scheme: str = "http") -> str:
    """Return the address of a socket as clients write it."""
    host, port = listener.getsockname()[:2]
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


async def first(serving: asyncio.Task[None], event: Coroutine[None, None, object]) -> bool:
    """Wait for an event while serving goes on; False when serving ended before it."""
    waiting = asyncio.ensure_future(event)
    await asyncio.wait((serving, waiting), return_when=asyncio.FIRST_COMPLETED)
    happened = waiting.done()
    waiting.cancel()
    return happened


def http_config(app: Any, **differences: Any) -> uvicorn.Config:
    """Return how we serve HTTP: on the loop that runs, without a log or a word of who we are."""
    return uvicorn.Config(
        app,
        http=differences.pop("http", "httptools"),
        loop="none",
        ws="none",
        lifespan="off",
        log_config=None,
        # What it warns of is what callers do, as often as they like; the guard counts that.
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        **differences,
    )
