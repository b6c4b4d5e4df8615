"""Holding back a coroutine at its next await, and nobody beside it."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Generator


@types.coroutine
def paced(
    coroutine: Coroutine[Any, Any, Any], room: Callable[[], Awaitable[None] | None]
) -> Generator[Any, Any, Any]:
    """Run a coroutine, and resume it after each of its awaits only when there is room.

    `room` returns what to await before that, or None. An error that comes meanwhile, such as a cancellation,
    is the coroutine's.
    """
    step: Callable[[Any], Any] = coroutine.send
    value: Any = None
    while True:
        try:
            waiting = step(value)
        except StopIteration as end:
            return end.value
        step = coroutine.send
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
