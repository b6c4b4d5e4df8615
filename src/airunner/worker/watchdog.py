"""Telling what keeps the worker's event loop from its turns: without turns, jobs are not kept."""

from __future__ import annotations

import faulthandler
import os
import sys
import time
from typing import TYPE_CHECKING, Final, Protocol

from airunner import telemetry
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from airunner.domain.clock import Clock, Timer

_log = get_logger("airunner.worker")

_BEATS: Final = 5
_LEAST_PAUSE_SECONDS: Final = 0.1
_LONGEST_PAUSE_SECONDS: Final = 5.0


class StackDumps(Protocol):
    """Shows what all threads do, at a time at which the interpreter may be nobody's but one thread's."""

    def arm(self, seconds: float) -> None:
        """Show the stacks so many seconds from now, once, unless called again before. Never raises."""

    def close(self) -> None:
        """Show nothing more."""


class StandardErrorStacks:
    """Implements StackDumps: a thread of `faulthandler`, which needs no GIL, writes to standard error.

    There is one for the whole process. Where standard error is closed it writes nothing; where nobody reads
    it, what does not fit is lost: neither may hold up a worker.
    """

    def __init__(self) -> None:
        self._descriptor = _standard_error()

    def arm(self, seconds: float) -> None:
        """Show the stacks so many seconds from now, once, unless this is called again before."""
        if self._descriptor is not None:
            try:
                faulthandler.dump_traceback_later(seconds, file=self._descriptor)
            except (OSError, RuntimeError, ValueError) as error:  # no thread for it, for one
                _log.warning("watchdog.failed", error=str(error))

    def close(self) -> None:
        """Show nothing more."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            faulthandler.cancel_dump_traceback_later()
            os.close(descriptor)


class LoopWatchdog:
    """Has the stacks shown once the loop stood still for a third of the visibility of its jobs.

    A beat of the loop puts that off again and again. The first beat after a standstill logs how long it was,
    and what `suspects` returns: it is called with every beat, with the seconds since the one before.
    """

    def __init__(
        self,
        stacks: StackDumps | None,
        clock: Clock,
        *,
        visibility_seconds: float,
        suspects: Callable[[float], Sequence[str]],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stacks = stacks
        self._clock = clock
        self._limit_seconds = visibility_seconds / 3
        self._suspects = suspects
        self._monotonic = monotonic
        self._last_beat = 0.0
        self._due_at = 0.0
        self._timer: Timer | None = None

    def start(self) -> None:
        """Begin to watch the running loop, until `stop`."""
        self._last_beat = self._monotonic()
        self._suspects(0)
        self._wait()

    def narrow(self, visibility_seconds: float) -> None:
        """Take note of the visibility of a job in hand; the shortest counts from now on."""
        if visibility_seconds / 3 < self._limit_seconds:
            self._limit_seconds = visibility_seconds / 3
            if self._timer:
                self._timer.cancel()
                self._wait()

    def stop(self) -> None:
        """Watch no longer. Idempotent."""
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if self._stacks:
            self._stacks.close()

    def _wait(self) -> None:
        pause = min(max(self._limit_seconds / _BEATS, _LEAST_PAUSE_SECONDS), _LONGEST_PAUSE_SECONDS)
        self._due_at = self._monotonic() + pause
        self._timer = self._clock.call_at(self._clock.now() + round(1000 * pause), self._beat)
        if self._stacks:
            self._stacks.arm(self._limit_seconds)

    def _beat(self) -> None:
        now = self._monotonic()
        still_seconds = now - self._last_beat
        self._last_beat = now
        # First of all: nothing that is reported below may be the last beat.
        limit_seconds, due_at = self._limit_seconds, self._due_at
        self._wait()
        telemetry.loop_lag.record(now - due_at)
        suspects = self._suspects(still_seconds)
        if still_seconds >= limit_seconds:
            _log.warning("loop.stood_still", seconds=round(still_seconds, 3), handlers=list(suspects))


def _standard_error() -> int | None:
    """Return a descriptor of our own for standard error on which no write waits; None if it is closed.

    Our own, since the number of one that is closed may become that of another file.
    """
    try:
        number = sys.__stderr__.fileno() if sys.__stderr__ else -1
        flags = os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        return os.open(f"/proc/self/fd/{number}", flags)
    except (OSError, ValueError):
        return _duplicate()


def _duplicate() -> int | None:
    """Return a duplicate, for what cannot be opened anew: a socket, another user's file."""
    try:
        return os.dup(sys.__stderr__.fileno()) if sys.__stderr__ else None
    except (OSError, ValueError):
        return None
