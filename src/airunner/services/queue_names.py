"""Names of queues are made by using them, so their number is bounded."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from airunner.telemetry.refusals import CallRefusal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airunner.domain.clock import Clock
    from airunner.services.admission import Admission
    from airunner.stores.base import JobStore

_LOOK_AGAIN_MS: Final = 60_000


class QueueNames:
    """Knows the queues of a store in which a queue exists by its first use; elsewhere it checks nothing.

    The store is asked at the start, and once a minute while there are too many, since a queue whose last job
    was purged is gone. What cannot be found out then only makes the check more lenient.
    """

    def __init__(self, store: JobStore, admission: Admission, clock: Clock) -> None:
        self._store = store
        self._admission = admission
        self._clock = clock
        self._known: set[str] = set()
        self._looked_at = 0
        self._unchecked = store.capabilities.configured_queues

    async def open(self) -> None:
        """Find out which queues there are."""
        if self._unchecked:
            return
        self._looked_at = self._clock.now()
        with suppress(Exception):  # no reason not to start
            self._known = set(await self._store.queue_names())

    async def make_room(self, names: Iterable[str]) -> None:
        """Find out which queues are gone, if one of these is new and it is time to."""
        is_time = not 0 <= self._clock.now() - self._looked_at < _LOOK_AGAIN_MS
        if is_time and not self._known.issuperset(names):
            await self.open()

    def check(self, name: str) -> str:
        """Return the name of a queue, which counts from now on; refused if it is new and one too many."""
        if self._unchecked or name in self._known:
            return name
        if self.full:
            limit = self._admission.limits.max_queue_names
            self._admission.refuse(
                CallRefusal.QUEUE_NAMES,
                f"there are {limit} queues already, and {name} is none of them",
                _LOOK_AGAIN_MS / 1000,
            )
        self._known.add(name)
        return name

    @property
    def full(self) -> bool:
        """Whether there may be no further one."""
        return len(self._known) >= self._admission.limits.max_queue_names
