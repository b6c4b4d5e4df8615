"""What is going on on a connection: a request whose answer is read whole, or as it comes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol

from airunner.client.http.base import MAX_BODY_BYTES, ConnectionLost, HttpAnswer, header_of, timed_out

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Headers = Sequence[tuple[bytes, bytes]]

# A reader that is so far behind stops the server's writing.
_MAX_UNREAD_BYTES: Final = 256 * 1024


class Exchange(Protocol):
    """Told what comes, in this order; each may be the last that is heard."""

    def begin(self, status: int, headers: Headers) -> None:
        """Take the head of an answer."""

    def take(self, chunk: bytes) -> None:
        """Take a piece of its body. Raises ValueError when it is too much."""

    def end(self) -> None:
        """Hear that the answer is whole."""

    def fail(self, error: Exception) -> None:
        """Hear that nothing more will come; repeated, or after the end, it is nothing."""


class WholeAnswer:
    """An answer that is read whole, as the result of a future."""

    __slots__ = ("_body", "_headers", "_size", "_status", "future")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.future: asyncio.Future[HttpAnswer] = loop.create_future()
        self._status = 0
        self._headers: Headers = ()
        self._body: list[bytes] = []
        self._size = 0

    def begin(self, status: int, headers: Headers) -> None:
        """Keep the head."""
        self._status, self._headers = status, headers

    def take(self, chunk: bytes) -> None:
        """Keep a piece of the body."""
        self._size += len(chunk)
        if self._size > MAX_BODY_BYTES:
            raise ValueError("the answer is too large")
        self._body.append(chunk)

    def end(self) -> None:
        """Give the answer to whoever waits."""
        if not self.future.done():
            body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
            self.future.set_result(HttpAnswer(self._status, self._headers, body))

    def fail(self, error: Exception) -> None:
        """Raise the error for whoever waits."""
        if not self.future.done():
            self.future.set_exception(error)

    def expire(self) -> None:
        """Hear that it is too late."""
        self.fail(timed_out())


class AnswerInPieces:
    """An answer that is read as it comes: whoever reads gets all that came since it last did."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, *, pause: Callable[[], None], resume: Callable[[], None]
    ) -> None:
        """`pause` stops the server's writing, and `resume` lets it go on."""
        self._loop = loop
        self._head: asyncio.Future[None] = loop.create_future()
        self._waiting: asyncio.Future[None] | None = None
        self._pause = pause
        self._resume = resume
        self._status = 0
        self._headers: Headers = ()
        self._pieces: list[bytes] = []
        self._size = 0
        self._ended = False
        self._error: Exception | None = None

    @property
    def status(self) -> int:
        """The status of the answer."""
        return self._status

    @property
    def content_type(self) -> str:
        """What the answer is."""
        return header_of(self._headers, b"content-type")

    async def head(self) -> None:
        """Wait until the head is there."""
        await self._head

    async def read(self) -> bytes:
        """Return what came since the last time, once there is something; nothing at the end."""
        while not self._pieces:
            if self._error:
                raise self._error
            if self._ended:
                return b""
            self._waiting = self._loop.create_future()
            await self._waiting
        pieces, self._pieces = self._pieces, []
        if self._size > _MAX_UNREAD_BYTES and not self._ended:
            self._resume()
        self._size = 0
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def begin(self, status: int, headers: Headers) -> None:
        """Keep the head."""
        self._status, self._headers = status, headers
        if not self._head.done():
            self._head.set_result(None)

    def take(self, chunk: bytes) -> None:
        """Keep a piece of the body; with too many unread, no more are fetched."""
        behind = self._size > _MAX_UNREAD_BYTES
        self._pieces.append(chunk)
        self._size += len(chunk)
        if self._size > _MAX_UNREAD_BYTES and not behind:
            self._pause()
        self._wake()

    def end(self) -> None:
        """Hear that the answer is whole."""
        self._ended = True
        self._wake()

    def fail(self, error: Exception) -> None:
        """Raise the error for whoever reads, after what came before."""
        if self._ended or self._error:
            return
        self._error = error
        if not self._head.done():
            self._head.set_exception(error)
        self._wake()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting and not waiting.done():
            waiting.set_result(None)


def lost(address: str, reason: str) -> ConnectionLost:
    """Return the error of a connection that broke while somebody waited for an answer."""
    return ConnectionLost(f"lost the connection to {address}: {reason}")
