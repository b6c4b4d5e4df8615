"""Whether jobs may be dequeued that end in PostgreSQL: not while it does not answer."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from airunner.domain.errors import error_text
from airunner.outbox.schema import GENERATION_QUEUE
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Collection

    from airunner.domain.clock import Clock
    from airunner.generation.sessions import SessionTable

_log = get_logger("airunner.generation")

_FRESH_MS: Final = 1_000
_ANSWER_SECONDS: Final = 2.0


class DatabaseGate:
    """Closes the queue of generation while PostgreSQL does not answer; made on the loop it is asked on.

    An answer counts for a second, so that many dequeues cost one question. Once the gate is closed nobody
    waits for it: PostgreSQL is asked beside those who serve other queues meanwhile.
    """

    def __init__(self, sessions: SessionTable, clock: Clock) -> None:
        self._sessions = sessions
        self._clock = clock
        self._closed: Collection[str] = ()
        self._answered_at: int | None = None
        self._asking: asyncio.Task[None] | None = None

    @property
    def is_closed(self) -> bool:
        """Whether PostgreSQL did not answer when it was last asked."""
        return bool(self._closed)

    async def closed_queues(self) -> Collection[str]:
        """Return the queues of which nothing is to be dequeued now; raises nothing of PostgreSQL's."""
        if self._answered_at is not None and self._clock.monotonic() - self._answered_at < _FRESH_MS:
            return self._closed
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask(), name="generation.gate")
        if not self._closed:
            await asyncio.wait({self._asking})
        return self._closed

    async def close(self) -> None:
        """End a question that is still open."""
        if self._asking:
            self._asking.cancel()
            await asyncio.wait({self._asking})

    async def _ask(self) -> None:
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                await self._sessions.answers()
        except Exception as error:  # noqa: BLE001  whatever it is, no verdict could be written now
            if not self._closed:
                with suppress(Exception):
                    _log.warning("worker.loop_error", error=error_text(error))
            self._closed = (GENERATION_QUEUE,)
        else:
            self._closed = ()
        self._answered_at = self._clock.monotonic()
