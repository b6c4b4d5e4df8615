"""The event loop of commands that live long."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")
_SWITCH_SECONDS: Final = 0.0005
_OBJECTS_BETWEEN_COLLECTIONS: Final = 10_000


def run_on_uvloop(work: Coroutine[object, object, T]) -> T:
    """Run something that lives long on the fast event loop, and return its result."""
    import gc

    import uvloop

    # What was loaded to start stays for good: no collection has to look at it again.
    gc.collect()
    gc.freeze()
    # Each job brings some dozens of objects that end with it: to look for cycles so often finds none.
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    # The loop and the threads beside it hand work to each other: none shall wait long for its turn.
    sys.setswitchinterval(_SWITCH_SECONDS)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)
