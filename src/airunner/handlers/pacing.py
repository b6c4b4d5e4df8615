"""Holding back a coroutine at its next await, and nobody beside it."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Generator

T = TypeVar("T")


async def run_paced(coroutine: Coroutine[Any, Any, T], room: Callable[[], Awaitable[None] | None]) -> T:
    """Run a coroutine, and resume it after each of its awaits only when there is room.

    `room` returns what to await before that, or None. An error that comes meanwhile, such as a cancellation,
    is the coroutine's. One that never waits is never held back.
    """
    try:
        waiting = coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    return await _resume(coroutine, waiting, room)


@types.coroutine
def _resume(
    coroutine: Coroutine[Any, Any, T], waiting: Any, room: Callable[[], Awaitable[None] | None]
) -> Generator[Any, Any, T]:
    while True:
        step: Callable[[Any], Any] = coroutine.send
        try:
            value = yield waiting
            space = room()
            if space is not None:
                yield from space.__await__()
        except GeneratorExit:
            coroutine.close()
            raise
        except BaseException as error:  # noqa: BLE001  whatever it is, the coroutine decides what it means
            step, value = coroutine.throw, error
        try:
            waiting = step(value)
        except StopIteration as end:
            result: T = end.value
            return result
