"""An event loop in a thread of its own, for callers that have none."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from airunner.domain.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")

# How long an interrupted caller waits for its call to clean up.
_CLEAN_UP_SECONDS = 5


class LoopThread:
    """Runs coroutines for any number of threads, until it is closed."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._gate = threading.Lock()
        self._closed = False
        self._thread.start()

    @property
    def closed(self) -> bool:
        """Whether nothing can be run any more."""
        return self._closed

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Return what a coroutine returns. An interrupt of the waiting thread cancels the coroutine."""
        call = _Call(coroutine)
        self._submit(call)
        try:
            return call.answer.result()
        except BaseException:
            if not call.answer.done():
                self._loop.call_soon_threadsafe(call.cancel)
                concurrent.futures.wait([call.answer], _CLEAN_UP_SECONDS)
            raise

    def close(self) -> None:
        """Cancel what still runs and end the thread. Harmless when repeated."""
        with self._gate:
            if self._closed:
                return
            self._closed = True
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CLEAN_UP_SECONDS)

    def _submit(self, call: _Call[Any]) -> None:
        # Under the gate, so that no call is added behind the stop and never answered.
        with self._gate:
            if self._closed or self._thread is threading.current_thread():
                call.coroutine.close()
                raise RuntimeError("the client is closed" if self._closed else "this would wait for itself")
            self._loop.call_soon_threadsafe(call.start)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(self._cancel_all())
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()

    @staticmethod
    async def _cancel_all() -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Call(Generic[T]):
    """One coroutine on its way: started and cancelled on the loop, awaited from elsewhere."""

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self.answer: concurrent.futures.Future[T] = concurrent.futures.Future()
        self.coroutine = coroutine
        self._task: asyncio.Task[T] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self.coroutine)
        self._task.add_done_callback(self._finish)

    def cancel(self) -> None:
        if self._task:
            self._task.cancel()

    def _finish(self, task: asyncio.Task[T]) -> None:
        if task.cancelled():
            self.answer.set_exception(Unavailable("the client was closed"))
        elif error := task.exception():
            self.answer.set_exception(error)
        else:
            self.answer.set_result(task.result())
