"""What a watcher has read of a job, and what it asks for next."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, TypeVar

from airunner.client.stored_batch import StoredBatch
from airunner.codec.events import dated, decode_event, whole_lines
from airunner.codec.streams import batch_from_pb, stream_to_pb
from airunner.domain.event import BEGINNING, Output, StreamProgress

if TYPE_CHECKING:
    from airunner.codec.gen.job.v1 import job_pb2 as pb
    from airunner.domain.event import EncodedEvent, Event, Position, StreamType
    from airunner.domain.requests import StreamRequest

T_co = TypeVar("T_co", covariant=True)


class Log(Protocol[T_co]):
    """What is made of the messages of a stream."""

    def resume(self) -> pb.StreamJobEventBatchesRequest:
        """Return the request for what comes after the last batch."""

    def take(self, message: pb.StreamJobEventBatchesResponse) -> T_co | None:
        """Return what is wanted and new of a message; what is false is nothing."""


class _StoredLog:
    """The stored events of a job, one after another."""

    def __init__(self, request: StreamRequest, start: Position) -> None:
        self._request = request
        self._progress = StreamProgress(start, request.from_timestamp)

    def resume(self) -> pb.StreamJobEventBatchesRequest:
        """Return the request for what comes after the last batch."""
        position = self._progress.position
        cursor = "" if position == BEGINNING else position.cursor
        since = self._progress.from_timestamp
        return stream_to_pb(replace(self._request, from_sequence=0, from_timestamp=since, cursor=cursor))

    def _stored(self, message: pb.StreamJobEventBatchesResponse) -> EncodedEvent | None:
        return batch_from_pb(message, max(self._progress.last_timestamp, self._request.from_timestamp))


class WatchedLog(_StoredLog):
    """A log read as single events."""

    def take(self, message: pb.StreamJobEventBatchesResponse) -> list[Event]:
        """Return the events of a message that are wanted and new; a sign of life has none."""
        stored = self._stored(message)
        return [] if stored is None else self._progress.take(stored, decode_event(stored))


class BatchLog(_StoredLog):
    """A log read as it is stored."""

    def take(self, message: pb.StreamJobEventBatchesResponse) -> StoredBatch | None:
        """Return the stored event of a message, whole, if any of it is wanted and new."""
        stored = self._stored(message)
        if stored is None:
            return None
        stored = dated(stored, self._progress.earliest(stored.attempt))
        return StoredBatch.of(stored) if self._progress.take_batch(stored) else None


class OutputLog(_StoredLog):
    """A log read as output: no object is made for a line where none is needed."""

    def __init__(self, request: StreamRequest, start: Position) -> None:
        super().__init__(request, start)
        # The streams whose last output did not end its line.
        self._unended: set[StreamType] = set()
        self._attempt = 0

    def take(self, message: pb.StreamJobEventBatchesResponse) -> bytes | list[Event]:
        """Return the output of a message, or its events where a line may begin or end elsewhere."""
        stored = self._stored(message)
        if stored is None:
            return b""
        lines = None if self._unended or not self._progress.is_whole(stored) else whole_lines(stored)
        if lines is None:
            return self._noted(self._progress.take(stored, decode_event(stored)))
        self._progress.pass_over(stored, lines[1])
        return lines[0]

    def _noted(self, events: list[Event]) -> list[Event]:
        for event in events:
            if event.attempt != self._attempt:
                self._attempt = event.attempt
                self._unended.clear()
            if isinstance(event.data, Output) and event.data.output:
                ends = event.data.output.endswith(b"\n")
                (self._unended.discard if ends else self._unended.add)(event.data.stream)
        return events
