"""Fetching ahead of a caller, so that the network and the caller work at the same time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Generic, TypeVar

from airunner.domain.errors import Unavailable

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefetchBounds:
    """How far ahead to fetch: no further while so many items, or so many bytes of them, wait."""

    items: int = 64
    bytes: int = 4 * 1024 * 1024


async def fetch_ahead(
    source: AsyncGenerator[tuple[T, int], None], bounds: PrefetchBounds
) -> AsyncGenerator[T, None]:
    """Yield the items of a source, fetched by a task that is ahead of the caller within the bounds.

    The source yields each item with how many bytes it takes.

    Order is kept: an error of the source, like its end, comes after everything that was fetched before it.
    The task has ended and the source is closed when this generator is.
    """
    buffer = _Buffer[T](bounds)
    fetching = asyncio.create_task(buffer.fill(source))
    try:
        while await buffer.has_next():
            yield buffer.take()
    finally:
        fetching.cancel()
        await asyncio.wait((fetching,))


class _Buffer(Generic[T]):
    """What was fetched and not yet taken, and how the source ended."""

    def __init__(self, bounds: PrefetchBounds) -> None:
        self._bounds = bounds
        self._items: deque[tuple[T, int]] = deque()
        self._bytes = 0
        self._ended = False
        self._error: BaseException | None = None
        self._filled = asyncio.Event()
        self._freed = asyncio.Event()

    async def fill(self, source: AsyncGenerator[tuple[T, int], None]) -> None:
        """Fetch until the source ends; what goes wrong is kept for the caller."""
        try:
            async with aclosing(source):
                async for item, size in source:
                    self._add(item, size)
                    await self._room()
        except asyncio.CancelledError:
            # Mostly the caller has gone; one that has not must not wait for ever.
            self._error = Unavailable("the watch was cancelled")
        except Exception as error:  # noqa: BLE001  it belongs to the caller, who gets it in its turn
            self._error = error
        finally:
            self._ended = True
            self._filled.set()

    async def has_next(self) -> bool:
        """Wait for the next item; False at the end of the source, whose error is raised."""
        while not self._items:
            if self._ended:
                if self._error:
                    raise self._error
                return False
            self._filled.clear()
            await self._filled.wait()
        return True

    def take(self) -> T:
        """Remove the next item, which makes room."""
        item, size = self._items.popleft()
        self._bytes -= size
        self._freed.set()
        return item

    def _add(self, item: T, size: int) -> None:
        self._items.append((item, size))
        self._bytes += size
        self._filled.set()

    async def _room(self) -> None:
        while len(self._items) >= self._bounds.items or self._bytes >= self._bounds.bytes:
            self._freed.clear()
            await self._freed.wait()
