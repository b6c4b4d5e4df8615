"""Shutdown by signals, the same for every command that lives long: first in good order, then at once."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

SHUTDOWN_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


def on_shutdown_signals(stop: Callable[[], object], kill: Callable[[], object]) -> None:
    """Call `stop` at the first SIGTERM or SIGINT and `kill` at each later one, until the event loop ends.

    Both run on the running loop, between its other callbacks; an error of one is logged by the loop, and the
    next signal is still answered.
    """
    stopping = False

    def answer() -> None:
        nonlocal stopping
        if stopping:
            kill()
        else:
            stopping = True
            stop()

    loop = asyncio.get_running_loop()
    for number in SHUTDOWN_SIGNALS:
        loop.add_signal_handler(number, answer)
