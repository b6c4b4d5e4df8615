"""The events of one attempt that the server has not acknowledged yet, in memory and in the spool."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from airunner import telemetry
from airunner.domain.event import Event, Gap, Output, OutputBatch, ProcessError, Progress
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from airunner.worker.publishing.background_spool import BackgroundSpool

_log = get_logger("airunner.worker")

MEMORY_BYTES: Final = 4 * 1024 * 1024
"""What is kept in memory, but for the block that is on its way to the spool."""

# Small enough for three of them to be in memory besides.
_BLOCK_BYTES: Final = 256 * 1024

# Tags, lengths, stream and timestamp beside the bytes of an output, and the same of an event as a whole.
_OUTPUT_OVERHEAD: Final = 24
_EVENT_OVERHEAD: Final = 128


class UnpublishedEvents:
    """Events in the order of their sequences, with an upper estimate of what they take on the wire.

    They stay in memory until that is `full` and `spill` is called. From then on what is appended goes to the
    spool, a block at a time, and comes back from there as those before it are dropped; when the spool is
    read up, memory is used again. An event is always kept: one that the spool cannot take stays in memory,
    where all is `full` again, and so does a block until the disk has it.

    Nothing here waits for the disk but what is awaited; only one task may do that. `on_change` is called when
    the disk has taken or refused a block.
    """

    def __init__(
        self,
        spool: BackgroundSpool | None = None,
        *,
        memory_bytes: int = MEMORY_BYTES,
        block_bytes: int = _BLOCK_BYTES,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._spool = spool
        self._memory_bytes = memory_bytes
        self._block_bytes = block_bytes
        self._on_change = on_change
        # In order: the first ones, the blocks of the spool, the one on its way there, the one that gathers.
        self._first = _Row()
        self._blocks: deque[_Extent] = deque()
        self._on_disk = _Extent()
        self._writing = _Row()
        self._gathered = _Row()
        self._write: asyncio.Future[bool] | None = None
        self._spilling = False
        self._refused = False

    def __len__(self) -> int:
        """Return how many there are; a batch is one."""
        in_memory = (self._first, self._writing, self._gathered)
        return self._on_disk.events + sum(len(row.events) for row in in_memory)

    def __bool__(self) -> bool:
        """Return whether there are any."""
        return bool(self._first.events or self._blocks or self._writing.events or self._gathered.events)

    @property
    def size_bytes(self) -> int:
        """What all of them take on the wire."""
        return self._first.size + self._on_disk.size_bytes + self._writing.size + self._gathered.size

    @property
    def full(self) -> bool:
        """Whether no more should be appended for now."""
        if not self._spilling:
            return self._first.size > self._memory_bytes
        # What was refused once is on trial: it counts until the disk has it.
        on_trial = self._writing.size if self._refused else 0
        return on_trial + self._gathered.size >= self._block_bytes

    def append(self, event: Event) -> None:
        """Keep the next event."""
        if not self._spilling:
            self._first.append(event)
            return
        self._gathered.append(event)
        if not self._refused:
            self._write_block()

    def spill(self) -> None:
        """Let the spool take what is appended from now on; try again what it refused before."""
        if self._spool is not None:
            self._spilling = True
            self._write_block()

    async def head(self, max_bytes: int) -> list[Event]:
        """Return the first events that fit together, one at least; they stay here."""
        await self._bring_back(max_bytes)
        taken: list[Event] = []
        for event, size in self._first.events:
            max_bytes -= size
            if taken and max_bytes < 0:
                break
            taken.append(event)
        return taken

    async def all(self) -> list[Event]:
        """Return every event; they stay here, in memory."""
        await self._bring_back(math.inf)
        return [event for row in (self._first, self._gathered) for event, _ in row.events]

    async def drop_before(self, sequence: int) -> None:
        """Forget what is stored: all below `sequence`, be it in the middle of a batch."""
        while (first := await self.head(0)) and first[0].last_sequence < sequence:
            self._first.popleft()
        if first and first[0].sequence < sequence:
            self.replace_first(_tail(first[0], sequence))

    def replace_first(self, event: Event) -> None:
        """Put an event in the place of the first, which `head` has returned."""
        self._first.popleft()
        self.prepend(event)

    def prepend(self, event: Event) -> None:
        """Keep an event that comes before all others."""
        self._first.appendleft(event)

    async def close(self) -> None:
        """Remove what is on disk, and forget it. Idempotent."""
        spool, self._spool = self._spool, None
        self._blocks.clear()
        self._on_disk = _Extent()
        if spool is not None:
            await spool.close()

    async def _bring_back(self, wanted: float) -> None:
        """Have so many bytes of the first events in memory, one event at least, if there are as many."""
        while self._first.size < wanted or not self._first.events:
            if self._spool and self._blocks:
                self._first.extend(await self._spool.read())
                self._on_disk = self._on_disk.less(self._blocks.popleft())
                self._write_block()
            elif self._write:
                await asyncio.wait({self._write})
            else:
                break
        if self._spilling and not self._blocks and not self._write and self._fits_memory():
            self._first.extend(event for event, _ in self._gathered.events)
            self._gathered = _Row()
            self._spilling = self._refused = False

    def _fits_memory(self) -> bool:
        return not self._first.events or self._first.size + self._gathered.size <= self._memory_bytes

    def _write_block(self) -> None:
        block = self._gathered
        if self._spool is None or self._write or block.size < self._block_bytes:
            return
        self._writing, self._gathered = block, _Row()
        self._write = self._spool.write([event for event, _ in block.events], block.size)
        self._write.add_done_callback(self._written)

    def _written(self, write: asyncio.Future[bool]) -> None:
        block, self._writing, self._write = self._writing, _Row(), None
        error = write.exception()
        if error:  # one that the spool does not know
            _log.error("spool.failed", error=repr(error))
        self._refused = bool(error) or not write.result()
        if self._refused:
            block.extend(event for event, _ in self._gathered.events)
            self._gathered = block
        else:
            self._blocks.append(_Extent(events=len(block.events), size_bytes=block.size))
            self._on_disk = self._on_disk.more(self._blocks[-1])
            self._write_block()
        self._on_change()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Extent:
    """How much there is of events that are on disk."""

    events: int = 0
    size_bytes: int = 0

    def more(self, other: _Extent) -> _Extent:
        return _Extent(events=self.events + other.events, size_bytes=self.size_bytes + other.size_bytes)

    def less(self, other: _Extent) -> _Extent:
        return _Extent(events=self.events - other.events, size_bytes=self.size_bytes - other.size_bytes)


class _Row:
    """Events in order with their sizes."""

    __slots__ = ("events", "size")

    def __init__(self) -> None:
        self.events: deque[tuple[Event, int]] = deque()
        self.size = 0

    def append(self, event: Event) -> None:
        size = event_bytes(event)
        self.events.append((event, size))
        self.size += size

    def appendleft(self, event: Event) -> None:
        size = event_bytes(event)
        self.events.appendleft((event, size))
        self.size += size

    def extend(self, events: Iterable[Event]) -> None:
        for event in events:
            self.append(event)

    def popleft(self) -> None:
        self.size -= self.events.popleft()[1]


def event_bytes(event: Event) -> int:
    """Estimate, from above, what an event takes on the wire."""
    match event.data:
        case OutputBatch(outputs=outputs):
            text = sum(len(output.output) for output in outputs) + _OUTPUT_OVERHEAD * len(outputs)
        case Output(output=output):
            text = len(output)
        case ProcessError(error_message=message) | Gap(reason=message) | Progress(message=message):
            text = 4 * len(message)
        case _:
            text = 0
    return _EVENT_OVERHEAD + text


def gap_event(first: int, last: int, timestamp: int, reason: str) -> Event:
    """Return the event that stands for events which are lost for good, and count them."""
    telemetry.events_lost.add(last - first + 1)
    gap = Gap(first_sequence=first, last_sequence=last, reason=reason)
    return Event(sequence=first, timestamp=timestamp, data=gap)


def with_gap(events: Sequence[Event], expected: int, last: int, now: int) -> list[Event] | None:
    """Return events with a Gap before them for those that the server misses, from `expected` to `last`.

    None where it misses none of those: then no gap makes it take them.
    """
    if expected > last:
        return None
    timestamp = events[0].timestamp if events else now
    return [gap_event(expected, last, timestamp, "the server no longer has these events"), *events]


def _tail(event: Event, sequence: int) -> Event:
    if isinstance(event.data, Gap):
        return replace(event, sequence=sequence, data=replace(event.data, first_sequence=sequence))
    if not isinstance(event.data, OutputBatch):
        return event
    batch, skipped = event.data, sequence - event.sequence
    rest = replace(
        batch,
        outputs=batch.outputs[skipped:],
        timestamps=batch.timestamps[skipped:],
        start_sequence=sequence,
    )
    return replace(event, sequence=sequence, data=rest, timestamp=(*rest.timestamps, event.timestamp)[0])
