"""Keeps servers from giving work to instances that are about to be terminated."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

from airunner.domain.errors import AirunnerError, FailedPrecondition, error_text
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from airunner.domain.clock import Clock
    from airunner.fleet.ports import FleetRecords

_log = get_logger("airunner.fleet")

TRUSTED_MS: Final = 5_000
"""How long an answer is trusted: one read per instance and so long."""
READ_SECONDS: Final = 2.0
"""How long a dequeue waits for that read."""
_REMEMBERED: Final = 10_000
_WARN_EVERY_MS: Final = 60_000


class DrainingGate:
    """Implements InstanceGate over the fleet's records.

    Where they cannot be read nobody is refused: the look directly before a termination is the net. A job that
    slips through is run again after its visibility.
    """

    def __init__(self, records: FleetRecords, clock: Clock) -> None:
        self._records = records
        self._clock = clock
        # Of each instance, until when an answer is trusted, and whether it was draining.
        self._known: OrderedDict[str, tuple[int, bool]] = OrderedDict()
        self._reading: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._warned_at: int | None = None

    async def check(self, instance_id: str) -> None:
        """Raise FailedPrecondition if an instance is draining."""
        if await self._is_draining(instance_id):
            raise FailedPrecondition(f"instance {instance_id} is draining: it gets no more jobs")

    async def _is_draining(self, instance_id: str) -> bool:
        lock = self._reading.setdefault(instance_id, asyncio.Lock())
        # Those who ask for the same instance meanwhile have the same answer.
        async with lock:
            # From before the read: what is marked while it is under way may be missing in its answer.
            asked_at = self._clock.monotonic()
            trusted_until, is_draining = self._known.get(instance_id, (asked_at, False))
            if asked_at < trusted_until:
                return is_draining
            is_draining = await self._read(instance_id)
            self._known[instance_id] = (asked_at + TRUSTED_MS, is_draining)
            self._known.move_to_end(instance_id)
            if len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
            return is_draining

    async def _read(self, instance_id: str) -> bool:
        """Return whether the record of an instance says so; False where nobody can tell soon."""
        try:
            async with asyncio.timeout(READ_SECONDS):
                records = await self._records.read_instances([instance_id])
        except (AirunnerError, TimeoutError) as error:
            self._warn(error)
            return False
        return bool(records[instance_id].draining_since)

    def _warn(self, error: Exception) -> None:
        now = self._clock.monotonic()
        if self._warned_at is None or now >= self._warned_at + _WARN_EVERY_MS:
            self._warned_at = now
            _log.warning("fleet.draining_unknown", error=error_text(error))
