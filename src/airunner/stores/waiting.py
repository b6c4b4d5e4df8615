"""Dequeues that found nothing, in the order of their arrival, and whom it is worth looking again for."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from airunner.stores.records import Demand

T = TypeVar("T")
News: TypeAlias = "dict[str, set[str | None]]"
"""By queue, the keys of the handlers of jobs."""


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

    def wants(self, queue: str, handler_key: str) -> bool:
        """Return whether anybody waits for such a job."""
        return any(demand.can_do(handler_key) for demand in self._by_queue.get(queue, ()))

    def empty_out(self) -> Iterator[T]:
        """Take everybody out."""
        for demand in list(self._parked):
            answer = self.leave(demand)
            if answer is not None:
                yield answer


class Readiness:
    """Where something may have become claimable, and what was looked for in vain, within one transaction.

    So a job wakes only those who can do it, and of many that are alike only the first looks in vain. Jobs
    are told apart by the key of their handler; None stands for any.
    """

    def __init__(self) -> None:
        self._news: News = {}
        self._in_vain: News = {}

    def note(self, queue: str, handler_keys: Iterable[str | None] = (None,)) -> None:
        """Note that jobs of these handlers may be claimable."""
        self._news.setdefault(queue, set()).update(handler_keys)

    def begin(self) -> None:
        """Begin to look for those who wait: what was looked for in vain before may have come since."""
        self._in_vain.clear()

    def note_others(self, queue: str) -> None:
        """Note that a claim made jobs ready which it may not have taken: all who looked before look again."""
        self.note(queue)
        self._in_vain.pop(queue, None)

    def take_news(self) -> News:
        """Return what was noted since the last call and not looked for in vain; empty if there is nothing."""
        news, self._news = self._news, {}
        self.prune(news)
        return news

    def concerns(self, demand: Demand, news: News) -> bool:
        """Return whether it is worth looking for a demand."""
        return any(
            queue in news and self._may_serve(queue, demand.abilities, news[queue]) for queue in demand.queues
        )

    def note_in_vain(self, demand: Demand, news: News) -> None:
        """Note that nothing was found for a demand, and take out of the news what nobody can find either."""
        for queue in demand.queues:
            self.note_exhausted(queue, demand.abilities)
        self.prune(news)

    def note_exhausted(self, queue: str, abilities: frozenset[str] | None) -> None:
        """Note that a queue has nothing more for those who can do this, or at all if that is None."""
        self._in_vain.setdefault(queue, set()).update((None,) if abilities is None else abilities)

    def prune(self, news: News) -> None:
        """Take out of the news what was looked for in vain."""
        for queue in list(news):
            self._prune(news, queue)

    def _prune(self, news: News, queue: str) -> None:
        known = self._in_vain.get(queue, set())
        if queue in news:
            news[queue] -= known
            if None in known or not news[queue]:
                del news[queue]

    def _may_serve(self, queue: str, abilities: frozenset[str] | None, handler_keys: set[str | None]) -> bool:
        if abilities is None:
            return True
        if None in handler_keys:
            return not abilities <= self._in_vain.get(queue, set())
        return not abilities.isdisjoint(handler_keys)
