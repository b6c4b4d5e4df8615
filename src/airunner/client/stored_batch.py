"""A batch as the server stores it, for readers that unpack, keep and find events in their own way."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

from airunner.codec.events import decode_event
from airunner.domain.event import EncodedEvent, Output, OutputBatch, Position, StreamProgress

if TYPE_CHECKING:
    from airunner.domain.event import Event, EventType


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBatch:
    """A stored batch of outputs, or a stored single event: its place, its times, and its packed payload.

    It is unpacked whenever its contents are asked for; what cannot be unpacked is a Gap. Times are those of
    the events that `monitor` yields: within an attempt, none is before that of an earlier batch.
    """

    attempt: int
    first_sequence: int
    last_sequence: int
    first_timestamp: int
    last_timestamp: int
    event_type: EventType
    """OUTPUT_BATCH for a batch; it is known without unpacking."""
    cursor: str
    """The position after its last event: a stream with this cursor goes on behind it."""
    payload: bytes = field(repr=False)
    """An encoded JobEvent of the contract, as it was published; the outputs of a batch may be compressed."""

    @classmethod
    def of(cls, stored: EncodedEvent) -> Self:
        """Return a stored event that has its times."""
        return cls(
            attempt=stored.attempt,
            first_sequence=stored.first_sequence,
            last_sequence=stored.last_sequence,
            first_timestamp=stored.first_timestamp,
            last_timestamp=stored.last_timestamp,
            event_type=stored.event_type,
            cursor=stored.position.cursor,
            payload=stored.payload,
        )

    def decode(self) -> Event:
        """Return all of it as one event; the `data` of a batch is an OutputBatch. EventBuffer takes it."""
        return replace(decode_event(self._stored()), timestamp=self.first_timestamp, cursor=self.cursor)

    def outputs(self) -> tuple[Output, ...]:
        """Return its outputs, in order; an event that is no output has none."""
        data = self.decode().data
        if isinstance(data, OutputBatch):
            return data.outputs
        return (data,) if isinstance(data, Output) else ()

    def events(self) -> list[Event]:
        """Return its single events, as `monitor` yields them: each with its own time and cursor."""
        progress = StreamProgress(Position(self.attempt, self.first_sequence - 1))
        progress.last_timestamp = self.first_timestamp
        stored = self._stored()
        return progress.take(stored, decode_event(stored))

    def _stored(self) -> EncodedEvent:
        return EncodedEvent(
            self.first_sequence,
            self.last_sequence,
            self.first_timestamp,
            self.last_timestamp,
            self.event_type,
            self.payload,
            self.attempt,
        )
