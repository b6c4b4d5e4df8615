"""What a connection may cost before anybody knows who calls: bytes of headers, time, and their number."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Any, Final

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from airunner import telemetry
from airunner.config import raise_descriptor_limit
from airunner.rpc.joined_stream import WRITE_NOW
from airunner.server.known_heads import KnownHeads
from airunner.server.thin_exchange import ThinExchange
from airunner.services.periodic import Periodic
from airunner.telemetry.refusals import RefusalLog

if TYPE_CHECKING:
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

    from airunner.domain.clock import Clock
    from airunner.rpc.thin import ThinCalls, ThinRequest

_RESERVED_DESCRIPTORS: Final = 128
"""What the store, the listener, the logs and calls of our own need beside connections."""
_SWEEP_SECONDS: Final = 1.0
CLIENT_STREAMS: Final = frozenset({b"/job.v1.JobEventsService/PublishJobEvents"})
"""Calls whose bodies may pause for as long as their caller likes."""
_FRAME_BYTES_PER_BODY_BYTE: Final = 6
"""What chunks of a single byte each cost; more than that is trailers."""
_PROBE_AFTER_SECONDS: Final = 60
_PROBE_INTERVAL_SECONDS: Final = 10
_PROBES: Final = 6


class ConnectionRefusal(StrEnum):
    """Why a connection was ended by us; the values are labels of a metric."""

    TOO_MANY = "too_many"
    MALFORMED = "malformed"
    HEADERS_TOO_LARGE = "headers_too_large"
    HEADERS_TOO_SLOW = "headers_too_slow"
    BODY_TOO_SLOW = "body_too_slow"
    IDLE = "idle"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """What a connection may cost."""

    max_connections: int = 0
    """How many there may be at once; 0 derives it from the descriptors that this process may open."""
    header_bytes: int = 64 * 1024
    header_count: int = 100
    header_seconds: float = 10.0
    """From the first byte of a request to the end of its headers."""
    body_seconds: float = 30.0
    """Without a byte of the body of a unary call."""
    idle_seconds: float = 75.0
    """From the connection to the first byte of its first request."""


class ConnectionGuard:
    """Counts connections and refusals, and ends those whose time is over. One for each server.

    Deadlines are looked at once a second for all connections together: a timer for each request would cost
    the calls that are well-behaved more than the check itself.
    """

    def __init__(self, limits: ConnectionLimits, clock: Clock) -> None:
        self.limits = limits
        self.open: set[GuardedProtocol] = set()
        self.thin_calls: ThinCalls | None = None
        """The calls that go the short way, where there are any."""
        self.known_heads = KnownHeads()
        self.max_connections = limits.max_connections or _connections_within(raise_descriptor_limit())
        self._clock = clock
        self._refusals = RefusalLog(telemetry.connections_refused, "connections.refused", clock)

    def protocol(self, *args: Any, **kwargs: Any) -> GuardedProtocol:
        """Return the protocol of one connection; what uvicorn calls for each."""
        return GuardedProtocol(*args, guard=self, **kwargs)

    def refused(self, reason: ConnectionRefusal) -> None:
        """Count a refusal; the log has a line a minute, however many there are."""
        self._refusals.add(reason)

    def periodic(self) -> Periodic:
        """Return the loop that ends the connections whose time is over."""
        return Periodic(
            "connections",
            self._sweep_now,
            clock=self._clock,
            interval_seconds=_SWEEP_SECONDS,
            failure_event="connections.sweep_failed",
        )

    def sweep(self, now: float) -> None:
        """End the connections whose deadline has passed, by the loop's clock."""
        for connection in list(self.open):
            connection.end_if_overdue(now)

    async def _sweep_now(self) -> None:
        self.sweep(asyncio.get_running_loop().time())


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
        _probe_when_silent(transport)
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


def _are_text(values: list[bytes]) -> bool:
    # Mostly all of them are plain, which is found out at once.
    return b"".join(values).isascii() or all(map(_is_text, values))


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


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _connections_within(descriptors: int) -> int:
    return max(descriptors - _RESERVED_DESCRIPTORS, descriptors // 2)


def _probe_when_silent(transport: asyncio.Transport) -> None:
    """Have the kernel find out that a silent caller is gone, within two minutes."""
    sock: socket.socket | None = transport.get_extra_info("socket")
    if sock is None or sock.family not in {socket.AF_INET, socket.AF_INET6}:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _PROBE_AFTER_SECONDS)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _PROBE_INTERVAL_SECONDS)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES)
    user_timeout_ms = 1000 * (_PROBE_AFTER_SECONDS + _PROBES * _PROBE_INTERVAL_SECONDS)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, user_timeout_ms)
