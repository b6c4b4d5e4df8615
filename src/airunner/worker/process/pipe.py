"""Reading the output of a process, without blocking and without running ahead of its consumer."""

from __future__ import annotations

import asyncio
import errno
import os
import select
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from airunner.domain.clock import Clock

CHUNK_BYTES: Final = 64 * 1024

# What a pipe can hold at most without privileges: enough for what was written before the drain began, and a
# bound against a process that escaped its group and keeps writing.
_DRAIN_BYTES: Final = 1024 * 1024


class OutputPipe:
    """The reading end of a pipe or pseudo-terminal of the child."""

    def __init__(self, descriptor: int, *, is_stderr: bool, clock: Clock, writer: int | None = None) -> None:
        """`writer` is a descriptor of the other end, which is ours and keeps it open until `let_end`."""
        os.set_blocking(descriptor, False)
        self.is_stderr = is_stderr
        self._descriptor = descriptor
        self._writer = writer
        self._clock = clock
        self._wake: asyncio.Future[None] | None = None
        self._allowance: int | None = None

    async def read(self, until: int | None = None) -> bytes | None:
        """Return what is there, at most 64 KiB; b"" at the end, None if nothing came by `until`.

        That is of the monotonic clock.
        """
        while True:
            chunk = self._read_now()
            if chunk is not None:
                return chunk
            if until is not None and self._clock.monotonic() >= until:
                return None
            await self._readable(until)

    def let_end(self) -> None:
        """Keep the other end open no longer: `read` comes to the end when nobody else does. Idempotent."""
        writer, self._writer = self._writer, None
        if writer is not None:
            os.close(writer)

    def drain(self) -> None:
        """Let `read` still return what is in the pipe, and then the end, whoever keeps it open."""
        self._allowance = _DRAIN_BYTES
        self._rouse()

    def has_writer(self) -> bool:
        """Return whether a process holds the other end, be it read to the end or not."""
        poll = select.poll()
        poll.register(self._descriptor, 0)
        return not any(event & select.POLLHUP for _, event in poll.poll(0))

    def close(self) -> None:
        """Close the descriptors. Nobody may be reading."""
        self.let_end()
        os.close(self._descriptor)

    def _read_now(self) -> bytes | None:
        try:
            chunk = os.read(self._descriptor, CHUNK_BYTES)
        except BlockingIOError:
            return None if self._allowance is None else b""
        except OSError as error:
            if error.errno != errno.EIO:  # how a terminal reports that nobody has it open any more
                raise
            chunk = b""
        if self._allowance is not None:
            self._allowance -= len(chunk)
            return chunk if self._allowance >= 0 else b""
        return chunk

    async def _readable(self, until: int | None) -> None:
        loop = asyncio.get_running_loop()
        self._wake = loop.create_future()
        loop.add_reader(self._descriptor, self._rouse)
        timer = None if until is None else self._clock.call_at(self._wall(until), self._rouse)
        try:
            await self._wake
        finally:
            loop.remove_reader(self._descriptor)
            if timer is not None:
                timer.cancel()
            self._wake = None

    def _wall(self, instant: int) -> int:
        return self._clock.now() + instant - self._clock.monotonic()

    def _rouse(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)
