"""A spool whose disk may hang without stopping the worker's loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airunner.domain.event import Event
    from airunner.worker.disk_thread import DiskThread
    from airunner.worker.publishing.spool import Spool

_log = get_logger("airunner.worker")

_CLOSE_SECONDS: Final = 2.0


class BackgroundSpool:
    """The calls of a Spool on a thread for the disk, in the order in which they were made.

    It is the thread's alone: whoever uses this keeps count of what was written and read.
    """

    def __init__(self, spool: Spool, disk: DiskThread, *, close_seconds: float = _CLOSE_SECONDS) -> None:
        self._spool = spool
        self._disk = disk
        self._close_seconds = close_seconds
        self._used = False

    def write(self, events: Sequence[Event], wire_bytes: int) -> asyncio.Future[bool]:
        """Append a block; the result is False if it does not fit or the disk fails."""
        self._used = True
        return self._disk.call(lambda: self._spool.write(events, wire_bytes))

    def read(self) -> asyncio.Future[list[Event]]:
        """Take the first block out; there has to be one."""
        return self._disk.call(self._spool.read)

    async def close(self) -> None:
        """Remove the file after the earlier calls; wait for that, but for no disk that hangs. Idempotent."""
        if not self._used:
            return
        self._used = False
        closing = self._disk.call(self._spool.close)
        await asyncio.wait({closing}, timeout=self._close_seconds)
        if not closing.done():
            _log.warning("spool.hangs")
        elif error := closing.exception():
            _log.warning("spool.failed", error=str(error))
