"""Running handlers beside the worker's own loop: sync ones in threads, async ones on a loop of their own."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context as Variables
from types import MappingProxyType
from typing import TYPE_CHECKING

from airunner.handlers.arguments import result_json
from airunner.handlers.capture import current_output
from airunner.handlers.context import Context
from airunner.handlers.loop import HandlerLoop
from airunner.handlers.loop_callbacks import LoopCallbacks
from airunner.worker.handlers.output import JobOutput

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from airunner.handlers.registry import Handler
    from airunner.queues.base import Delivery
    from airunner.worker.attempt import Attempt


class HandlerCall:
    """One call of a handler on its way: for a moment by itself, then in the hands of whoever takes it over.

    Made and settled on the worker's loop, run wherever the handler belongs.
    """

    __slots__ = (
        *("_context", "_done", "_failure", "_handler", "_result", "_stopped", "_task"),
        *("delivery", "settled", "started_at", "output", "taken_over"),
    )

    def __init__(
        self, delivery: Delivery[Attempt], handler: Handler, output: JobOutput, started_at: int
    ) -> None:
        self.delivery = delivery
        self.output = output
        self.started_at = started_at
        self.settled = False
        self.taken_over = False
        """Whether somebody waits for its end, and its end is theirs to report."""
        self._handler = handler
        # Not every handler wants to know.
        self._context = _context(delivery, output) if handler.arguments.wants_context else None
        self._stopped = False
        self._done: asyncio.Future[str] | None = None
        self._result = ""
        self._failure: BaseException | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def is_async(self) -> bool:
        """Whether it belongs on the loop of handlers."""
        return self._handler.is_async

    @property
    def failed(self) -> bool:
        """Whether it has ended by an error."""
        return self._failure is not None

    @property
    def result(self) -> str:
        """What the handler returned, as JSON."""
        return self._result

    def done(self) -> asyncio.Future[str]:
        """Return what gets the result, or the error; a new one if the last was cancelled by who waited."""
        if self._done is None or self._done.cancelled():
            self._done = asyncio.get_running_loop().create_future()
            if self.settled:
                self._tell(self._done)
        return self._done

    def stop(self) -> None:
        """Ask the handler to end: `ctx.cancelled` is set, and an async one is cancelled at its next await.

        A thread cannot be stopped: it is over when it returns.
        """
        self._stopped = True
        if self._context:
            self._context.stopped.set()
        task = self._task
        if task and not task.get_loop().is_closed():
            task.get_loop().call_soon_threadsafe(self._cancel)

    def settle(self) -> None:
        """Take note that the handler is over."""
        self.settled = True
        if self._done and not self._done.done():
            self._tell(self._done)

    def run(self) -> None:
        """Call a sync handler, here and now."""
        current_output.set(self.output)
        try:
            self._result = result_json(self._handler.function(*self._arguments()))
        except BaseException as error:  # noqa: BLE001  whatever it is, it is the end of this handler alone
            self._failure = error

    async def run_async(self) -> None:
        """Call an async handler, in the current task."""
        current_output.set(self.output)
        self._task = asyncio.current_task()
        try:
            self._raise_if_stopped()
            self._result = result_json(await self._handler.function(*self._arguments()))
        except BaseException as error:  # noqa: BLE001  whatever it is, it is the end of this handler alone
            self._failure = error
        self._task = None

    def _raise_if_stopped(self) -> None:
        if self._stopped:
            raise asyncio.CancelledError

    def _cancel(self) -> None:
        # On the loop of the handler: so the task is at an await of this call, or with another call by now.
        if self._task:
            self._task.cancel()

    def _arguments(self) -> list[object]:
        return self._handler.arguments.bind(self.delivery.body.job.params.payload_json, self._context)

    def _tell(self, done: asyncio.Future[str]) -> None:
        error = self._failure
        if error is None:
            done.set_result(self._result)
        elif isinstance(error, Exception) and not isinstance(error, StopIteration):
            done.set_exception(error)
        else:
            done.set_exception(_ended_by(error))


class HandlerEnded(Exception):
    """A handler ended by what is no ordinary error: it was cancelled, or left the interpreter."""


class HandlerCalls:
    """Where handlers run. A thread of its own keeps a handler that blocks from starving any heartbeat.

    `over` is told which calls have ended, many at once, on the loop that made this.
    """

    def __init__(self, concurrency: int, over: Callable[[Sequence[HandlerCall]], None]) -> None:
        self._over = over
        self._callbacks = LoopCallbacks(asyncio.get_running_loop())
        self._threads = ThreadPoolExecutor(concurrency, thread_name_prefix="airunner-handler")
        self._output_room = threading.Condition()
        self._ended: deque[HandlerCall] = deque()
        self._told = False
        self._handler_loop: HandlerLoop[HandlerCall] | None = None

    def begin(
        self,
        wanted: Sequence[tuple[Delivery[Attempt], Handler]],
        now: int,
        *,
        on_first_output: Callable[[HandlerCall], None],
    ) -> list[HandlerCall]:
        """Call handlers; `on_word` is told which of them speaks while nobody listens."""
        calls = [self._call(delivery, handler, now, on_first_output) for delivery, handler in wanted]
        asynchronous = [call for call in calls if call.is_async]
        if asynchronous:
            if self._handler_loop is None:
                self._handler_loop = HandlerLoop(self._end)
            self._handler_loop.begin(asynchronous)
        for call in calls:
            if not call.is_async:
                self._threads.submit(Variables().run, self._run_in_thread, call)
        return calls

    def close(self) -> None:
        """Begin no more; threads that still run are left to themselves."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._handler_loop:
            self._handler_loop.close()

    def _call(
        self,
        delivery: Delivery[Attempt],
        handler: Handler,
        now: int,
        on_first_output: Callable[[HandlerCall], None],
    ) -> HandlerCall:
        output = JobOutput(self._callbacks, self._output_room)
        call = HandlerCall(delivery, handler, output, now)
        output.on_first_output = lambda: on_first_output(call)
        return call

    def _run_in_thread(self, call: HandlerCall) -> None:
        call.run()
        self._end(call)

    def _end(self, call: HandlerCall) -> None:
        """Pass on that a call is over, from any thread; those that end meanwhile go with it."""
        self._ended.append(call)
        if not self._told:
            self._told = True
            self._callbacks.post(self._settle)

    def _settle(self) -> None:
        # Before anything is taken: what ends from here on is told anew.
        self._told = False
        calls = [self._ended.popleft() for _ in range(len(self._ended))]
        for call in calls:
            call.settle()
        self._over(calls)


def _context(delivery: Delivery[Attempt], output: JobOutput) -> Context:
    job = delivery.body.job
    return Context(
        job_id=job.job_id,
        queue=job.queue,
        attempt=job.attempt,
        # Jobs that are alike may share theirs.
        environment=MappingProxyType(job.params.environment),
        metadata=MappingProxyType(job.params.metadata),
        owner=job.params.owner,
        output=output,
    )


def _ended_by(error: BaseException) -> HandlerEnded:
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    ended = HandlerEnded(f"the handler ended by {text}")
    ended.__cause__ = error
    return ended
