"""A thread for what may wait for a disk: one that hangs stops neither the loop nor the end of the process."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import TypeAlias, TypeVar

T = TypeVar("T")

_Call: TypeAlias = Callable[[], None]


class DiskThread:
    """Calls functions one after the other, in the order in which they were given, on a daemon thread.

    The thread begins with the first call. Nobody waits for it at the end of the process, other than for the
    threads of an executor.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def call(self, function: Callable[[], T]) -> asyncio.Future[T]:
        """Queue a call; return the future of its result or error. Cancelling that does not undo the call."""
        loop = asyncio.get_running_loop()
        result: asyncio.Future[T] = loop.create_future()

        def settle(value: T | None, error: BaseException | None) -> None:
            if result.done():
                return
            if error is None:
                result.set_result(value)  # type: ignore[arg-type]  # without an error it is a T
            else:
                result.set_exception(error)

        def run() -> None:
            value, error = None, None
            try:
                value = function()
            except BaseException as raised:  # noqa: BLE001  whatever it is, whoever called learns of it
                error = raised
            # A loop that is closed waits for nothing any more.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(settle, value, error)

        self._calls.put(run)
        try:
            self._ensure_thread()
        except RuntimeError:  # no more threads
            result.set_exception(OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)))
        return result

    def close(self) -> None:
        """End the thread after the calls that were given. Does not wait; a later call begins another one."""
        if self._thread:
            self._thread = None
            self._calls.put(None)

    def _ensure_thread(self) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._take, name=self._name, daemon=True)
            thread.start()
            self._thread = thread

    def _take(self) -> None:
        while call := self._calls.get():
            call()
