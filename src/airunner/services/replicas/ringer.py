"""Ringing at other servers: best effort, together for each server, and never waited for.

A bell that is lost delays its listeners until they are found to have news by looking; see `news`.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from airunner import telemetry
from airunner.domain.background import BackgroundTasks
from airunner.domain.errors import error_text
from airunner.domain.limits import is_replica_address
from airunner.domain.retry import RetryPolicy
from airunner.services.replicas.signed_bells import MAX_NAMES
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from airunner.domain.clock import Clock
    from airunner.domain.lifecycle import Lifecycle
    from airunner.services.replicas.signed_bells import SignedBells

_log = get_logger("airunner.replicas")

MAX_PEERS: Final = 64
"""How many other servers are known at a time, and so how many calls are under way at most."""
POST_SECONDS: Final = 2.0
# What comes so soon after a bell goes with the next one.
_GATHER_SECONDS: Final = 0.01
RESTS: Final = RetryPolicy(first_seconds=1.0, max_seconds=30.0)
"""How long a server is left alone that did not take a bell."""


class BellPost(Protocol):
    """The way to other servers."""

    async def post(self, address: str, body: bytes, signature: str) -> None:
        """Post a bell to the server of an address; raise unless it was taken."""

    async def aclose(self) -> None:
        """Let go of all connections."""


@dataclass(slots=True)
class _Peer:
    """Another server: what it is to be rung for, and how that went."""

    names: dict[str, None] = field(default_factory=dict)
    is_busy: bool = False
    failures: int = 0
    """Since it last took a bell."""
    rests_until: int = 0
    """Nothing is sent before this instant of the monotonic clock."""


class Ringer:
    """Posts bells to the servers that a life names. All methods but `close` return at once, and never raise.

    A server that does not answer is left alone for a while, for longer each time. The clock is for pauses.
    """

    def __init__(
        self,
        own_address: str,
        *,
        post: BellPost,
        bells: SignedBells,
        clock: Clock,
        rests: RetryPolicy = RESTS,
    ) -> None:
        self._own_address = own_address
        self._post = post
        self._bells = bells
        self._clock = clock
        self._rests = rests
        self._peers: dict[str, _Peer] = {}
        self._tasks = BackgroundTasks(_send_failed)
        self._is_closed = False

    def ring_watchers(self, life: Lifecycle, names: Sequence[str]) -> None:
        """Ring at the servers where a job is watched."""
        # By the instant of the write that named them.
        self._ring((address for address, until in life.watchers_at if until > life.updated_at), names)

    def ring_holder(self, life: Lifecycle, names: Sequence[str]) -> None:
        """Ring at the server where the holder of a job waits."""
        if life.holder_at:
            self._ring([life.holder_at], names)

    async def close(self) -> None:
        """Give up what is under way. Nothing is rung afterwards."""
        self._is_closed = True
        self._tasks.cancel()
        await self._tasks.finish()
        await self._post.aclose()

    def _ring(self, addresses: Iterable[str], names: Sequence[str]) -> None:
        for address in addresses:
            if address == self._own_address or self._is_closed:
                continue
            peer = self._peer(address)
            if peer is None or peer.rests_until > self._clock.monotonic():
                telemetry.bells_sent.add(len(names), "dropped")
                continue
            self._add(peer, names)
            if not peer.is_busy:
                peer.is_busy = True
                self._tasks.begin("bell", self._send_all(address, peer))

    def _peer(self, address: str) -> _Peer | None:
        """Return the server of an address; None for one that is none, or one too many."""
        known = self._peers.get(address)
        if known or not is_replica_address(address):
            return known
        if len(self._peers) >= MAX_PEERS:
            idle = next((name for name, peer in self._peers.items() if not peer.is_busy), None)
            if idle is None:
                return None
            del self._peers[idle]
        known = self._peers[address] = _Peer()
        return known

    def _add(self, peer: _Peer, names: Sequence[str]) -> None:
        for name in names:
            if len(peer.names) < MAX_NAMES or name in peer.names:
                peer.names[name] = None
            else:
                telemetry.bells_sent.add(1, "dropped")

    async def _send_all(self, address: str, peer: _Peer) -> None:
        try:
            while peer.names:
                names, peer.names = peer.names, {}
                await self._send(address, peer, names)
                await self._clock.sleep(_GATHER_SECONDS)
        finally:
            peer.is_busy = False

    async def _send(self, address: str, peer: _Peer, names: dict[str, None]) -> None:
        try:
            async with asyncio.timeout(POST_SECONDS):
                await self._post.post(address, *self._bells.seal(names))
        except Exception as error:  # noqa: BLE001  whatever it is, that server is left alone for a while
            self._failed(address, peer, len(names), error)
            return
        telemetry.bells_sent.add(len(names), "ok")
        if peer.failures:
            _write_log("replica.reached", address)
        peer.failures = 0

    def _failed(self, address: str, peer: _Peer, lost: int, error: Exception) -> None:
        telemetry.bells_sent.add(lost, "failed")
        telemetry.bells_sent.add(len(peer.names), "dropped")
        peer.names = {}
        if not peer.failures:
            _write_log("replica.unreachable", address, error_text(error))
        peer.failures += 1
        peer.rests_until = self._clock.monotonic() + round(self._rests.delay(peer.failures) * 1000)


def _write_log(event: str, address: str, error: str = "") -> None:
    """Log what became of a server; no log line keeps a bell from being sent."""
    with suppress(Exception):
        _log.warning(event, address=address, **({"error": error} if error else {}))


def _send_failed(_: str, error: BaseException) -> None:
    _log.warning("replica.ring_failed", error=error_text(error))
