"""Waiting for something to become true, in place of sleeping and hoping."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_LOOK_AGAIN_SECONDS = 0.001


async def until(condition: Callable[[], bool], *, limit_seconds: float = 30) -> None:
    """Return once the condition holds and the loop has had a turn; fail when that takes too long."""
    async with asyncio.timeout(limit_seconds):
        await asyncio.sleep(0)
        while not condition():  # noqa: ASYNC110  what is waited for cannot always tell
            await asyncio.sleep(_LOOK_AGAIN_SECONDS)
        await asyncio.sleep(0)
