"""Whether a queue may be received from: the jobs table answers, and does not say that the queue is paused."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple

from airunner.domain.background import WakeUp
from airunner.domain.errors import Unavailable

if TYPE_CHECKING:
    from airunner.domain.clock import Clock
    from airunner.stores.aws.rows import Rows

FRESH_MS: Final = 2_000
"""How long an answer of the table holds, and how often a paused queue is looked at."""


class QueueGate:
    """Knows whether queues are paused, as of two seconds ago at most.

    Whoever receives asks first. A message that was received and cannot be claimed has used up one of the
    receives after which SQS puts it aside, so nothing is received while the table does not answer.
    """

    def __init__(self, rows: Rows, real_clock: Clock) -> None:
        self._rows = rows
        self._real_clock = real_clock
        self._known: dict[str, _Pause] = {}
        self._asking: dict[str, asyncio.Task[bool]] = {}
        self._news = WakeUp(real_clock)

    async def is_open(self, queue: str) -> bool:
        """Return whether a queue may be received from; raises what the table raises.

        However many ask, the table is asked once.
        """
        known = self._known.get(queue)
        if known and self._real_clock.monotonic() - known.at < FRESH_MS:
            return not known.is_paused
        asking = self._asking.get(queue)
        if asking is None:
            asking = self._asking[queue] = asyncio.create_task(self._ask(queue), name=f"ask {queue}")
            asking.add_done_callback(lambda task: self._forget(queue, task))
        # Not awaited directly: one who asks and is cancelled would take the others along.
        await asyncio.wait((asking,))
        if asking.cancelled():
            raise Unavailable("the store is closed")
        return not asking.result()

    def note(self, queue: str, *, is_paused: bool) -> None:
        """Keep what was just read or written of a queue."""
        self._known[queue] = _Pause(self._real_clock.monotonic(), is_paused)
        self._news.notify()

    def distrust(self, queue: str) -> None:
        """Have the table asked before anything else is received: it may have stopped answering."""
        self._known.pop(queue, None)

    async def wait(self, queue: str) -> None:
        """Wait until a paused queue is resumed here, or for a while: it may be resumed elsewhere."""
        until = self._real_clock.now() + FRESH_MS
        while (known := self._known.get(queue)) and known.is_paused and await self._news.wait(until):
            pass

    async def close(self) -> None:
        """Stop asking."""
        asking = set(self._asking.values())
        for task in asking:
            task.cancel()
        if asking:
            await asyncio.wait(asking)

    async def _ask(self, queue: str) -> bool:
        is_paused = await self._rows.read_paused(queue)
        self.note(queue, is_paused=is_paused)
        return is_paused

    def _forget(self, queue: str, task: asyncio.Task[bool]) -> None:
        del self._asking[queue]
        if not task.cancelled():
            # Whoever asked has it; where all of them have left, nobody misses it.
            task.exception()


class _Pause(NamedTuple):
    at: int
    is_paused: bool
