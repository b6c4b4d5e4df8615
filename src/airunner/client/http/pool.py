"""Our own way to servers: connections in HTTP/1.1 that are kept, on the loop of whoever calls."""

from __future__ import annotations

import asyncio
import os
import ssl
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from airunner.client.http.base import CONNECT_SECONDS, HttpAnswer, Unreachable, timed_out
from airunner.client.http.deadlines import Deadlines
from airunner.client.http.exchange import AnswerInPieces, WholeAnswer
from airunner.client.http.http1 import Http1Connection

if TYPE_CHECKING:
    from pathlib import Path

    from airunner.client.http.base import HttpStream, Target

IDLE_SECONDS: Final = 60.0
"""How long an idle connection is kept: servers close theirs after 75 s."""
_MAX_IDLE: Final = 64


class ConnectionPool:
    """A transport of which each call has a connection for itself; the one that was used last comes first.

    It serves one loop at a time: used on another one, it forgets the connections of the last.
    """

    def __init__(self, ca_file: str | Path | None = None, *, idle_seconds: float = IDLE_SECONDS) -> None:
        """With a CA file, only what it signed is trusted; else what the system trusts."""
        self._ca_file = ca_file
        self._idle_seconds = idle_seconds
        self._tls: ssl.SSLContext | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._idle: dict[str, list[Http1Connection]] = {}
        self._open: set[Http1Connection] = set()
        self._sweep: asyncio.TimerHandle | None = None
        self._deadlines: Deadlines | None = None
        self._closed = False

    async def send(self, target: Target, body: bytes = b"", *, timeout_ms: int) -> HttpAnswer:
        """Return the answer; see HttpTransport."""
        loop = asyncio.get_running_loop()
        due_at = loop.time() + timeout_ms / 1000
        connection = self._take(target.address, loop)
        if connection is None:
            connection = await self._connect(target.address, loop, due_at)
        answer, deadlines = WholeAnswer(loop), self._deadlines or self._new_deadlines(loop)
        deadlines.add(answer, due_at)
        try:
            connection.start(target.request(body, timeout_ms), answer)
            return await answer.future
        except asyncio.CancelledError:
            if not answer.future.done() or answer.future.cancelled() or answer.future.exception():
                raise
            return answer.future.result()
        finally:
            deadlines.remove(answer)
            connection.abandon(answer)

    async def open(self, target: Target, body: bytes = b"") -> HttpStream:
        """Return the answer as soon as its head is there."""
        loop = asyncio.get_running_loop()
        connection = self._take(target.address, loop)
        if connection is None:
            connection = await self._connect(target.address, loop, None)
        stream = _PooledStream(connection, loop)
        connection.start(target.request(body, None), stream)
        try:
            await stream.head()
        except BaseException:
            await stream.aclose()
            raise
        return stream

    async def aclose(self) -> None:
        """Let go of all connections, and make no more."""
        self._closed = True
        self._close_all()
        # A closed transport is gone in the next turn of the loop.
        await asyncio.sleep(0)

    def keep(self, connection: Http1Connection) -> None:
        """Keep an idle connection for the next call, unless there are enough."""
        loop = self._loop
        idle = self._idle.setdefault(connection.address, [])
        if self._closed or loop is None or len(idle) >= _MAX_IDLE:
            connection.close()
            return
        connection.idle_since = loop.time()
        idle.append(connection)
        if self._sweep is None:
            self._sweep = loop.call_later(self._idle_seconds, self._drop_old)

    def forget(self, connection: Http1Connection) -> None:
        """Hear that a connection is closed."""
        self._open.discard(connection)
        idle = self._idle.get(connection.address, ())
        if connection in idle:
            self._idle[connection.address].remove(connection)

    def _take(self, address: str, loop: asyncio.AbstractEventLoop) -> Http1Connection | None:
        """Return an idle connection of which nothing was heard meanwhile, if there is one.

        What came while nobody asked and the loop was busy is that the server has closed it, or an answer to
        nothing, which the next call would take for its own.
        """
        if self._loop is not loop:
            self._close_all()
            self._loop = loop
        idle = self._idle.get(address)
        while idle:
            connection = idle.pop()
            is_old = loop.time() - connection.idle_since >= self._idle_seconds
            if not (connection.closed or is_old or connection.has_news):
                return connection
            connection.close()
        return None

    async def _connect(
        self, address: str, loop: asyncio.AbstractEventLoop, due_at: float | None
    ) -> Http1Connection:
        self._check_open()
        parts = urlsplit(address)
        connect_by = loop.time() + CONNECT_SECONDS
        is_secure = parts.scheme == "https"
        try:
            async with asyncio.timeout_at(min(connect_by, due_at or connect_by)):
                _, connection = await loop.create_connection(
                    lambda: Http1Connection(address, self),
                    parts.hostname or "",
                    parts.port or (443 if is_secure else 80),
                    ssl=self._trust() if is_secure else None,
                    **_impatience(loop),
                )
        except TimeoutError:
            if due_at is not None and due_at <= connect_by:
                raise timed_out() from None
            raise Unreachable(f"cannot connect to {address}: no answer in {CONNECT_SECONDS:g} s") from None
        except OSError as error:
            raise Unreachable(f"cannot connect to {address}: {_reason_of(error)}") from error
        if self._closed:
            # Whoever closed the client meanwhile did not know of this connection.
            connection.close()
        self._check_open()
        self._open.add(connection)
        return connection

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("the client is closed")

    def _drop_old(self) -> None:
        """Close what was idle for too long, and come back when the next will be."""
        self._sweep = None
        loop = self._loop
        if loop is None:
            return
        kept_since = loop.time() - self._idle_seconds
        for address, idle in self._idle.items():
            for connection in idle:
                if connection.idle_since <= kept_since:
                    connection.close()
            self._idle[address] = [one for one in idle if not one.closed]
        # The first of each is the one that was used the longest ago.
        ages = [idle[0].idle_since for idle in self._idle.values() if idle]
        if ages:
            self._sweep = loop.call_at(min(ages) + self._idle_seconds, self._drop_old)

    def _new_deadlines(self, loop: asyncio.AbstractEventLoop) -> Deadlines:
        self._deadlines = Deadlines(loop)
        return self._deadlines

    def _close_all(self) -> None:
        known, self._open = self._open, set()
        self._idle = {}
        if self._deadlines:
            self._deadlines.close()
            self._deadlines = None
        if self._sweep:
            self._sweep.cancel()
            self._sweep = None
        if self._loop is None or self._loop.is_closed():
            return
        for connection in known:
            connection.close()

    def _trust(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl.create_default_context(cafile=self._ca_file)
            self._tls.set_alpn_protocols(["http/1.1"])
        return self._tls


class _PooledStream(AnswerInPieces):
    """A stream on a connection of the pool."""

    __slots__ = ("_connection",)

    def __init__(self, connection: Http1Connection, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop, pause=connection.pause, resume=connection.resume)
        self._connection = connection

    async def aclose(self) -> None:
        """Close the connection unless the answer is whole."""
        self._connection.abandon(self)


def _impatience(loop: asyncio.AbstractEventLoop) -> dict[str, Any]:
    """Return what makes a loop try the next address of a name before the last one has given up."""
    # uvloop tries one after the other.
    return {"happy_eyeballs_delay": 0.25} if isinstance(loop, asyncio.BaseEventLoop) else {}


def _reason_of(error: OSError) -> str:
    """Return what an error says, in the words of the system where it has a number."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        # Its number is one of the library's, and means something else to the system.
        return f"TLS failed: {error.reason or error.strerror}"
    return os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)
