"""The plain runner: one task for each delivery."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar

from airunner.queues.base import Delivery, Fail, Finish

T = TypeVar("T")
R = TypeVar("R")

ProcessDelivery: TypeAlias = Callable[[Delivery[T]], Coroutine[Any, Any, R]]
"""Processes one delivery; how it ends decides what becomes of the delivery (see `queues.base`)."""


class TaskRunner(Generic[T, R]):
    """Implements Runner with a task that calls `process` for each delivery."""

    def __init__(self, process: ProcessDelivery[T, R]) -> None:
        self._process = process
        self._tasks: dict[Delivery[T], asyncio.Task[R]] = {}

    def begin(self, deliveries: Sequence[Delivery[T]], finish: Finish[T, R], fail: Fail[T]) -> None:
        """Start a task for each delivery."""
        for delivery in deliveries:
            task = asyncio.create_task(self._process(delivery), name=delivery.key)
            self._tasks[delivery] = task
            task.add_done_callback(partial(self._report, delivery, finish, fail))

    def cancel(self, delivery: Delivery[T]) -> None:
        """Cancel the task of a delivery; `process` sees that as a CancelledError, and ends as it likes."""
        task = self._tasks.get(delivery)
        if task:
            # Not at once: a task that has not begun would never see what it is to stop.
            asyncio.get_running_loop().call_soon(task.cancel)

    def _report(
        self, delivery: Delivery[T], finish: Finish[T, R], fail: Fail[T], task: asyncio.Task[R]
    ) -> None:
        del self._tasks[delivery]
        if task.cancelled():
            fail(delivery, asyncio.CancelledError())
        elif error := task.exception():
            fail(delivery, error)
        else:
            finish([(delivery, task.result())])
