"""The protocol of one connection: uvicorn's, within limits, with a short way for the calls that come most."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from airunner.rpc.joined_stream import WRITE_NOW
from airunner.server.connections import ConnectionGuard, ConnectionRefusal, probe_when_silent
from airunner.server.thin_exchange import ThinExchange

if TYPE_CHECKING:
    import asyncio

    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

    from airunner.rpc.thin import ThinRequest

CLIENT_STREAMS: Final = frozenset({b"/job.v1.JobEventsService/PublishJobEvents"})
"""Calls whose bodies may pause for as long as their caller likes."""
_FRAME_BYTES_PER_BODY_BYTE: Final = 6
"""What chunks of a single byte each cost; more than that is trailers."""


class _Phase(Enum):
    """What the next byte of a connection belongs to."""

    IDLE = "idle"
    HEADERS = "headers"
    BODY = "body"


class GuardedProtocol(HttpToolsProtocol):
    """uvicorn's protocol within the limits of a guard."""

    def __init__(self, *args: Any, guard: ConnectionGuard, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # uvicorn has none before the first request begins; a blank line may come before that.
        self.headers = []
        self._guard = guard
        self._limits = guard.limits
        self._phase = _Phase.IDLE
        self.bytes_received = 0
        self._received = 0
        """Bytes of this request, as they came from the network."""
        self._received_body = 0
        """Those of them that are its body; the rest is headers, trailers and the framing of chunks."""
        self._deadline: tuple[float, ConnectionRefusal] | None = None
        self._thin: ThinRequest | None = None
        """A request that will go the short way if it is whole when what came is read."""
        self._thin_body = b""
        self._is_between = True
        """Whether the next byte begins a request."""
        self._parsed: tuple[int, ThinRequest] | None = None
        """The request of the bytes at hand that went the short way, and before it the size of its body."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn
        """Take a connection, or refuse it when there are too many."""
        super().connection_made(transport)
        if len(self._guard.open) >= self._guard.max_connections:
            self._refuse(ConnectionRefusal.TOO_MANY, 503)
            return
        self._guard.open.add(self)
        probe_when_silent(transport)
        self._expect(self._limits.idle_seconds, ConnectionRefusal.IDLE)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the deadline with the connection."""
        self._deadline = None
        self._guard.open.discard(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take bytes; what is no body is bounded, so that the parser never gathers more of it."""
        if self.transport.is_closing():
            return
        # A blank line before a request belongs to its head.
        if self._phase is _Phase.IDLE and self._is_between and self._takes_as_known(data):
            return
        if self._phase is _Phase.IDLE:
            self._phase = _Phase.HEADERS
            self._received = self._received_body = 0
            self._expect(self._limits.header_seconds, ConnectionRefusal.HEADERS_TOO_SLOW)
        elif self._deadline and self._phase is _Phase.BODY:
            self._expect(self._limits.body_seconds, ConnectionRefusal.BODY_TOO_SLOW)
        self.bytes_received += len(data)
        self._received += len(data)
        self._parse(data)
        if self._thin:
            self._take_the_long_way()
        if self._phase is not _Phase.IDLE and self._gathers_too_much():
            self._refuse(ConnectionRefusal.HEADERS_TOO_LARGE, 431)

    def on_message_begin(self) -> None:
        """Take note that a request begins."""
        self._is_between = False
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Begin the request, unless its headers were too large; then its body has to make progress."""
        self._phase = _Phase.BODY
        if self._has_large_headers():
            self._refuse(ConnectionRefusal.HEADERS_TOO_LARGE, 431)
            return
        if not _are_text([value for _, value in self.headers]):
            # Nobody could read them, and the endpoints would stumble over that.
            self._refuse(ConnectionRefusal.MALFORMED, 400)
            return
        if self.url in CLIENT_STREAMS:
            self._deadline = None
        else:
            self._expect(self._limits.body_seconds, ConnectionRefusal.BODY_TOO_SLOW)
        self._thin = self._thin_request()
        if not self._thin:
            self._begin_the_long_way()

    def on_body(self, body: bytes) -> None:
        """Take bytes of the body, unless the request was refused."""
        self._received_body += len(body)
        if self._thin:
            self._thin_body += body
        elif not self.transport.is_closing():
            super().on_body(body)

    def on_message_complete(self) -> None:
        """Take note that the request is whole: from here on, time is the server's."""
        self._phase = _Phase.IDLE
        self._is_between = True
        self._deadline = None
        if self.transport.is_closing():
            return
        if self._thin:
            self._take_the_short_way(self._thin)
        else:
            super().on_message_complete()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002  as uvicorn has it
        """Refuse what is no HTTP, counted like any other refusal."""
        self._refuse(ConnectionRefusal.MALFORMED, 400)

    def end_if_overdue(self, now: float) -> None:
        """End the connection if its deadline has passed, unless it is us who do not read."""
        if self._deadline and now >= self._deadline[0] and not self.flow.read_paused:
            self._refuse(self._deadline[1], 408)

    def _thin_request(self) -> ThinRequest | None:
        """Return the request that begins if it can go the short way: not behind one without an answer."""
        calls = self._guard.thin_calls
        if calls is None or self._is_busy():
            return None
        if self.parser.get_method() != b"POST" or self.parser.get_http_version() != "1.1":
            return None
        return calls.accept(self.url, self.headers)

    def _is_busy(self) -> bool:
        """Return whether an answer is still to come, or the caller does not read those that it got."""
        # uvicorn says that it always is one; before the first request there is none.
        cycle: RequestResponseCycle | None = self.cycle
        return self.flow.write_paused or (cycle is not None and not cycle.response_complete)

    def _parse(self, data: bytes) -> None:
        """Parse bytes; if they are a request that goes the short way, the next one like it is known."""
        was_between = self._is_between
        super().data_received(data)
        # Bytes that began within a request would be taken for another one.
        if self._parsed and was_between and self._is_between:
            self._guard.known_heads.note(data, *self._parsed)
        self._parsed = None

    def _takes_as_known(self, data: bytes) -> bool:
        """Take a request that is whole, and says what another has said; return whether it is one."""
        known = None if self._is_busy() else self._guard.known_heads.find(data)
        if known is None:
            return False
        self.bytes_received += len(data)
        self._deadline = None
        self._unset_keepalive_if_required()
        self._answer(*known, keep_alive=True)
        return True

    def _take_the_short_way(self, request: ThinRequest) -> None:
        body, keep_alive = self._thin_body, self.parser.should_keep_alive()
        self._thin, self._thin_body = None, b""
        if keep_alive:
            self._parsed = len(body), request
        self._answer(request, body, keep_alive=keep_alive)

    def _answer(self, request: ThinRequest, body: bytes, *, keep_alive: bool) -> None:
        calls = self._guard.thin_calls
        if calls is None:
            return
        exchange = ThinExchange(
            calls,
            request,
            body,
            self.transport,
            keep_alive=keep_alive,
            on_response=self.on_response_complete,
        )
        self.cycle = exchange  # type: ignore[assignment]  # it has what is asked of one
        task = exchange.start(self.client[0] if self.client else "")
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)

    def _begin_the_long_way(self) -> None:
        super().on_headers_complete()
        # The application begins in a later turn of the loop.
        self.scope["extensions"] = {WRITE_NOW: {WRITE_NOW: WriteNow(self.cycle)}}

    def _take_the_long_way(self) -> None:
        """Give a request whose body is still coming to the application, which can refuse it by its head."""
        body, self._thin, self._thin_body = self._thin_body, None, b""
        if self.transport.is_closing():
            return
        self._begin_the_long_way()
        if body:
            super().on_body(body)

    def _gathers_too_much(self) -> bool:
        frame = self._received - self._received_body
        allowed = self._limits.header_bytes + _FRAME_BYTES_PER_BODY_BYTE * self._received_body
        return frame > allowed or len(self.headers) > self._limits.header_count

    def _has_large_headers(self) -> bool:
        if len(self.headers) > self._limits.header_count:
            return True
        if self._received <= self._limits.header_bytes:
            # The usual case: there are no more bytes than all that came.
            return False
        size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        return size > self._limits.header_bytes

    def _expect(self, seconds: float, otherwise: ConnectionRefusal) -> None:
        self._deadline = (self.loop.time() + seconds, otherwise)

    def _refuse(self, reason: ConnectionRefusal, status: int) -> None:
        """Answer in a line where no answer has begun, and close."""
        self._deadline = None
        if self.transport.is_closing():
            return
        self._guard.refused(reason)
        # uvicorn says that it always is one; before the first request there is none.
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or cycle.response_complete or not cycle.response_started:
            self.transport.write(STATUS_LINE[status] + b"content-length: 0\r\nconnection: close\r\n\r\n")
        self.transport.close()


class WriteNow:
    """Writes a piece of an answer as its cycle would, unless that would wait or there is nobody to read."""

    __slots__ = ("_cycle",)

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle

    def __call__(self, body: bytes) -> bool:
        cycle = self._cycle
        is_open = cycle.response_started and not cycle.response_complete and not cycle.disconnected
        if not is_open or not cycle.chunked_encoding or cycle.flow.write_paused:
            return False
        cycle.transport.write(b"%x\r\n%b\r\n" % (len(body), body))
        return True


def _are_text(values: list[bytes]) -> bool:
    # Mostly all of them are plain, which is found out at once.
    return b"".join(values).isascii() or all(map(_is_text, values))


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
