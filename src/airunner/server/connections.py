"""What a connection may cost before anybody knows who calls: bytes of headers, time, and their number."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from airunner import telemetry
from airunner.config import raise_descriptor_limit
from airunner.server.known_heads import KnownHeads
from airunner.services.periodic import Periodic
from airunner.telemetry.refusals import RefusalLog

if TYPE_CHECKING:
    from airunner.domain.clock import Clock
    from airunner.rpc.thin import ThinCalls
    from airunner.server.guarded_protocol import GuardedProtocol

_RESERVED_DESCRIPTORS: Final = 128
"""What the store, the listener, the logs and calls of our own need beside connections."""
_SWEEP_SECONDS: Final = 1.0
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


def probe_when_silent(transport: asyncio.Transport) -> None:
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


def _connections_within(descriptors: int) -> int:
    return max(descriptors - _RESERVED_DESCRIPTORS, descriptors // 2)
