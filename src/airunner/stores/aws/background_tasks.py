"""Work that follows an answer: nobody waits for it, and whatever it fails at is made good later."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import structlog

from airunner import telemetry
from airunner.domain.errors import AirunnerError

if TYPE_CHECKING:
    from collections.abc import Coroutine

_log = structlog.get_logger("airunner.aws")


class BackgroundTasks:
    """Tasks in the background, whose failures are counted and no more."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do it soon; the task is for those who have to come after it, and never fails."""
        task = asyncio.create_task(_forgiving(name, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def finish(self) -> None:
        """Return when all is done that was begun."""
        while self._tasks:
            await asyncio.wait(self._tasks)


async def _forgiving(name: str, work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except AirunnerError as error:
        _log.warning("aws.follow_up_failed", follow_up=name, error=error.text)
        telemetry.aws_follow_ups_failed.add(1)
