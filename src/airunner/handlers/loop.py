"""The loop of async handlers, in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from contextvars import Context as Variables
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

import uvloop

from airunner.handlers.loop_callbacks import LoopCallbacks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

# After so many calls a lane lets others have the loop.
_CALLS_PER_TASK: Final = 100
# The one variable that every call sets.
_OWN_VARIABLES: Final = 1


class AsyncCall(Protocol):
    """Something to be awaited once; it raises nothing."""

    async def run_async(self) -> None:
        """Do it, in the current task."""


C = TypeVar("C", bound=AsyncCall)


class HandlerLoop(Generic[C]):
    """Runs calls at the same time, each as if it had a task of its own.

    Most small handlers never wait, and a task costs more than they do: so a lane, which is one task, runs
    calls one after the other. As soon as one waits the lane is its own, and the next lane goes on with
    those behind it; and one that left variables behind is the last of its lane, so that nobody sees them.
    """

    def __init__(self, over: Callable[[C], None]) -> None:
        self._over = over
        self._waiting: deque[C] = deque()
        self._shared_tasks = 0
        self._loop = uvloop.new_event_loop()
        self._callbacks = LoopCallbacks(self._loop)
        threading.Thread(target=self._run, name="airunner-async-handlers", daemon=True).start()

    def begin(self, calls: Iterable[C]) -> None:
        """Have calls run soon, in their order. From any thread."""
        self._waiting.extend(calls)
        self._callbacks.post(self._open_shared_task)

    def close(self) -> None:
        """Cancel what runs, and end."""
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _open_shared_task(self) -> None:
        self._shared_tasks += 1
        if self._waiting:
            self._loop.create_task(self._run_shared_task(self._shared_tasks), context=Variables())

    async def _run_shared_task(self, number: int) -> None:
        # When this runs, the lane has come to its end, or one of its calls waits.
        self._loop.call_soon(self._open_shared_task)
        for _ in range(_CALLS_PER_TASK):
            if not self._waiting:
                return
            call = self._waiting.popleft()
            await call.run_async()
            self._over(call)
            if self._shared_tasks != number or len(copy_context()) > _OWN_VARIABLES:
                return

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        tasks: set[asyncio.Task[Any]] = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.close()
