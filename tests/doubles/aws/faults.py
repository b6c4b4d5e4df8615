"""What goes wrong between a client and AWS: scripted or by chance, from one seed."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ANY: Final = "*"
"""Every operation."""


class FaultKind(StrEnum):
    """The ways in which a call goes wrong."""

    THROTTLE = "throttle"
    """Refused for its rate; not performed."""
    CONFLICT = "conflict"
    """A write of DynamoDB met another transaction on its item; not performed."""
    SERVER_ERROR = "server-error"
    """Answered with 500; not performed."""
    RESET = "reset"
    """The connection breaks; not performed."""
    EXECUTE_THEN_DROP = "execute-then-drop"
    """Performed, then the connection breaks in place of an answer."""
    EXECUTE_THEN_HOLD = "execute-then-hold"
    """Performed, then silence until the client leaves or `release`."""
    DELAY = "delay"
    """Performed `seconds` later, or once `release` is called."""
    UNPROCESSED = "unprocessed"
    """Part of a batch is performed, the rest named in UnprocessedItems, UnprocessedKeys or Failed."""
    INDEX_LAG = "index-lag"
    """A query of an index shows items as they were before the writes of the last `requests` calls."""
    STALE_READ = "stale-read"
    """The same for reads of a table that do not ask for consistency, and for DescribeInstances."""
    EMPTY_PAGE = "empty-page"
    """A list of instances or parameters goes on after a page with nothing on it."""
    FALSE_EMPTY = "false-empty"
    """ReceiveMessage finds nothing, whatever there is."""
    SHORT_POLL_MISS = "short-poll-miss"
    """ReceiveMessage that does not wait asks a few servers of SQS, and finds nothing on them."""
    DUPLICATE = "duplicate"
    """What ReceiveMessage returns is delivered again with the next one, even if it was deleted meanwhile."""
    REORDER = "reorder"
    """ReceiveMessage returns what is in the queue in random order."""


LAGS: Final = frozenset({FaultKind.INDEX_LAG, FaultKind.STALE_READ})


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One way in which calls of one operation go wrong, and how often."""

    operation: str = ANY
    kind: FaultKind
    probability: float = 1.0
    seconds: float = 0.0
    """For DELAY; nought is until `release`."""
    requests: int | None = None
    """For the lags: how many calls they reach back; None is until `release`."""

    def concerns(self, operation: str) -> bool:
        """Tell whether it is about an operation."""
        return self.operation in {ANY, operation}


class Faults:
    """The faults of one proxy. All chance is from `random`: a seed and an order of calls give one story."""

    def __init__(self, seed: int = 0, on_release: Callable[[], None] = lambda: None) -> None:
        self.random = random.Random(seed)
        self.released = asyncio.Event()
        self._on_release = on_release
        self._standing: list[Fault] = []
        self._scripted: list[Fault] = []
        self._calls_to_live: int | None = None
        self._last_is_executed = False

    def add(self, fault: Fault) -> None:
        """Let calls go wrong by chance, from now until `clear`."""
        self._standing.append(fault)

    def next(
        self,
        operation: str,
        kind: FaultKind,
        *,
        times: int = 1,
        seconds: float = 0.0,
        requests: int | None = None,
    ) -> None:
        """Let the next calls of an operation go wrong for certain; one script after another."""
        fault = Fault(operation=operation, kind=kind, seconds=seconds, requests=requests)
        self._scripted.extend([fault] * times)

    def clear(self) -> None:
        """Let nothing go wrong any more; what is held is released."""
        self._standing.clear()
        self._scripted.clear()
        self.revive()
        self.release()

    def release(self) -> None:
        """Let held answers go, delayed calls begin, and lagging reads catch up with all writes so far."""
        self._on_release()
        self.released.set()
        self.released = asyncio.Event()

    def die_after(self, calls: int, *, executed: bool = False) -> None:
        """Let the replica die at its call number `calls` from now, 1 being the next: from there on, all fail.

        That call never happens; or, `executed`, it happens and nobody is left to hear the answer.
        """
        self._calls_to_live = calls
        self._last_is_executed = executed

    def revive(self) -> None:
        """Undo `die_after`."""
        self._calls_to_live = None

    @property
    def is_dead(self) -> bool:
        """Whether the replica has died."""
        return self._calls_to_live == 0

    @property
    def has_lags(self) -> bool:
        """Whether reads may have to show what was before a write."""
        return any(fault.kind in LAGS for fault in (*self._standing, *self._scripted))

    def draw(self, operation: str) -> dict[FaultKind, Fault]:
        """Say what befalls this call, and count it."""
        if (verdict := self._death()) is not None:
            return {verdict: Fault(kind=verdict)}
        return {fault.kind: fault for fault in self._befalling(operation)}

    def _death(self) -> FaultKind | None:
        if self._calls_to_live is None:
            return None
        was_alive = self._calls_to_live > 0
        self._calls_to_live = max(0, self._calls_to_live - 1)
        if self._calls_to_live > 0:
            return None
        return FaultKind.EXECUTE_THEN_DROP if was_alive and self._last_is_executed else FaultKind.RESET

    def _befalling(self, operation: str) -> Iterator[Fault]:
        scripted = next((fault for fault in self._scripted if fault.concerns(operation)), None)
        for fault in self._standing:
            if fault.concerns(operation) and self.random.random() < fault.probability:
                yield fault
        if scripted is not None:
            self._scripted.remove(scripted)
            yield scripted
