"""Small pieces of asynchronous code: works done together, tasks nobody awaits, a wake-up for all who wait."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable

    from airunner.domain.clock import Clock

T = TypeVar("T")


async def together(works: Iterable[Awaitable[T]]) -> list[T]:
    """Do all at once; raise the first failure when all have ended, so that nothing of it goes on any more."""
    results = await asyncio.gather(*works, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if not isinstance(result, BaseException)]


class BackgroundTasks:
    """Tasks that go on after their caller has its answer, held until they end.

    The error of a task goes to `on_failure`, together with the name of the task, and no further; a cancelled
    task has none. What `on_failure` itself raises is dropped: it reports, and nothing depends on it.
    """

    def __init__(self, on_failure: Callable[[str, BaseException], None]) -> None:
        self._on_failure = on_failure
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        """How many tasks have not ended."""
        return len(self._tasks)

    def begin(self, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do the work soon. The task is for those who must come after it: wait for it, do not await it."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def finish(self) -> None:
        """Return once all tasks have ended, those that are begun meanwhile included."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def cancel(self) -> None:
        """Cancel all tasks; `finish` waits for their end."""
        for task in self._tasks:
            task.cancel()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error:
            with suppress(Exception):
                self._on_failure(task.get_name(), error)


def end_wait(future: asyncio.Future[None]) -> None:
    """Let whoever awaits a future go on; nothing if it is over, which who was cancelled may not know yet."""
    if not future.done():
        future.set_result(None)


class WakeUp:
    """Wakes everybody who waits at that moment, and remembers nothing.

    Look whether there is a reason to wait and call `wait` without an await in between, in a loop: then no
    wake-up is missed, and one too many does no harm.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: dict[asyncio.Future[None], None] = {}

    def notify(self) -> None:
        """Wake everybody who waits."""
        woken, self._waiting = self._waiting, {}
        for each in woken:
            end_wait(each)

    async def wait(self, until: int | None = None) -> bool:
        """Wait for the next `notify`, at most until an instant; return whether it came."""
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = None if until is None else self._clock.call_at(until, partial(end_wait, woken))
        self._waiting[woken] = None
        try:
            await woken
            return woken not in self._waiting
        finally:
            self._waiting.pop(woken, None)
            if timer:
                timer.cancel()

    async def wait_briefly(self, seconds: float) -> None:
        """Wait for the next `notify`, or for a moment, which passes whatever the clock says."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.wait()
