"""What happens in a job, as events. Identity and order of an event: (job, attempt, sequence)."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Final, TypeAlias

from airunner.domain.errors import InvalidArgument
from airunner.domain.record import record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airunner.domain.requests import StreamRequest

DEFAULT_PLAYBACK_MS: Final = 50
"""The pace of a replay whose batches do not say theirs."""
_CURSOR = re.compile(r"([0-9a-f]{1,8})-([0-9a-f]{1,10})")


class StreamType(IntEnum):
    """Where a process wrote its output; a terminal has only STDOUT."""

    STDOUT = 1
    STDERR = 2


class EventType(IntEnum):
    """The kinds of events. OUTPUT_DATA and OUTPUT_BATCH both mean output."""

    OUTPUT_DATA = 1
    OUTPUT_BATCH = 2
    PROCESS_START = 3
    PROCESS_END = 4
    PROCESS_ERROR = 5
    GAP = 6
    PROGRESS = 7


@record
class Output:
    """Bytes that were written, mostly one line with its newline."""

    output: bytes
    stream: StreamType = StreamType.STDOUT


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputBatch:
    """Outputs of consecutive sequences. `timestamps` has one for each, or none at all."""

    outputs: tuple[Output, ...]
    start_sequence: int
    end_sequence: int
    timestamps: tuple[int, ...] = ()
    playback_interval_millis: int = 0

    def times(self, first_at: int) -> Sequence[int]:
        """Return the time of each output; those that it lacks are simulated, from the first one on."""
        if self.timestamps:
            return self.timestamps
        step = self.playback_interval_millis or DEFAULT_PLAYBACK_MS
        return range(first_at, first_at + step * len(self.outputs), step)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStart:
    """The attempt's process runs, on a worker that may have a name."""

    pid: int
    started_at: int
    worker_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessEnd:
    """The attempt is over; the count and digest of what came before prove a log complete."""

    pid: int
    exit_code: int
    run_duration_ms: int
    event_count: int = 0
    output_sha256: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessError:
    """Something kept the process from running, or ended it."""

    error_message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Events that are lost for good."""

    first_sequence: int
    last_sequence: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a handler has come."""

    done: int
    total: int
    message: str = ""


EventData: TypeAlias = Output | OutputBatch | ProcessStart | ProcessEnd | ProcessError | Gap | Progress


@record
class Event:
    """One event, or a batch of outputs under the sequence of its first."""

    sequence: int
    timestamp: int
    data: EventData
    attempt: int = 0
    cursor: str = ""

    @property
    def event_type(self) -> EventType:
        """The kind of the event."""
        return _TYPES[type(self.data)]

    @property
    def last_sequence(self) -> int:
        """The last sequence that the event covers."""
        if isinstance(self.data, OutputBatch):
            return self.data.end_sequence
        return self.data.last_sequence if isinstance(self.data, Gap) else self.sequence


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A position in the events of a job: after this sequence of this attempt."""

    attempt: int
    sequence: int

    @property
    def cursor(self) -> str:
        """The position as a text that is opaque to clients."""
        return f"{self.attempt:x}-{self.sequence:x}"

    @classmethod
    def from_cursor(cls, cursor: str) -> Position:
        """Return the position of a cursor."""
        match = _CURSOR.fullmatch(cursor)
        if match is None:
            raise InvalidArgument("cursor is not one that a response returned")
        return cls(int(match[1], 16), int(match[2], 16))


_ALL: Final = frozenset(EventType)
_OUTPUT: Final = frozenset({EventType.OUTPUT_DATA, EventType.OUTPUT_BATCH})
BEGINNING: Final = Position(0, 0)
"""The position before the first event of a job."""


@record
class EncodedEvent:
    """An event as stores keep it: its position and time beside an opaque payload."""

    first_sequence: int
    last_sequence: int
    first_timestamp: int
    last_timestamp: int
    event_type: EventType
    payload: bytes
    attempt: int = 0

    @property
    def position(self) -> Position:
        """The position after the event."""
        return Position(self.attempt, self.last_sequence)

    def of_attempt(self, attempt: int) -> EncodedEvent:
        """Return the event as one of an attempt."""
        return EncodedEvent(
            self.first_sequence,
            self.last_sequence,
            self.first_timestamp,
            self.last_timestamp,
            self.event_type,
            self.payload,
            attempt,
        )


def signal_name(number: int) -> str:
    """Return the name of the signal that ended a process; `signal N` for one that has none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def wanted_types(event_filter: frozenset[EventType]) -> frozenset[EventType]:
    """Return the types of events that a filter lets through; an empty one means all of them."""
    if not event_filter:
        return _ALL
    # A batch is output, whichever of the two names was asked for.
    return event_filter | _OUTPUT if event_filter & _OUTPUT else event_filter


def start_position(request: StreamRequest, current_attempt: int) -> Position:
    """Return the position after which the events of a valid request begin.

    `current_attempt` is that of the job, 0 before the first; it counts only where the request has a
    `from_sequence` and no attempt.
    """
    start = Position.from_cursor(request.cursor) if request.cursor else BEGINNING
    if not request.attempt and not request.from_sequence:
        return start
    attempt = request.attempt or max(1, current_attempt)
    return max(start, Position(attempt, max(0, request.from_sequence - 1)))


class StreamProgress:
    """How far a stream has come, and which single events of the next stored event it consists of."""

    def __init__(self, start: Position, from_timestamp: int = 0) -> None:
        self._passed = start.attempt, start.sequence
        self.last_timestamp = 0
        """That of the last event that was looked at; no later one of its attempt is dated before it."""
        self.from_timestamp = from_timestamp
        """From when on events are wanted; 0 once the first of them was found: all that follow are."""
        self._attempt = start.attempt

    @property
    def position(self) -> Position:
        """The position that the stream has come to."""
        return Position(*self._passed)

    def take(self, stored: EncodedEvent, event: Event) -> list[Event]:
        """Return the wanted ones of the single events of `event`, which `stored` holds, with their cursors.

        Wanted is what comes after the position and is not too old. Stored events must come in their order;
        one that came before has nothing that is wanted. Where the clock of a worker was set back between two
        publishes, events are dated like the last one before.
        """
        if stored.attempt != self._attempt:
            self._attempt, self.last_timestamp = stored.attempt, 0
        data = event.data
        if isinstance(data, OutputBatch):
            times = data.times(max(event.timestamp, self.last_timestamp))
            wanted = self._take(stored.attempt, data.start_sequence, times, data.outputs)
        elif type(data) is not Gap or event.last_sequence == event.sequence:
            wanted = self._take(stored.attempt, event.sequence, (event.timestamp,), (data,))
        else:
            wanted = self._take_whole(stored, event)
        self._passed = max(self._passed, (stored.attempt, stored.last_sequence))
        return wanted

    def is_whole(self, stored: EncodedEvent) -> bool:
        """Return whether all single events of a stored one are wanted, whenever they were written."""
        return not self.from_timestamp and self._passed < (stored.attempt, stored.first_sequence)

    def pass_over(self, stored: EncodedEvent, last_timestamp: int) -> None:
        """Go on behind a stored event that is taken as a whole; its last single event has this time."""
        if stored.attempt != self._attempt:
            self._attempt, self.last_timestamp = stored.attempt, 0
        self.last_timestamp = max(self.last_timestamp, last_timestamp)
        self._passed = stored.attempt, stored.last_sequence

    def take_batch(self, stored: EncodedEvent) -> bool:
        """Return whether any single event of a stored one is wanted; go on behind it.

        `stored` has the times of its events, none of them before `earliest` of its attempt.
        """
        if (stored.attempt, stored.last_sequence) <= self._passed:
            return False
        self.pass_over(stored, stored.last_timestamp)
        if stored.last_timestamp < self.from_timestamp:
            return False
        self.from_timestamp = 0
        return True

    def earliest(self, attempt: int) -> int:
        """Return the time before which no next event of an attempt is dated."""
        return self.last_timestamp if attempt == self._attempt else 0

    def _take(
        self, attempt: int, first: int, times: Sequence[int], datas: Sequence[EventData]
    ) -> list[Event]:
        """Return the wanted ones of events of consecutive sequences."""
        (current, last), latest = self._passed, self.last_timestamp
        # Sequences up to this one came before.
        seen = last if current == attempt else 0
        if current > attempt:
            seen = first + len(datas)
        wanted: list[Event] = []
        for sequence, (time, data) in enumerate(zip(times, datas, strict=True), first):
            latest = max(latest, time)
            if sequence > seen and latest >= self.from_timestamp:
                self.from_timestamp = 0
                wanted.append(Event(sequence, latest, data, attempt, f"{attempt:x}-{sequence:x}"))
        self.last_timestamp = latest
        return wanted

    def _take_whole(self, stored: EncodedEvent, event: Event) -> list[Event]:
        """Return an event that covers several sequences, if its last one is wanted."""
        self.last_timestamp = max(self.last_timestamp, event.timestamp)
        if (
            stored.attempt,
            stored.last_sequence,
        ) <= self._passed or self.last_timestamp < self.from_timestamp:
            return []
        self.from_timestamp = 0
        position = Position(stored.attempt, event.last_sequence)
        return [replace(event, timestamp=self.last_timestamp, attempt=stored.attempt, cursor=position.cursor)]


_TYPES: dict[type, EventType] = {
    Output: EventType.OUTPUT_DATA,
    OutputBatch: EventType.OUTPUT_BATCH,
    ProcessStart: EventType.PROCESS_START,
    ProcessEnd: EventType.PROCESS_END,
    ProcessError: EventType.PROCESS_ERROR,
    Gap: EventType.GAP,
    Progress: EventType.PROGRESS,
}
