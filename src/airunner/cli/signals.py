"""Shutdown by signals, the same for every command that lives long: first in good order, then at once.

Signals are taken by a thread of their own, from the pipe into which the interpreter writes their numbers: so
the second one ends the process also when its event loop stands still.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

LAST_MOMENT_SECONDS: Final = 0.8
"""What is left for `kill` after the second signal, before the process ends in any case."""
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def on_shutdown_signals(
    stop: Callable[[], object],
    kill: Callable[[], object],
    *,
    numbers: Sequence[signal.Signals] = _SIGNALS,
    end_process: Callable[[int], object] = os._exit,
) -> Callable[[], None]:
    """Call `stop` at the first SIGTERM, SIGINT or SIGHUP, or other `numbers`, and `kill` at each later one.

    Both run on the running loop, between its other callbacks; an error of one is logged by the loop, and the
    next signal is still answered. Within a second of the second signal the process ends, whatever hangs. A
    SIGHUP that was ignored when the process began, as under nohup, stays ignored. Call it on the main thread;
    what it returns takes everything back.
    """
    loop = asyncio.get_running_loop()
    taken = [number for number in numbers if number != signal.SIGHUP or _minds(number)]
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    before = [(number, signal.signal(number, _ignore)) for number in taken]
    woken_before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    answers = _Answers(loop, stop, kill, end_process)
    threading.Thread(
        target=answers.take, args=(reader, frozenset(taken)), name="signals", daemon=True
    ).start()

    def undo() -> None:
        signal.set_wakeup_fd(woken_before)
        for number, handler in before:
            signal.signal(number, handler)
        os.close(writer)

    return undo


class _Answers:
    """What each signal leads to, counted on the thread that takes them."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        stop: Callable[[], object],
        kill: Callable[[], object],
        end_process: Callable[[int], object],
    ) -> None:
        self._loop = loop
        self._stop = stop
        self._kill = kill
        self._end_process = end_process
        self._count = 0

    def take(self, reader: int, numbers: frozenset[int]) -> None:
        """Answer signals until the pipe ends."""
        while received := os.read(reader, 64):
            for number in received:
                if number in numbers:
                    self._answer(number)
        os.close(reader)

    def _answer(self, number: int) -> None:
        self._count += 1
        if self._count == 2:
            last_moment = threading.Timer(LAST_MOMENT_SECONDS, self._end_process, (128 + number,))
            last_moment.daemon = True
            last_moment.start()
        # A loop that is closed has nothing left to stop.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._stop if self._count == 1 else self._kill)


def _minds(number: signal.Signals) -> bool:
    return signal.getsignal(number) is not signal.SIG_IGN


def _ignore(_number: int, _frame: object) -> None:
    """Stand in for the default, which would end the process; the number is on its way through the pipe."""
