"""Python functions as jobs.

Serve them with

    airunner worker --handlers examples/handlers.py --concurrency 10

and add jobs with

    airunner run --handler thumbnails --payload '{"images": ["a.png", "b.png"], "width": 200}'
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from airunner import Context, PermanentFailure, handler

log = logging.getLogger("thumbnails")


@dataclass
class Thumbnails:
    """What the payload must look like; one that does not fails for good, and says where."""

    images: list[str]
    width: int = 100


@handler("thumbnails")
def thumbnails(wanted: Thumbnails, ctx: Context) -> dict[str, int]:
    """Runs in a thread: it may block."""
    for done, image in enumerate(wanted.images, start=1):
        if ctx.cancelled:
            break
        print(f"{image}: {wanted.width} pixels wide")
        ctx.progress(done, len(wanted.images), image)
    log.info("all done")
    return {"images": len(wanted.images)}


@handler("charge")
async def charge(payload: dict[str, int]) -> str:
    """Runs on the loop of async handlers: it must not block."""
    if payload["cents"] <= 0:
        # Trying again would not help. Any other error is tried again, later and later.
        raise PermanentFailure("nothing_to_charge", "the amount must be above zero")
    await asyncio.sleep(0.1)
    return "charged"
