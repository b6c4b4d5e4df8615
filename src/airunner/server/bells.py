"""Bells between servers over HTTP: the route that takes them, and the way to the others.

A bell names jobs whose listeners are to look again. Who is not a server of the same store can ring nothing,
and learns nothing: every refusal is the same empty answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Route

from airunner import telemetry
from airunner.client.http.base import Target
from airunner.client.transport import Transports
from airunner.domain.errors import PermissionDenied, Unavailable
from airunner.services.rates import Buckets, network_of
from airunner.services.replicas.signed_bells import MAX_BYTES
from airunner.telemetry.refusals import BellRefusal, RefusalLog

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from starlette.requests import Request

    from airunner.domain.clock import Clock
    from airunner.services.replicas.signed_bells import SignedBells

BELL_PATH: Final = "/v1/replicas/bell"
SIGNATURE_HEADER: Final = "airunner-signature"
CALLS_PER_SECOND: Final = 200
"""From one address; a server posts a hundred at most."""
_CALL_BURST: Final = 400
_TAKEN: Final = 204
# Whoever posts gives up sooner, and tells so.
_POST_MS: Final = 30_000


def bell_route(bells: SignedBells, ring: Callable[[str], None], clock: Clock) -> Route:
    """Return the route that takes bells. `ring` gets each name; one that nobody knows is nothing."""
    refusals = RefusalLog(telemetry.bells_refused, "bells.refused", clock)
    rates = Buckets(CALLS_PER_SECOND, _CALL_BURST, clock)

    def refuse(reason: BellRefusal) -> Response:
        refusals.add(reason)
        return Response(status_code=403)

    async def take(request: Request) -> Response:
        if rates.take(network_of(request.client.host if request.client else "")):
            return refuse(BellRefusal.RATE)
        body = await _read(request)
        if body is None:
            return refuse(BellRefusal.TOO_LARGE)
        try:
            names = bells.open(body, request.headers.get(SIGNATURE_HEADER, ""))
        except PermissionDenied:
            return refuse(BellRefusal.UNSIGNED)
        for name in names:
            ring(name)
        telemetry.bells_received.add(len(names))
        return Response(status_code=_TAKEN)

    return Route(BELL_PATH, take, methods=["POST"])


async def _read(request: Request) -> bytes | None:
    """Return the body of a request; None if it is too large, or its sender is gone."""
    body = b""
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > MAX_BYTES:
                return None
    except ClientDisconnect:
        return None
    return body


class HttpBellPost:
    """Posts bells, each on a connection that is kept, straight to its server: no proxy stands between."""

    def __init__(self, ca_file: str | Path | None) -> None:
        self._transports = Transports(ca_file, direct=True)

    async def post(self, address: str, body: bytes, signature: str) -> None:
        """Post a bell; raise unless it was taken."""
        target = Target(address, BELL_PATH, {SIGNATURE_HEADER: signature})
        answer = await self._transports.to(address).send(target, body, timeout_ms=_POST_MS)
        if answer.status != _TAKEN:
            raise Unavailable(f"{address} answered a bell with {answer.status}")

    async def aclose(self) -> None:
        """Let go of all connections."""
        await self._transports.aclose()
