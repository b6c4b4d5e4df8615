"""The one background loop: a piece of work that is done again and again, whatever it runs into."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from airunner import telemetry
from airunner.domain.errors import AirunnerError, error_text
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from airunner.domain.clock import Clock

_log = get_logger("airunner.periodic")

STOP_SECONDS: Final = 2.0
"""How long `stop` waits for a turn that was cancelled, by the machine's clock."""

READING_SECONDS: Final = 60.0
"""How long a turn may take that only reads."""
MISSED_TURNS: Final = 3
LEAST_PATIENCE_SECONDS: Final = 120.0
"""How long the end of a turn may be awaited at least, however short the interval is."""


class Periodic:
    """Calls `run_once` again and again, from `start` to `stop`, with a pause after each turn.

    A turn that raises is logged as `failure_event`, by default the name and `_failed`, and counts as a turn;
    the next one follows after the interval, or after `failure_pause_seconds` where that is given. The first
    turn comes after the first pause, or without one if `at_once` is set. A turn that takes longer than
    `turn_seconds` of the machine's clock, where that is given, is cancelled and counts as one that failed:
    for turns that only read, and may wait for many answers that do not come.
    """

    def __init__(
        self,
        name: str,
        run_once: Callable[[], Awaitable[object]],
        *,
        clock: Clock,
        interval_seconds: float | Callable[[], float],
        failure_event: str = "",
        failure_pause_seconds: float | None = None,
        turn_seconds: float | None = None,
        at_once: bool = False,
    ) -> None:
        self.name = name
        self.last_turn_at = clock.monotonic()
        """When a turn last ended by the monotonic clock, in whatever way; until then, when it was started."""
        self.last_success_at = self.last_turn_at
        """When a turn last ended without an error, by the same clock; until then, when it was started."""
        self.last_error = ""
        """Why the last turn was not a good one; empty if it was."""
        self._run_once = run_once
        self._clock = clock
        self._interval_seconds = interval_seconds
        self._failure_event = failure_event or f"{name}_failed"
        self._failure_pause_seconds = failure_pause_seconds
        self._turn_seconds = turn_seconds
        self._at_once = at_once
        self._pause_seconds = 0.0
        self._task: asyncio.Task[None] | None = None
        self._stop_gauge: Callable[[], None] | None = None
        self._stopped = False

    @property
    def healthy(self) -> bool:
        """Whether the loop has not ended by itself and its turns come to an end, failed ones included.

        It is not once no turn has ended for three pauses, or for two minutes where that is longer.
        """
        if self._task is None:
            return True
        patience = max(MISSED_TURNS * self._pause_seconds, LEAST_PATIENCE_SECONDS)
        return not self._task.done() and self._seconds_since(self.last_turn_at) <= patience

    def start(self) -> None:
        """Begin, in a task of its own. Call it once."""
        self.last_turn_at = self.last_success_at = self._clock.monotonic()
        self._pause_seconds = self._interval()
        self._stop_gauge = telemetry.loop_last_success_age.follow(
            lambda: self._seconds_since(self.last_success_at), self.name
        )
        self._task = asyncio.create_task(self._run(), name=self.name)
        self._task.add_done_callback(self._ended)

    async def stop(self) -> None:
        """End the loop, and return after `STOP_SECONDS` at the latest. Harmless when repeated."""
        self._stopped = True
        task, self._task = self._task, None
        if self._stop_gauge:
            self._stop_gauge()
        if task is None:
            return
        task.cancel()
        await asyncio.wait({task}, timeout=STOP_SECONDS)
        if not task.done():
            self._write_log("loop.abandoned")

    async def _run(self) -> None:
        if self._at_once:
            await self._turn()
        # A turn may have swallowed its cancellation; at least no other one follows.
        while not self._stopped:
            await self._clock.sleep(self._pause_seconds)
            await self._turn()

    async def _turn(self) -> None:
        try:
            async with asyncio.timeout(self._turn_seconds):
                await self._run_once()
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Not the loop was cancelled, but something that its turn waited for.
            self._note_failure(error)
        except Exception as error:  # noqa: BLE001  whatever it is, the next turn comes
            self._note_failure(error)
        else:
            self.last_error = ""
            self.last_success_at = self._clock.monotonic()
            self._pause_seconds = self._interval()
        self.last_turn_at = self._clock.monotonic()

    def _note_failure(self, error: BaseException) -> None:
        self.last_error = error_text(error)
        pause_seconds = self._failure_pause_seconds
        self._pause_seconds = self._interval() if pause_seconds is None else pause_seconds
        self._write_log(self._failure_event, error)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Say so when the loop is over and nobody stopped it."""
        if task is self._task:
            self._write_log("loop.ended", None if task.cancelled() else task.exception())

    def _write_log(self, event: str, error: BaseException | None = None) -> None:
        """Log what happened; with a traceback where nobody thought of the error. No log line ends a loop."""
        surprise = None if isinstance(error, AirunnerError) else error
        with suppress(Exception):
            _log.warning(
                event, loop=self.name, error=error_text(error) if error else "cancelled", exc_info=surprise
            )

    def _interval(self) -> float:
        interval = self._interval_seconds
        return interval() if callable(interval) else interval

    def _seconds_since(self, instant: int) -> float:
        return (self._clock.monotonic() - instant) / 1000
