"""Calling handlers beside the worker's loop: sync ones in threads, async ones on a loop of their own.

A thread may leave a call to another process, and only wait for it there.
"""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context as Variables
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from airunner.domain.errors import class_and_message
from airunner.handlers.arguments import result_json
from airunner.handlers.busy_threads import BusyThreads
from airunner.handlers.capture import current_output
from airunner.handlers.context import Context, OutputSink
from airunner.handlers.loop import HandlerLoop
from airunner.handlers.pacing import run_paced

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from airunner.handlers.loop_callbacks import LoopCallbacks
    from airunner.handlers.registry import Handler

K = TypeVar("K")
S = TypeVar("S", bound=OutputSink)


class CallControl(Protocol):
    """Reaches a call that runs in another process. Does not block, and raises nothing."""

    def stop(self) -> None:
        """Tell the handler to end."""

    def kill(self) -> None:
        """End its process."""


class HandlerCall(Generic[K, S]):
    """One call of a handler with a payload.

    `key` is whatever the caller wants to find again when the call has ended. `context` may be None for a
    handler that takes none (see `Arguments.wants_context`). Made and settled on the worker's loop, run where
    the handler belongs.
    """

    __slots__ = (
        *("_control", "_done", "_failure", "_killed", "_result", "_task"),
        *("context", "handler", "key", "output", "payload_json", "settled", "stopped"),
    )

    def __init__(
        self, key: K, handler: Handler, payload_json: str, *, output: S, context: Context | None
    ) -> None:
        self.key = key
        self.output = output
        self.settled = False
        """Whether the worker's loop knows that the handler has ended."""
        self.handler = handler
        self.payload_json = payload_json
        self.context = context
        self.stopped = False
        """Whether the handler was asked to end."""
        self._killed = False
        self._control: CallControl | None = None
        self._done: asyncio.Future[str] | None = None
        self._result = ""
        self._failure: BaseException | None = None
        self._task: asyncio.Task[Any] | None = None

    @property
    def is_async(self) -> bool:
        """Whether it belongs on the loop of handlers."""
        return self.handler.is_async

    @property
    def failed(self) -> bool:
        """Whether it has ended by an error."""
        return self._failure is not None

    @property
    def error(self) -> Exception | None:
        """The error that it ended with; what is no ordinary one is a HandlerEnded."""
        error = self._failure
        if error is None or (isinstance(error, Exception) and not isinstance(error, StopIteration)):
            return error
        return _ended_by(error)

    @property
    def result(self) -> str:
        """What the handler returned, as JSON; empty for None."""
        return self._result

    def done(self) -> asyncio.Future[str]:
        """Return a future of the result or the error; a new one if the last was cancelled."""
        if self._done is None or self._done.cancelled():
            self._done = asyncio.get_running_loop().create_future()
            if self.settled:
                self._resolve(self._done)
        return self._done

    def stop(self) -> None:
        """Ask the handler to end: `ctx.cancelled` is set, and an async one is cancelled at its next await.

        A thread cannot be stopped: it is over when it returns.
        """
        self.stopped = True
        if self.context:
            self.context.stopped.set()
        if self._control:
            self._control.stop()
        task = self._task
        if task and not task.get_loop().is_closed():
            task.get_loop().call_soon_threadsafe(self._cancel)

    def kill(self) -> None:
        """End the handler at once if it runs in another process; elsewhere nothing can."""
        self._killed = True
        if self._control:
            self._control.kill()

    def attach(self, control: CallControl) -> None:
        """Let `stop` and `kill` reach the call in another process, also if they came before."""
        self._control = control
        if self.stopped:
            control.stop()
        if self._killed:
            control.kill()

    def end(self, failure: Exception | None, result: str = "") -> None:
        """Take how the handler ended in another process."""
        self._failure, self._result = failure, result

    def settle(self) -> None:
        """Take note, on the worker's loop, that the handler has ended."""
        self.settled = True
        if self._done and not self._done.done():
            self._resolve(self._done)

    def run(self) -> None:
        """Call a sync handler, in the current thread."""
        current_output.set(self.output)
        try:
            self._raise_if_stopped()
            self._result = result_json(self.handler.function(*self._arguments()))
        except BaseException as error:  # noqa: BLE001  whatever it is, it is the end of this handler alone
            self._failure = error

    async def run_async(self, task: asyncio.Task[Any] | None) -> None:
        """Call an async handler, in the current task, which is this one."""
        current_output.set(self.output)
        self._task = task
        try:
            self._raise_if_stopped()
            called = self.handler.function(*self._arguments())
            self._result = result_json(
                await (run_paced(called, self.output.room) if type(called) is CoroutineType else called)
            )
        except BaseException as error:  # noqa: BLE001  whatever it is, it is the end of this handler alone
            self._failure = error
        self._task = None

    def _raise_if_stopped(self) -> None:
        if self.stopped:
            raise asyncio.CancelledError

    def _cancel(self) -> None:
        # On the loop of the handler: so the task is at an await of this call, or with another call by now.
        if self._task:
            self._task.cancel()

    def _arguments(self) -> list[object]:
        return self.handler.arguments.bind(self.payload_json, self.context)

    def _resolve(self, done: asyncio.Future[str]) -> None:
        error = self.error
        if error is None:
            done.set_result(self._result)
        else:
            done.set_exception(error)


class HandlerEnded(Exception):
    """A handler ended by what is no ordinary error: it was cancelled, or left the interpreter."""


C = TypeVar("C", bound=HandlerCall[Any, Any])


class HandlerCalls(Generic[C]):
    """Runs calls of handlers, so many sync ones at once; a handler that blocks delays no heartbeat.

    `on_ended` is called with the calls that have ended, many at once, on the loop of `callbacks`. `run_sync`
    runs a sync call to its end in the current thread; what it raises fails the call. Without it the call runs
    in that thread.
    """

    def __init__(
        self,
        *,
        threads: int,
        callbacks: LoopCallbacks,
        on_ended: Callable[[Sequence[C]], None],
        run_sync: Callable[[C], None] | None = None,
    ) -> None:
        self._on_ended = on_ended
        self._run_sync = run_sync or _run
        self._callbacks = callbacks
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="airunner-handler")
        self._busy: BusyThreads[C] = BusyThreads()
        self._ended: deque[C] = deque()
        self._posted = False
        self._handler_loop: HandlerLoop[C] | None = None

    def begin(self, calls: Sequence[C]) -> None:
        """Run calls soon. Each is reported to `on_ended` once."""
        asynchronous = [call for call in calls if call.is_async]
        if asynchronous:
            if self._handler_loop is None:
                self._handler_loop = HandlerLoop(self._end)
            self._handler_loop.begin(asynchronous)
        for call in calls if len(asynchronous) < len(calls) else ():
            if not call.is_async:
                self._threads.submit(Variables().run, self._run_in_thread, call)

    def processor_times(self) -> list[tuple[C, float]]:
        """Return the last call of each thread, and its seconds of CPU time since the last look."""
        return self._busy.look()

    def close(self) -> None:
        """Begin no more; threads that still run are left to themselves."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._handler_loop:
            self._handler_loop.close()

    def _run_in_thread(self, call: C) -> None:
        self._busy.enter(call)
        try:
            self._run_sync(call)
        except Exception as error:  # noqa: BLE001  whatever it is, nobody shall wait for this call for ever
            call.end(error)
        self._end(call)

    def _end(self, call: C) -> None:
        """Post that a call has ended, from any thread; those that end meanwhile go with it."""
        self._ended.append(call)
        if not self._posted:
            self._posted = True
            self._callbacks.post(self._settle)

    def _settle(self) -> None:
        # Before anything is taken: what ends from here on is posted anew.
        self._posted = False
        calls = [self._ended.popleft() for _ in range(len(self._ended))]
        for call in calls:
            call.settle()
        self._on_ended(calls)


def _run(call: HandlerCall[Any, Any]) -> None:
    call.run()


def _ended_by(error: BaseException) -> HandlerEnded:
    ended = HandlerEnded(f"the handler ended by {class_and_message(error)}")
    ended.__cause__ = error
    return ended
