"""Bells that carry no data: a ring only means that it is worth reading again."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from airunner.domain.background import WakeUp

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from airunner.domain.clock import Clock


class Bell:
    """Counts its rings. Note the count, look, then wait for one beyond it: no ring is missed."""

    def __init__(self, clock: Clock) -> None:
        self._wake_up = WakeUp(clock)
        self.rings = 0
        self.listeners = 0

    def ring(self) -> None:
        """Wake everybody who waits."""
        self.rings += 1
        self._wake_up.notify()

    async def wait(self, noted: int, until: int) -> bool:
        """Wait for a ring after the noted count, at most until an instant; return whether there was one."""
        while self.rings == noted:
            if not await self._wake_up.wait(until):
                return False
        return True


class Notifier:
    """The bells of this process, by name; one exists while somebody listens."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._bells: dict[str, Bell] = {}

    @contextmanager
    def listen(self, name: str) -> Iterator[Bell]:
        """Give the bell of a name, for as long as the block lasts."""
        bell = self._bells.setdefault(name, Bell(self._clock))
        bell.listeners += 1
        try:
            yield bell
        finally:
            bell.listeners -= 1
            if not bell.listeners:
                del self._bells[name]

    @property
    def heard(self) -> bool:
        """Whether anybody listens to any bell; while nobody does, there is no need to ring."""
        return bool(self._bells)

    @property
    def jobs(self) -> Sequence[str]:
        """The jobs that somebody listens to."""
        return list(dict.fromkeys(name.partition(":")[2] for name in self._bells))

    def ring(self, name: str) -> None:
        """Ring a bell if anybody listens."""
        bell = self._bells.get(name)
        if bell:
            bell.ring()

    def ring_all(self) -> None:
        """Ring every bell, so that everybody looks again."""
        for bell in list(self._bells.values()):
            bell.ring()


def job_bell(job_id: str) -> str:
    """The bell of what watchers of a job see: new events, its end."""
    return f"job:{job_id}"


def holder_bell(job_id: str) -> str:
    """The bell of what the holder of a job must know: cancelled, watched."""
    return f"holder:{job_id}"
