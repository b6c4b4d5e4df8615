"""Running handlers beside the worker's own loop: sync ones in threads, async ones on a loop of their own."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context as Variables
from typing import TYPE_CHECKING, Any

import uvloop

from airunner.handlers.arguments import result_json
from airunner.handlers.capture import current_voice
from airunner.worker.mailbox import Mailbox

if TYPE_CHECKING:
    from airunner.handlers.context import Context
    from airunner.handlers.registry import Handler


class HandlerCall:
    """One call of a handler on its way. `done` gets its result as JSON, or its error."""

    __slots__ = ("_loop", "_task", "context", "done", "handler", "payload_json", "settled")

    def __init__(self, handler: Handler, payload_json: str, context: Context) -> None:
        self.handler = handler
        self.payload_json = payload_json
        self.context = context
        self.done: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.settled = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None

    def stop(self) -> None:
        """Ask the handler to end: `ctx.cancelled` is set, and an async one is cancelled at its next await.

        A thread cannot be stopped: `done` is done when it returns.
        """
        self.context.stopped.set()
        if self._loop and self._task and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._task.cancel)

    def renew(self) -> asyncio.Future[str]:
        """Return a new `done` for one that was cancelled together with the task that waited for it."""
        if not self.settled:
            self.done = asyncio.get_running_loop().create_future()
        return self.done

    def settle(self, result: str, error: BaseException | None) -> None:
        """Say how it ended. On the loop that waits for `done`."""
        self.settled = True
        if self.done.done():
            return
        if error is None:
            self.done.set_result(result)
        elif isinstance(error, Exception) and not isinstance(error, StopIteration):
            self.done.set_exception(error)
        else:
            self.done.set_exception(_ended_by(error))

    def run(self) -> str:
        """Call a sync handler, here and now."""
        current_voice.set(self.context.voice)
        value = self.handler.function(*self.handler.arguments.bind(self.payload_json, self.context))
        return result_json(value)

    def start(self, loop: asyncio.AbstractEventLoop, mailbox: Mailbox) -> None:
        """Begin an async handler, on the loop that it shall run on."""
        self._loop = loop
        self._task = loop.create_task(self._run_async(mailbox), context=Variables())
        if self.context.cancelled:
            self._task.cancel()

    async def _run_async(self, mailbox: Mailbox) -> None:
        current_voice.set(self.context.voice)
        result, failure = "", None
        try:
            value = await self.handler.function(*self.handler.arguments.bind(self.payload_json, self.context))
            result = result_json(value)
        except BaseException as error:  # noqa: BLE001  whatever it is, it is the end of this handler alone
            failure = error
        mailbox.post(lambda: self.settle(result, failure))


class HandlerEnded(Exception):
    """A handler ended by what is no ordinary error: it was cancelled, or left the interpreter."""


class HandlerCalls:
    """Where handlers run. A thread of its own keeps a handler that blocks from starving any heartbeat."""

    def __init__(self, concurrency: int) -> None:
        self._mailbox = Mailbox(asyncio.get_running_loop())
        self._threads = ThreadPoolExecutor(concurrency, thread_name_prefix="airunner-handler")
        self.voices = threading.Condition()
        """What handlers and those who pass on their words take turns by."""
        self._handler_loop: _HandlerLoop | None = None

    @property
    def mailbox(self) -> Mailbox:
        """The way back onto the loop that calls."""
        return self._mailbox

    def begin(self, handler: Handler, payload_json: str, context: Context) -> HandlerCall:
        """Call a handler; how it ends shows in the call's `done`."""
        call = HandlerCall(handler, payload_json, context)
        if handler.is_async:
            if self._handler_loop is None:
                self._handler_loop = _HandlerLoop(self._mailbox)
            self._handler_loop.begin(call)
        else:
            self._threads.submit(Variables().run, self._run_in_thread, call)
        return call

    def close(self) -> None:
        """Begin no more; threads that still run are left to themselves."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._handler_loop:
            self._handler_loop.close()

    def _run_in_thread(self, call: HandlerCall) -> None:
        result, failure = "", None
        try:
            result = call.run()
        except BaseException as error:  # noqa: BLE001  whatever it is, it is the end of this handler alone
            failure = error
        self._mailbox.post(lambda: call.settle(result, failure))


class _HandlerLoop:
    """An event loop in a thread of its own."""

    def __init__(self, back: Mailbox) -> None:
        self._back = back
        self._loop = uvloop.new_event_loop()
        self._inbox = Mailbox(self._loop)
        threading.Thread(target=self._run, name="airunner-async-handlers", daemon=True).start()

    def begin(self, call: HandlerCall) -> None:
        self._inbox.post(lambda: call.start(self._loop, self._back))

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        _cancel_all(self._loop)
        self._loop.close()


def _ended_by(error: BaseException) -> HandlerEnded:
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    ended = HandlerEnded(f"the handler ended by {text}")
    ended.__cause__ = error
    return ended


def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    tasks: set[asyncio.Task[Any]] = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
