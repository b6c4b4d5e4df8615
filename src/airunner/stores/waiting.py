"""Dequeues that found nothing, in the order of their arrival."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from airunner.stores.records import Demand

T = TypeVar("T")


class WaitingRoom(Generic[T]):
    """Parked demands, each with what it takes to answer it. Not thread-safe: one owner."""

    def __init__(self) -> None:
        self._tickets = itertools.count()
        self._parked: dict[Demand, tuple[int, T]] = {}
        self._by_queue: dict[str, dict[Demand, None]] = {}

    def __contains__(self, demand: object) -> bool:
        """Return whether a demand is parked."""
        return demand in self._parked

    @property
    def queues(self) -> Collection[str]:
        """The queues that somebody waits for."""
        return self._by_queue.keys()

    def park(self, demand: Demand, answer: T, *, first: bool = False) -> None:
        """Let a demand wait, behind all others; or before them, as one that has been here."""
        self._parked[demand] = (-next(self._tickets) if first else next(self._tickets), answer)
        for queue in demand.queues:
            self._by_queue.setdefault(queue, {})[demand] = None

    def leave(self, demand: Demand) -> T | None:
        """Take a demand out; None when it is not here."""
        entry = self._parked.pop(demand, None)
        if entry is None:
            return None
        for queue in demand.queues:
            waiting = self._by_queue[queue]
            waiting.pop(demand, None)
            if not waiting:
                del self._by_queue[queue]
        return entry[1]

    def waiting_for(self, queues: Collection[str]) -> Iterator[Demand]:
        """Yield the demands that want any of the queues, in the order of arrival."""
        found = {demand for queue in queues for demand in self._by_queue.get(queue, ())}
        yield from sorted(found, key=lambda demand: self._parked[demand][0])

    def empty_out(self) -> Iterator[T]:
        """Take everybody out."""
        for demand in list(self._parked):
            answer = self.leave(demand)
            if answer is not None:
                yield answer
