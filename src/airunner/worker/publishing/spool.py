"""The events of one attempt on disk, while the server is away."""

from __future__ import annotations

import io
import os
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from airunner.codec.events import decode_event
from airunner.telemetry.logs import get_logger
from airunner.worker.publishing.spool_records import read_records, record_of
from airunner.worker.publishing.unpublished import gap_event

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import structlog

    from airunner.domain.event import Event
    from airunner.worker.publishing.spool_folder import SpoolFolder

_log = get_logger("airunner.worker")

SPOOL_MAX_BYTES: Final = 1024 * 1024 * 1024

# Each is remembered: output that compresses to nothing must not fill memory instead of the disk.
_MAX_BLOCKS: Final = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class _Block:
    """Events that were written together, and what has to be read back even if the file is damaged."""

    offset: int
    length: int
    events: int
    wire_bytes: int
    first_sequence: int
    last_sequence: int
    timestamp: int
    """That of the last event, so that no Gap runs backwards."""


class Spool:
    """Events that do not fit into memory: first in, first out, a block at a time.

    The file is made with the first block and removed with the last; the space of blocks that were read is
    used again, so it never grows beyond its limit. Nothing is synced to the disk: the spool outlasts the
    server's absence, not its worker. The attempt of a worker that died is begun again under another number,
    so a file that it left is only reported.
    """

    def __init__(
        self, folder: SpoolFolder, job_id: str, attempt: int, *, max_bytes: int = SPOOL_MAX_BYTES
    ) -> None:
        self._folder = folder
        self._job_id = job_id
        self._attempt = attempt
        self._max_bytes = max_bytes
        self._blocks: deque[_Block] = deque()
        self._events = 0
        self._wire_bytes = 0
        self._file: int | None = None
        self._logged: set[str] = set()

    def __len__(self) -> int:
        """Return how many events there are; a batch is one."""
        return self._events

    def __bool__(self) -> bool:
        """Return whether there are any."""
        return bool(self._blocks)

    @property
    def wire_bytes(self) -> int:
        """What all of them take on the wire."""
        return self._wire_bytes

    def write(self, events: Sequence[Event], wire_bytes: int) -> bool:
        """Append a block; False if it does not fit or the disk fails, and then nothing has changed."""
        content = b"".join(map(record_of, events))
        offset = self._offset_for(len(content))
        if offset is None:
            self._warn_once("spool.full", max_bytes=self._max_bytes)
            return False
        try:
            self._write_at(offset, content)
        except OSError as error:
            self._warn_once("spool.failed", error=error.strerror)
            if not self._blocks:
                self.close()
            return False
        self._remember(
            _Block(
                offset=offset,
                length=len(content),
                events=len(events),
                wire_bytes=wire_bytes,
                first_sequence=events[0].sequence,
                last_sequence=events[-1].last_sequence,
                timestamp=events[-1].timestamp,
            )
        )
        return True

    def read(self) -> list[Event]:
        """Take the first block out; a Gap takes the place of what cannot be read any more."""
        block = self._forget_first()
        content = self._read_at(block.offset, block.length)
        events = self._whole(block, map(decode_event, read_records(io.BytesIO(content))))
        if not self._blocks:
            self.close()
        return events

    def close(self) -> None:
        """Forget all events and remove the file. Idempotent."""
        while self._blocks:
            self._forget_first()
        if self._file is not None:
            self._folder.remove(self._job_id, self._attempt)
            os.close(self._file)
            self._file = None
            self._log.info("spool.end")

    def _remember(self, block: _Block) -> None:
        self._blocks.append(block)
        self._events += block.events
        self._wire_bytes += block.wire_bytes

    def _forget_first(self) -> _Block:
        block = self._blocks.popleft()
        self._events -= block.events
        self._wire_bytes -= block.wire_bytes
        return block

    def _offset_for(self, length: int) -> int | None:
        """Return where a block fits: after the last one, or before the first where others were read."""
        if not self._blocks:
            return 0 if length <= self._max_bytes else None
        if len(self._blocks) >= _MAX_BLOCKS:
            return None
        first, last = self._blocks[0], self._blocks[-1]
        end = last.offset + last.length
        if last.offset < first.offset:
            return end if end + length <= first.offset else None
        if end + length <= self._max_bytes:
            return end
        return 0 if length <= first.offset else None

    def _write_at(self, offset: int, content: bytes) -> None:
        if self._file is None:
            self._file = self._folder.create(self._job_id, self._attempt)
            self._log.info("spool.start", folder=str(self._folder.path))
        rest = memoryview(content)
        while rest:
            written = os.pwrite(self._file, rest, offset)
            offset, rest = offset + written, rest[written:]

    def _read_at(self, offset: int, length: int) -> bytes:
        assert self._file is not None  # noqa: S101  there is a block
        pieces: list[bytes] = []
        try:
            while length and (piece := os.pread(self._file, length, offset)):
                pieces.append(piece)
                offset, length = offset + len(piece), length - len(piece)
        except OSError as error:
            self._warn_once("spool.failed", error=error.strerror)
        return b"".join(pieces)

    def _whole(self, block: _Block, events: Iterable[Event]) -> list[Event]:
        """Return the events of a block, with a Gap in the place of those that are missing."""
        whole: list[Event] = []
        expected = block.first_sequence
        for event in events:
            if not expected <= event.sequence <= event.last_sequence <= block.last_sequence:
                continue
            if event.sequence > expected:
                whole.append(self._lost(expected, event.sequence - 1, event.timestamp))
            whole.append(event)
            expected = event.last_sequence + 1
        if expected <= block.last_sequence:
            whole.append(self._lost(expected, block.last_sequence, block.timestamp))
        return whole

    def _lost(self, first: int, last: int, timestamp: int) -> Event:
        self._log.error("events.lost", first_sequence=first, last_sequence=last)
        return gap_event(first, last, timestamp, "the worker's spool was damaged")

    @property
    def _log(self) -> structlog.typing.FilteringBoundLogger:
        # Bound when it is needed: most attempts never use their spool.
        logger: structlog.typing.FilteringBoundLogger = _log.bind(job_id=self._job_id, attempt=self._attempt)
        return logger

    def _warn_once(self, name: str, **details: object) -> None:
        if name not in self._logged:
            self._logged.add(name)
            self._log.warning(name, **details)
