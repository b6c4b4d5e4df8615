"""The loop of async handlers, in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from contextvars import Context as Variables
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

import uvloop

from airunner.domain.errors import class_and_message
from airunner.handlers.loop_callbacks import LoopCallbacks
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_log = get_logger("airunner.handlers")

# A shared task ends after so many calls, so that other tasks of the loop have their turn.
_CALLS_PER_TASK: Final = 100
# Every call sets one variable: `current_output`.
_VARIABLES_OF_A_CALL: Final = 1


class AsyncCall(Protocol):
    """A call that is run once, and that raises nothing."""

    async def run_async(self, task: asyncio.Task[Any] | None) -> None:
        """Run it in the current task, which is this one."""


C = TypeVar("C", bound=AsyncCall)


class HandlerLoop(Generic[C]):
    """Runs calls at the same time, each as if it had a task of its own.

    Most small handlers never wait, and a task costs more than they do: so a shared task runs calls one after
    the other. As soon as one waits the task is its own, and the next shared task goes on with those behind
    it. A call that set context variables is the last of its task, so that no other call sees them.

    `on_ended` is called with each call that has ended, in the thread of the loop.
    """

    def __init__(self, on_ended: Callable[[C], None]) -> None:
        self._on_ended = on_ended
        self._waiting: deque[C] = deque()
        self._shared_tasks = 0
        self._closing = False
        self._loop = uvloop.new_event_loop()
        self._callbacks = LoopCallbacks(self._loop)
        threading.Thread(target=self._run, name="airunner-async-handlers", daemon=True).start()

    def begin(self, calls: Iterable[C]) -> None:
        """Run calls soon, in their order. From any thread."""
        self._waiting.extend(calls)
        self._callbacks.post(self._open_shared_task)

    def close(self) -> None:
        """Cancel what runs, and end."""
        self._closing = True
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _open_shared_task(self) -> None:
        self._shared_tasks += 1
        if self._waiting:
            self._loop.create_task(self._run_shared_task(self._shared_tasks), context=Variables())

    async def _run_shared_task(self, number: int) -> None:
        task = asyncio.current_task()
        # When that runs, this task has ended, or one of its calls waits.
        self._loop.call_soon(self._open_shared_task)
        for _ in range(_CALLS_PER_TASK):
            if not self._waiting:
                return
            call = self._waiting.popleft()
            await call.run_async(task)
            self._on_ended(call)
            if self._shared_tasks != number or len(copy_context()) > _VARIABLES_OF_A_CALL:
                return

    def _survive(self) -> None:
        """Run the loop; a `sys.exit` in a task that a handler started ends that task alone."""
        try:
            self._loop.run_forever()
        except BaseException as error:  # noqa: BLE001  SystemExit above all: the loop is not one handler's
            _log.error("handlers.loop_interrupted", error=class_and_message(error))

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        while not self._closing:
            self._survive()
        tasks: set[asyncio.Task[Any]] = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.close()
