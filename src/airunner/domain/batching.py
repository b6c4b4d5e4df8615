"""Gathering a worker's output into batches, as a pure function of what was added and when.

The Batcher alone assigns sequences. It holds no timer and does no I/O: `add`, `tick` and `close` take the
time and return what to publish and why.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from airunner.domain.event import (
    Event,
    EventData,
    Output,
    OutputBatch,
    ProcessEnd,
    ProcessError,
    ProcessStart,
    StreamType,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airunner.domain.execution import BatchingConfig

_START_WITHIN_MS = 100
_WATCHED_INTERVAL_MS = 100
_QUIET_INTERVAL_MS = 5_000
_QUIET_LINES_PER_SECOND = 10
# What an output costs in a batch beside its own bytes: tags, lengths, stream and timestamp.
_ITEM_OVERHEAD = 24
_CRITICAL = (ProcessEnd, ProcessError)


class FlushReason(StrEnum):
    """Why a batch was closed."""

    TIME = "time"
    SIZE = "size"
    BYTES = "bytes"
    CRITICAL = "critical"
    CLOSE = "close"


@dataclass(frozen=True, slots=True)
class Flush:
    """Events to publish now, in order."""

    events: tuple[Event, ...]
    reason: FlushReason


class Batcher:
    """Gathers the events of one attempt.

    Output waits for a full batch (events or bytes) or for the interval; PROCESS_END and PROCESS_ERROR take
    along what is before them and go at once; PROCESS_START goes within 100 ms. While the job is watched, the
    first output after a silence goes at once and the rest every 100 ms. Timestamps never run backwards,
    also when the clock does; what waits then waits no longer than the interval for it.
    """

    def __init__(self, config: BatchingConfig) -> None:
        self._config = config
        self._next_sequence = 1
        self._last_time = 0
        self._digest = hashlib.sha256()
        self._ready: list[Event] = []
        self._outputs: list[Output] = []
        self._timestamps: list[int] = []
        self._bytes = 0
        self._due_at: int | None = None
        self._last_flush = 0
        self._counted_since: int | None = None
        self._counted_lines = 0
        self._interval_ms = config.flush_interval_seconds * 1000
        self._longest_ms = max(self._interval_ms, _QUIET_INTERVAL_MS)
        self.watched = False

    @property
    def next_sequence(self) -> int:
        """The sequence that the next event will have."""
        return self._next_sequence

    @property
    def due_at(self) -> int | None:
        """When `tick` will have something to say; None while nothing waits."""
        return self._due_at

    @property
    def output_sha256(self) -> bytes:
        """The digest of all output so far."""
        return self._digest.digest()

    @property
    def buffered(self) -> int:
        """How many events wait."""
        return len(self._ready) + len(self._outputs)

    def add_output(self, lines: Sequence[bytes], stream: StreamType, now: int) -> list[Flush]:
        """Take output, one sequence for each line; a line beyond the cap of a batch is split."""
        self._stamp(now)
        self._grow_interval(len(lines), now)
        flushes: list[Flush] = []
        cap = self._config.max_batch_bytes - _ITEM_OVERHEAD
        for line in lines:
            for start in range(0, len(line), cap) if len(line) > cap else (0,):
                piece = line[start : start + cap] if len(line) > cap else line
                self._append(Output(piece, stream), now, flushes)
        if self._outputs:
            self._wait(self._output_delay(now), now)
        return flushes + self.tick(now)

    def add(self, data: EventData, now: int) -> list[Flush]:
        """Take one event that is not output."""
        self._stamp(now)
        self._close_batch()
        if isinstance(data, ProcessEnd):
            data = ProcessEnd(
                pid=data.pid,
                exit_code=data.exit_code,
                run_duration_ms=data.run_duration_ms,
                event_count=self._next_sequence - 1,
                output_sha256=self.output_sha256,
            )
        self._ready.append(Event(sequence=self._next_sequence, timestamp=self._last_time, data=data))
        self._next_sequence = self._ready[-1].last_sequence + 1
        if isinstance(data, _CRITICAL):
            return [self._flush(FlushReason.CRITICAL, now)]
        self._wait(_START_WITHIN_MS if isinstance(data, ProcessStart) else self._output_delay(now), now)
        return self.tick(now)

    def tick(self, now: int) -> list[Flush]:
        """Return what has waited long enough."""
        # Nothing waits longer than the longest interval: a time beyond that is of a clock that was set back.
        if self._due_at is None or now < self._due_at <= now + self._longest_ms:
            return []
        return [self._flush(FlushReason.TIME, now)]

    def close(self, now: int) -> list[Flush]:
        """Return all that still waits."""
        return [self._flush(FlushReason.CLOSE, now)] if self.buffered else []

    def _append(self, output: Output, now: int, flushes: list[Flush]) -> None:
        size = len(output.output) + _ITEM_OVERHEAD
        if self._bytes + size > self._config.max_batch_bytes and self._outputs:
            flushes.append(self._flush(FlushReason.BYTES, now))
        self._digest.update(output.output)
        self._outputs.append(output)
        self._timestamps.append(self._last_time)
        self._bytes += size
        self._next_sequence += 1
        if len(self._outputs) >= self._config.max_batch_size:
            flushes.append(self._flush(FlushReason.SIZE, now))

    def _flush(self, reason: FlushReason, now: int) -> Flush:
        self._close_batch()
        events, self._ready = tuple(self._ready), []
        self._due_at = None
        self._last_flush = now
        return Flush(events, reason)

    def _close_batch(self) -> None:
        if not self._outputs:
            return
        start = self._next_sequence - len(self._outputs)
        data: EventData = self._outputs[0]
        if self._config.max_batch_size > 1:
            data = OutputBatch(
                outputs=tuple(self._outputs),
                start_sequence=start,
                end_sequence=self._next_sequence - 1,
                timestamps=tuple(self._timestamps),
                playback_interval_millis=self._config.playback_interval_millis,
            )
        self._ready.append(Event(sequence=start, timestamp=self._timestamps[0], data=data))
        self._outputs, self._timestamps, self._bytes = [], [], 0

    def _stamp(self, now: int) -> None:
        """Set the time of the next events, which is never before that of the last ones."""
        self._last_time = max(self._last_time, now)

    def _wait(self, delay_ms: int, now: int) -> None:
        due_at = now + delay_ms
        self._due_at = due_at if self._due_at is None else min(self._due_at, due_at)

    def _output_delay(self, now: int) -> int:
        if not self._config.adaptive:
            return self._config.flush_interval_seconds * 1000
        if self.watched:
            return max(0, min(self._last_flush - now, 0) + _WATCHED_INTERVAL_MS)
        return self._interval_ms

    def _grow_interval(self, lines: int, now: int) -> None:
        """Stretch the interval of an unwatched job once it is known to print little."""
        if self._counted_since is None or now < self._counted_since:
            self._counted_since, self._counted_lines = now, 0
        self._counted_lines += lines
        base, elapsed = self._config.flush_interval_seconds * 1000, now - self._counted_since
        if elapsed < base:
            return
        rate = self._counted_lines * 1000 / elapsed
        self._interval_ms = max(base, _QUIET_INTERVAL_MS) if rate < _QUIET_LINES_PER_SECOND else base
        self._counted_since, self._counted_lines = now, 0


def unpack(event: Event, *, not_before: int = 0) -> list[Event]:
    """Return the single events of a batch; any other event is returned as it is.

    Timestamps that the batch lacks are simulated from its playback interval, never before `not_before`.
    """
    batch = event.data
    if not isinstance(batch, OutputBatch):
        return [event]
    return [
        Event(sequence=sequence, timestamp=time, data=output, attempt=event.attempt)
        for sequence, time, output in zip(
            range(batch.start_sequence, batch.end_sequence + 1),
            batch.times(max(event.timestamp, not_before)),
            batch.outputs,
            strict=True,
        )
    ]
