"""Deadlines of many calls, with one timer for all of them: most calls are over long before theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from airunner.client.http.exchange import WholeAnswer


class Deadlines:
    """Lets answers expire that take too long; the timer is set for the earliest of them, or before it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._due: dict[WholeAnswer, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    def add(self, answer: WholeAnswer, due_at: float) -> None:
        """Let an answer expire at an instant of the loop's clock, unless it is removed before."""
        self._due[answer] = due_at
        if self._timer is None or due_at < self._timer_at:
            self._set(due_at)

    def remove(self, answer: WholeAnswer) -> None:
        """Forget an answer that is over. The timer stays: the next call most likely needs it."""
        self._due.pop(answer, None)

    def close(self) -> None:
        """Let nothing expire any more."""
        self._due.clear()
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def _set(self, due_at: float) -> None:
        if self._timer:
            self._timer.cancel()
        self._timer, self._timer_at = self._loop.call_at(due_at, self._ring), due_at

    def _ring(self) -> None:
        # A loop may be a little early; what it rang for is due all the same.
        now = max(self._loop.time(), self._timer_at)
        self._timer = None
        for answer in [answer for answer, due_at in self._due.items() if due_at <= now]:
            del self._due[answer]
            answer.expire()
        if self._due:
            self._set(min(self._due.values()))
