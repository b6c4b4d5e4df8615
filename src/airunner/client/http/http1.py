"""One connection to a server, in HTTP/1.1: one request at a time, and the answer to it."""

from __future__ import annotations

import asyncio
import select
import threading
from typing import TYPE_CHECKING, Final, Protocol, cast

import httptools

from airunner.client.http.base import MAX_HEADER_BYTES
from airunner.client.http.exchange import lost

if TYPE_CHECKING:
    from airunner.client.http.exchange import Exchange

_OK: Final = 200
_BUFFER_BYTES: Final = 256 * 1024
_MAX_DIGITS: Final = 10
_FRAMING: Final = frozenset({b"content-length", b"transfer-encoding"})
# What our servers say before the answers that come most; the length is the last of it.
_USUAL_HEAD: Final = b"HTTP/1.1 200 OK\r\ncontent-type: application/proto\r\ncontent-length: "
_END_OF_HEAD: Final = b"\r\n\r\n"


class _Shared(threading.local):
    """Where all connections of a thread read to: what has come is parsed before the next one reads.

    A buffer for each read is dear: it is as large as all that may come.
    """

    def __init__(self) -> None:
        self.buffer = memoryview(bytearray(_BUFFER_BYTES))


_shared = _Shared()


class Owner(Protocol):
    """Whoever made a connection."""

    def keep(self, connection: Http1Connection) -> None:
        """Hear that a connection can be used for the next exchange."""

    def forget(self, connection: Http1Connection) -> None:
        """Hear that a connection is closed."""


class Http1Connection(asyncio.BufferedProtocol):
    """A connection that is idle, or has one exchange; what comes without one ends it.

    A method whose name begins with `on_` is the parser's to call.
    """

    def __init__(self, address: str, owner: Owner) -> None:
        self.address = address
        self.idle_since = 0.0
        """When the last exchange ended, by the loop's clock; the owner's to set."""
        self._owner = owner
        self._buffer = _shared.buffer
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._exchange: Exchange | None = None
        self._poll: select.poll | None = None
        self._headers: list[tuple[bytes, bytes]] = []
        self._header_bytes = 0
        """Of the headers that are parsed."""
        self._unparsed_bytes = 0
        """That came before the head was whole; a line that never ends is among them."""
        self._status = 0
        self._paused = False
        self._is_between = True
        """Whether the next byte begins an answer."""

    @property
    def closed(self) -> bool:
        """Whether nothing more can be sent."""
        return self._transport is None or self._transport.is_closing()

    @property
    def has_news(self) -> bool:
        """Whether something has come that the loop has not read yet, such as that the server has gone."""
        return self._poll is not None and bool(self._poll.poll(0))

    def start(self, request: bytes, exchange: Exchange) -> None:
        """Send a request; the exchange is told its answer."""
        self._exchange = exchange
        self._status = self._header_bytes = self._unparsed_bytes = 0
        self._transport.write(request)  # type: ignore[union-attr]  # who starts has seen that it is open

    def abandon(self, exchange: Exchange) -> None:
        """Close the connection if an exchange is not over: nobody waits for the rest of its answer."""
        if self._exchange is exchange and self._transport:
            self._exchange = None
            self._transport.abort()

    def close(self) -> None:
        """Close the connection, with whatever is under way."""
        if self._transport and self._exchange is None:
            self._transport.close()
        elif self._transport:
            self._transport.abort()

    def pause(self) -> None:
        """Read no more until `resume`."""
        if self._transport and not self._paused and not self.closed:
            self._paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        if self._transport and self._paused and not self.closed:
            self._transport.resume_reading()
        self._paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way out."""
        self._transport = cast("asyncio.Transport", transport)
        socket = transport.get_extra_info("socket")
        if socket is not None and hasattr(select, "poll"):
            self._poll = select.poll()
            self._poll.register(socket.fileno(), select.POLLIN | select.POLLHUP | select.POLLERR)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002  as asyncio calls it
        """Return where to put what comes."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Read on in the answer."""
        if self._exchange is None:
            self.close()
            return
        if self._is_between and self._takes_as_usual(bytes(self._buffer[:nbytes])):
            return
        if not self._status:
            self._unparsed_bytes += nbytes
        try:
            self._parser.feed_data(self._buffer[:nbytes])
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._break(_reason(error))
            return
        if not self._status and self._unparsed_bytes > MAX_HEADER_BYTES:
            self._break("the head of its answer is too large")

    def connection_lost(self, exc: Exception | None) -> None:
        """End what is under way."""
        self._transport = self._poll = None
        self._owner.forget(self)
        exchange, self._exchange = self._exchange, None
        if exchange is None:
            return
        if self._status not in {0, _OK} and not _FRAMING & {name for name, _ in self._headers}:
            # The body of a refusal that ends with the connection, as proxies write them.
            exchange.end()
        else:
            exchange.fail(lost(self.address, str(exc) if exc else "it was closed"))

    def on_message_begin(self) -> None:
        """Begin an answer; one that nobody asked for breaks the connection."""
        if self._exchange is None:
            raise ValueError("an answer that nobody asked for")
        self._is_between = False
        self._headers = []

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header."""
        self._header_bytes += len(name) + len(value)
        if self._header_bytes > MAX_HEADER_BYTES:
            raise ValueError("the head of its answer is too large")
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Tell the head, unless it only says that one is to come."""
        status = self._parser.get_status_code()
        if status >= _OK and self._exchange:
            self._status = status
            self._exchange.begin(status, self._headers)

    def on_body(self, body: bytes) -> None:
        """Tell a piece of the body."""
        if self._exchange:
            self._exchange.take(body)

    def on_message_complete(self) -> None:
        """Tell the end."""
        self._is_between = True
        if self._status and self._exchange:
            self._end(self._exchange, keep_alive=self._parser.should_keep_alive())

    def _takes_as_usual(self, data: bytes) -> bool:
        """Take an answer that is whole and begins as most do, without a parser; return whether it is one."""
        exchange = self._exchange
        if exchange is None or not data.startswith(_USUAL_HEAD):
            return False
        digits, _, body = data[len(_USUAL_HEAD) :].partition(_END_OF_HEAD)
        if not digits.isdigit() or len(digits) > _MAX_DIGITS or len(body) != int(digits):
            return False
        self._status = _OK
        exchange.begin(_OK, [(b"content-type", b"application/proto"), (b"content-length", digits)])
        exchange.take(body)
        self._end(exchange, keep_alive=True)
        return True

    def _end(self, exchange: Exchange, *, keep_alive: bool) -> None:
        """Tell the end of an answer; keep the connection if it may be used again."""
        self._exchange = None
        transport = self._transport
        if transport and keep_alive and not transport.get_write_buffer_size():
            self.resume()
            self._owner.keep(self)
        elif transport:
            transport.abort()
        exchange.end()

    def _break(self, reason: str) -> None:
        """End what is under way with an error, and the connection too."""
        exchange, self._exchange = self._exchange, None
        self.close()
        if exchange:
            exchange.fail(lost(self.address, reason))


def _reason(error: Exception) -> str:
    """Return what the parser could not take; what our own calls raised is behind its error."""
    cause = error.__context__ if isinstance(error, httptools.HttpParserCallbackError) else None
    return (
        str(cause)
        if isinstance(cause, ValueError)
        else f"it does not speak HTTP/1.1 ({type(error).__name__})"
    )
