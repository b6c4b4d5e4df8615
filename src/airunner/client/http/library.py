"""The library's way to servers, taken where a proxy stands between: it knows how to ask one."""

from __future__ import annotations

import asyncio
import atexit
import functools
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pyqwest

from airunner.client.http.base import (
    CONNECT_SECONDS,
    MAX_BODY_BYTES,
    ConnectionLost,
    HttpAnswer,
    Unreachable,
    timed_out,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from airunner.client.http.base import HttpStream, Target

_BROKEN = (OSError, pyqwest.ReadError, pyqwest.WriteError, pyqwest.RemoteProtocolError)
_IDLE_CONNECTIONS = 64
_PARTING_SECONDS = 0.05


class LibraryTransport:
    """A transport that goes by HTTP_PROXY and the like; see HttpTransport."""

    def __init__(self, ca_file: str | Path | None = None) -> None:
        """With a CA file, only what it signed is trusted; else what the system trusts."""
        _part_in_good_order()
        self._transport = pyqwest.HTTPTransport(
            tls_ca_cert=Path(ca_file).read_bytes() if ca_file else None,
            tls_include_system_certs=ca_file is None,
            connect_timeout=CONNECT_SECONDS,
            pool_max_idle_per_host=_IDLE_CONNECTIONS,
            follow_redirects=False,
            enable_otel=False,
        )
        self._client = pyqwest.Client(self._transport)

    async def send(self, target: Target, body: bytes = b"", *, timeout_ms: int) -> HttpAnswer:
        """Return the answer; see HttpTransport."""
        headers = {**target.headers, "connect-timeout-ms": str(timeout_ms)}
        url = target.address + target.path
        calling = asyncio.ensure_future(
            self._client.execute(target.method, url, headers=headers, content=body or None)
        )
        try:
            done, _ = await asyncio.wait({calling}, timeout=timeout_ms / 1000)
        except asyncio.CancelledError:
            if not calling.done() or calling.cancelled() or calling.exception():
                calling.cancel()
                raise
            done = {calling}
        if not done:
            calling.cancel()
            raise timed_out()
        try:
            answer = calling.result()
        except Exception as error:
            raise _translate(error, target.address) from error
        headers_of = [(name.lower().encode(), value.encode()) for name, value in answer.headers.items()]
        return HttpAnswer(answer.status, headers_of, bytes(answer.content[: MAX_BODY_BYTES + 1]))

    async def open(self, target: Target, body: bytes = b"") -> HttpStream:
        """Return the answer as soon as its head is there."""
        stack = AsyncExitStack()
        url = target.address + target.path
        try:
            answer = await stack.enter_async_context(
                self._client.stream(target.method, url, headers=dict(target.headers), content=body or None)
            )
        except Exception as error:
            await stack.aclose()
            raise _translate(error, target.address) from error
        return _LibraryStream(answer, target.address, stack)

    async def aclose(self) -> None:
        """Let go of all connections."""
        await self._transport.__aexit__(None, None, None)


class _LibraryStream:
    """An answer of the library, in pieces."""

    def __init__(self, answer: pyqwest.Response, address: str, stack: AsyncExitStack) -> None:
        self._answer = answer
        self._address = address
        self._stack = stack
        self._pieces: AsyncIterator[bytes | bytearray | memoryview] = aiter(answer.content)

    @property
    def status(self) -> int:
        return self._answer.status

    @property
    def content_type(self) -> str:
        return self._answer.headers.get("content-type", "")

    async def read(self) -> bytes:
        """Return the next piece; nothing at the end."""
        try:
            while not (piece := bytes(await anext(self._pieces))):
                pass
        except StopAsyncIteration:
            return b""
        except Exception as error:
            raise _translate(error, self._address) from error
        return piece

    async def aclose(self) -> None:
        """Close the stream."""
        await self._stack.aclose()


def _translate(error: Exception, address: str) -> Exception:
    """Return what an error of the library means; what no server could mend stays as it is."""
    if isinstance(error, ConnectionError):
        return Unreachable(f"cannot connect to {address}: {_last_words(error)}")
    if isinstance(error, TimeoutError):
        return timed_out()
    if isinstance(error, _BROKEN):
        return ConnectionLost(f"lost the connection to {address}: {_last_words(error)}")
    return error


def _last_words(error: Exception) -> str:
    # The library tells the whole chain of causes; the last one says it.
    return str(error).rsplit(": ", 1)[-1]


@functools.cache
def _part_in_good_order() -> None:
    """Give the library's native threads a moment before the interpreter goes away.

    One that comes back to Python after that aborts the whole process, before Python 3.13.
    """
    atexit.register(time.sleep, _PARTING_SECONDS)
