"""Fetching ahead of a caller, so that the network and the caller work at the same time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from airunner.domain.background import end_wait
from airunner.domain.errors import Unavailable

T = TypeVar("T")

WAITED_FOR: Final = 8
"""How many items a caller who was found waiting takes before it is looked at again.

A look after each would cost a watcher who only waits a twentieth of every line.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefetchBounds:
    """How far ahead to fetch: no further while so many items, or so many bytes of them, wait."""

    items: int = 64
    bytes: int = 4 * 1024 * 1024


async def fetch_ahead(
    source: AsyncGenerator[tuple[T, int], None], bounds: PrefetchBounds
) -> AsyncGenerator[T, None]:
    """Yield the items of a source, fetched within the bounds while the caller does something else.

    The source yields each item with how many bytes it takes. A caller who waits for the next item fetches it
    itself; a task does for one who is busy with the last, if it was before or is for some items.

    Order is kept: an error of the source, like its end, comes after everything that was fetched before it.
    The task has ended and the source is closed when this generator is.
    """
    ahead = _Ahead(source, bounds)
    try:
        while await ahead.has_next():
            yield ahead.take()
    finally:
        await ahead.aclose()


class _Ahead(Generic[T]):
    """What was fetched and not yet taken, how the source ended, and who fetches."""

    def __init__(self, source: AsyncGenerator[tuple[T, int], None], bounds: PrefetchBounds) -> None:
        self._source = source
        self._bounds = bounds
        self._items: deque[tuple[T, int]] = deque()
        self._bytes = 0
        self._ended = False
        self._error: BaseException | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_taken = False
        """Whether the caller has an item, and may be busy with it."""
        self._check: asyncio.Handle | None = None
        self._unchecked = 0
        """How many further items are taken without a look whether the caller is busy."""
        self._caller: asyncio.Future[None] | None = None
        """Done when the caller need not wait any more for the task."""
        self._room: asyncio.Future[None] | None = None
        """Done when the task need not wait any more for the caller."""

    async def has_next(self) -> bool:
        """Wait for the next item; False at the end of the source, whose error is raised."""
        self._is_taken = False
        while not self._items:
            if self._ended:
                if self._error:
                    raise self._error
                return False
            if self._task is None:
                self._keep(await anext(self._source, None))
            else:
                self._caller = asyncio.get_running_loop().create_future()
                await self._caller
        return True

    def take(self) -> T:
        """Remove the next item, which makes room."""
        item, size = self._items.popleft()
        self._bytes -= size
        self._is_taken = True
        if self._room:
            end_wait(self._room)
        if self._unchecked:
            self._unchecked -= 1
        elif self._task is None and self._check is None:
            # By then, a caller who is not busy waits for the next one.
            self._check = asyncio.get_running_loop().call_soon(self._go_ahead)
        return item

    async def aclose(self) -> None:
        """Fetch no more, and close the source."""
        self._ended = True
        if self._check:
            self._check.cancel()
        if self._task:
            self._task.cancel()
            await asyncio.wait((self._task,))
        await self._source.aclose()

    def _go_ahead(self) -> None:
        self._check = None
        if not self._is_taken:
            self._unchecked = WAITED_FOR
        elif not self._ended:
            self._task = asyncio.create_task(self._fill())

    async def _fill(self) -> None:
        """Fetch until the caller waits again; what goes wrong is kept for it."""
        try:
            while not self._ended:
                self._keep(await anext(self._source, None))
                if self._caller:
                    return
                while len(self._items) >= self._bounds.items or self._bytes >= self._bounds.bytes:
                    self._room = asyncio.get_running_loop().create_future()
                    await self._room
        except asyncio.CancelledError:
            # Mostly the caller has gone; one that has not must not wait for ever.
            self._ended, self._error = True, Unavailable("the watch was cancelled")
        except Exception as error:  # noqa: BLE001  it belongs to the caller, who gets it in its turn
            self._ended, self._error = True, error
        finally:
            self._task = self._room = None
            caller, self._caller = self._caller, None
            if caller:
                end_wait(caller)

    def _keep(self, fetched: tuple[T, int] | None) -> None:
        if fetched is None:
            self._ended = True
        else:
            self._items.append(fetched)
            self._bytes += fetched[1]
