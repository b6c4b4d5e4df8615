"""Events to and from protobuf: messages for the wire, payloads for the stores.

A payload is an encoded JobEvent as it was published, so that stored batches pass through unparsed wherever
the reader can unpack them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from airunner.codec import packing
from airunner.codec.enums import enum_from_pb, to_wire
from airunner.codec.gen.job.v1 import job_pb2 as pb
from airunner.codec.instants import duration_millis, instant, set_duration, set_instant
from airunner.domain import limits
from airunner.domain.errors import InvalidArgument, NonMonotonicSequence
from airunner.domain.event import (
    DEFAULT_PLAYBACK_MS,
    EncodedEvent,
    Event,
    EventData,
    EventType,
    Gap,
    Output,
    OutputBatch,
    ProcessEnd,
    ProcessError,
    ProcessStart,
    Progress,
    StreamType,
)
from airunner.domain.record import altered

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_FIELD_TYPES = {
    "output_data": EventType.OUTPUT_DATA,
    "output_batch": EventType.OUTPUT_BATCH,
    "process_start": EventType.PROCESS_START,
    "process_end": EventType.PROCESS_END,
    "process_error": EventType.PROCESS_ERROR,
    "gap": EventType.GAP,
    "progress": EventType.PROGRESS,
}


_STREAMS = {int(stream): stream for stream in StreamType}
_WIRE_STREAMS = frozenset({pb.STREAM_TYPE_UNSPECIFIED, *_STREAMS})


def encode_event(event: Event) -> EncodedEvent:
    """Return an event of ours as stores keep it."""
    return admit_event(event_to_pb(event), event.timestamp)


def decode_event(encoded: EncodedEvent) -> Event:
    """Return the event of a stored payload; one that cannot be decoded is a Gap, not silence."""
    try:
        message = pb.JobEvent.FromString(encoded.payload)
        event = event_from_pb(message, attempt=encoded.attempt)
        _check_place(event, encoded)
    except (DecodeError, InvalidArgument, ValueError):
        gap = Gap(
            first_sequence=encoded.first_sequence,
            last_sequence=encoded.last_sequence,
            reason="the stored batch cannot be decoded",
        )
        return Event(
            sequence=encoded.first_sequence,
            timestamp=encoded.first_timestamp,
            data=gap,
            attempt=encoded.attempt,
        )
    return event


def whole_lines(encoded: EncodedEvent) -> tuple[bytes, int] | None:
    """Return the output of a stored payload, joined, and when its last part was written.

    None unless each part of it ends a line and has a time: `decode_event` is for everything else.
    """
    try:
        message = pb.JobEvent.FromString(encoded.payload)
        batch = message.output_batch
        parts = [item.output for item in packing.outputs(batch)]
    except (DecodeError, InvalidArgument):
        return None
    place = (message.sequence, batch.start_sequence, batch.end_sequence, len(parts), len(batch.timestamps))
    first, last = encoded.first_sequence, encoded.last_sequence
    if place != (first, first, last, last - first + 1, last - first + 1):
        return None
    if not all([part.endswith(b"\n") for part in parts]):  # noqa: C419  a list is faster
        return None
    return b"".join(parts), batch.timestamps[-1]


def dated(encoded: EncodedEvent, not_before: int) -> EncodedEvent:
    """Return a stored event with the type and the times of its payload, whose outputs stay packed.

    No time is before `not_before`. An event that cannot be read keeps its times, and is a gap.
    """
    try:
        message = pb.JobEvent.FromString(encoded.payload)
        kind = _FIELD_TYPES[message.WhichOneof("event_data") or "gap"]
        at = max(instant(message.timestamp, "timestamp"), not_before)
    except (DecodeError, InvalidArgument):
        return altered(encoded, event_type=EventType.GAP)
    times: Sequence[int] = (at,)
    if kind is EventType.OUTPUT_BATCH:
        batch, count = message.output_batch, encoded.last_sequence - encoded.first_sequence + 1
        times = batch.timestamps or _simulated(batch, at, count)
    first_at, last_at = max(times[0], not_before), max(times[-1], not_before)
    return altered(encoded, event_type=kind, first_timestamp=first_at, last_timestamp=last_at)


def encode_events(events: Iterable[Event]) -> list[EncodedEvent]:
    """Return the events of one publish of ours as stores keep them, checked like those of the wire."""
    return admit_events(map(event_to_pb, events), 0)


def admit_events(messages: Iterable[pb.JobEvent], now: int) -> list[EncodedEvent]:
    """Check the events of a publish, each by itself and their order, and return them as stores keep them.

    Neither sequences nor timestamps may run backwards. What has no timestamp gets `now`, or that of the event
    before it if that is later.
    """
    admitted: list[EncodedEvent] = []
    last_sequence = last_at = 0
    for message in messages:
        event = admit_event(message, max(now, last_at))
        if event.first_sequence <= last_sequence:
            raise NonMonotonicSequence(
                f"non-monotonic sequence: {last_sequence} is followed by {event.first_sequence}"
            )
        if event.first_timestamp < last_at:
            raise InvalidArgument(f"event {event.first_sequence}: timestamps must not run backwards")
        # Times that are only simulated bind nobody.
        simulated = event.event_type is EventType.OUTPUT_BATCH and not message.output_batch.timestamps
        last_at = event.first_timestamp if simulated else event.last_timestamp
        last_sequence = event.last_sequence
        admitted.append(event)
    return admitted


def admit_event(message: pb.JobEvent, now: int) -> EncodedEvent:
    """Check one event of the wire and return it as stores keep it; without a timestamp it gets `now`."""
    sequence = limits.check_range(message.sequence, "sequence", 1, limits.MAX_SEQUENCE)
    kind = _kind(message)
    last, stamps = sequence, None
    if kind is EventType.OUTPUT_BATCH:
        last, stamps = _check_batch(message)
    else:
        last = _check_data(message, kind)
    if message.attempt or message.cursor:
        message.ClearField("attempt")
        message.ClearField("cursor")
    if not message.HasField("timestamp"):
        set_instant(message.timestamp, now)
    first_at = instant(message.timestamp, "timestamp")
    payload = message.SerializeToString()
    if len(payload) > limits.MAX_EVENT_BYTES:
        raise InvalidArgument(
            f"an event must have at most {limits.MAX_EVENT_BYTES} bytes, not {len(payload)}"
        )
    first_at, last_at = (stamps[0], stamps[-1]) if stamps else (first_at, first_at)
    return EncodedEvent(sequence, last, first_at, last_at, kind, payload)


def event_to_pb(event: Event) -> pb.JobEvent:
    """Return the message of an event."""
    message = _head(event)
    _set_data(message, event.data)
    return message


def event_to_packed_pb(event: Event) -> pb.JobEvent:
    """Return the message of an event, a batch made as small as it gets."""
    if not isinstance(event.data, OutputBatch):
        return event_to_pb(event)
    message = _head(event)
    _set_batch(message.output_batch, event.data)
    packing.pack(message.output_batch, _encode_outputs(event.data))
    return message


def event_to_json(event: Event) -> str:
    """Return an event in the JSON of the contract, on one line."""
    from google.protobuf.json_format import (
        MessageToJson,
    )  # late: of clients, only those that print JSON use it

    return MessageToJson(event_to_pb(event), indent=None)


def event_from_pb(message: pb.JobEvent, *, attempt: int = 0) -> Event:
    """Return the event of a message."""
    return Event(
        message.sequence,
        instant(message.timestamp, "timestamp"),
        _data(message),
        attempt or message.attempt,
        message.cursor,
    )


def _head(event: Event) -> pb.JobEvent:
    message = pb.JobEvent(
        sequence=event.sequence,
        event_type=to_wire(event.event_type),
        attempt=event.attempt,
        cursor=event.cursor,
    )
    set_instant(message.timestamp, event.timestamp)
    return message


def _check_place(event: Event, encoded: EncodedEvent) -> None:
    """Refuse an event that can be decoded, but is not the one of its place."""
    if event.sequence != encoded.first_sequence or event.last_sequence != encoded.last_sequence:
        raise InvalidArgument("the event is of another place")
    data = event.data
    if isinstance(data, OutputBatch):
        count = data.end_sequence - event.sequence + 1
        if data.start_sequence != event.sequence or len(data.outputs) != count:
            raise InvalidArgument("the batch is of another place")
        if len(data.timestamps) not in (0, count):
            raise InvalidArgument("the batch is not whole")


def _kind(message: pb.JobEvent) -> EventType:
    field = message.WhichOneof("event_data")
    if field is None:
        raise InvalidArgument(f"event {message.sequence} has no event_data")
    kind, number = _FIELD_TYPES[field], message.event_type
    if number == pb.EVENT_TYPE_UNSPECIFIED:
        message.event_type = to_wire(kind)
    elif number != to_wire(kind):
        raise InvalidArgument(f"event {message.sequence}: event_type does not fit {field}")
    return kind


def _check_batch(message: pb.JobEvent) -> tuple[int, Sequence[int]]:
    """Check a batch against itself; return its last sequence and its timestamps."""
    batch = message.output_batch
    items = packing.outputs(batch)
    count = len(items)
    if not 1 <= count <= limits.MAX_BATCH_EVENTS:
        raise InvalidArgument(f"a batch must have 1 to {limits.MAX_BATCH_EVENTS} outputs, not {count}")
    if batch.start_sequence != message.sequence or batch.end_sequence - batch.start_sequence + 1 != count:
        raise InvalidArgument(
            f"batch {message.sequence}: {batch.start_sequence} to {batch.end_sequence} is not {count} outputs"
        )
    stamps = batch.timestamps
    if stamps and len(stamps) != count:
        raise InvalidArgument(f"batch {message.sequence} must have a timestamp for each output, or none")
    if not {item.stream for item in items} <= _WIRE_STREAMS:
        raise InvalidArgument(f"batch {message.sequence} has an unknown stream")
    ordered = list(stamps)
    if not stamps and message.HasField("timestamp"):
        ordered = _simulated(batch, instant(message.timestamp, "timestamp"), count)
    if ordered != sorted(ordered) or (ordered and not 0 <= ordered[0] <= ordered[-1] <= limits.MAX_INSTANT):
        raise InvalidArgument(f"batch {message.sequence}: timestamps must not run backwards")
    return batch.end_sequence, ordered


def _simulated(batch: pb.OutputBatchEvent, first: int, count: int) -> list[int]:
    """Return the first and the last of the times that a batch without any will be given."""
    return [first, first + (count - 1) * (batch.playback_interval_millis or DEFAULT_PLAYBACK_MS)]


def _check_data(message: pb.JobEvent, kind: EventType) -> int:
    """Refuse what could not be read again; return the last sequence. What can be read now can be for ever."""
    if kind is EventType.GAP:
        return _check_gap(message.sequence, message.gap)
    if kind is EventType.OUTPUT_DATA:
        enum_from_pb(StreamType, message.output_data.stream or StreamType.STDOUT, "stream")
    elif kind is EventType.PROCESS_START:
        instant(message.process_start.started_at, "started_at")
    return message.sequence


def _check_gap(sequence: int, gap: pb.GapEvent) -> int:
    if gap.first_sequence != sequence or gap.last_sequence < gap.first_sequence:
        raise InvalidArgument(f"gap {sequence} must begin at its own sequence")
    return limits.check_range(gap.last_sequence, "last_sequence", 1, limits.MAX_SEQUENCE)


def _stream(value: int) -> StreamType:
    return _STREAMS.get(value, StreamType.STDOUT)


def _data(message: pb.JobEvent) -> EventData:
    match message.WhichOneof("event_data"):
        case "output_data":
            return Output(message.output_data.output, _stream(message.output_data.stream))
        case "output_batch":
            return _batch(message.output_batch)
        case "process_start":
            start = message.process_start
            return ProcessStart(
                pid=start.pid,
                started_at=instant(start.started_at, "started_at"),
                worker_id=start.worker_id,
            )
        case "process_end":
            end = message.process_end
            return ProcessEnd(
                pid=end.pid,
                exit_code=end.exit_code,
                run_duration_ms=duration_millis(end.run_duration),
                event_count=end.event_count,
                output_sha256=end.output_sha256,
            )
        case "process_error":
            return ProcessError(error_message=message.process_error.error_message)
        case "gap":
            gap = message.gap
            return Gap(first_sequence=gap.first_sequence, last_sequence=gap.last_sequence, reason=gap.reason)
        case "progress":
            progress = message.progress
            return Progress(done=progress.done, total=progress.total, message=progress.message)
    raise InvalidArgument("the event has no event_data")


def _batch(batch: pb.OutputBatchEvent) -> OutputBatch:
    return OutputBatch(
        outputs=tuple(
            [
                Output(item.output, _STREAMS.get(item.stream, StreamType.STDOUT))
                for item in packing.outputs(batch)
            ]
        ),
        start_sequence=batch.start_sequence,
        end_sequence=batch.end_sequence,
        timestamps=tuple(batch.timestamps),
        playback_interval_millis=batch.playback_interval_millis,
    )


def _set_data(message: pb.JobEvent, data: EventData) -> None:
    match data:
        case Output():
            message.output_data.output = data.output
            message.output_data.stream = to_wire(data.stream)
        case OutputBatch():
            _set_batch(message.output_batch, data)
            message.output_batch.MergeFromString(_encode_outputs(data))
        case ProcessStart():
            message.process_start.pid = data.pid
            set_instant(message.process_start.started_at, data.started_at)
            message.process_start.worker_id = data.worker_id
        case ProcessEnd():
            end = message.process_end
            end.pid, end.exit_code = data.pid, data.exit_code
            end.event_count, end.output_sha256 = data.event_count, data.output_sha256
            set_duration(end.run_duration, data.run_duration_ms)
        case ProcessError():
            message.process_error.error_message = data.error_message
        case Gap():
            gap = message.gap
            gap.first_sequence, gap.last_sequence, gap.reason = (
                data.first_sequence,
                data.last_sequence,
                data.reason,
            )
        case Progress():
            progress = message.progress
            progress.done, progress.total, progress.message = data.done, data.total, data.message


def _set_batch(message: pb.OutputBatchEvent, batch: OutputBatch) -> None:
    message.start_sequence, message.end_sequence = batch.start_sequence, batch.end_sequence
    message.timestamps.extend(batch.timestamps)
    message.playback_interval_millis = batch.playback_interval_millis


def _encode_outputs(batch: OutputBatch) -> bytes:
    """Return the encoding of a batch that has these outputs and nothing else.

    To put what is around each into its place takes half as long as to make an object of it.
    """
    parts: list[bytes] = []
    for output in batch.outputs:
        before, behind = _around_output(len(output.output), output.stream)
        parts += before, output.output, behind
    return b"".join(parts)


@lru_cache(maxsize=4096)
def _around_output(size: int, stream: StreamType) -> tuple[bytes, bytes]:
    """Return what stands before and behind an output of so many bytes in the encoding of its batch."""
    item = pb.OutputItem(output=bytes(size), stream=to_wire(stream))
    encoded = pb.OutputBatchEvent(outputs=[item]).SerializeToString()
    # No byte before the output is zero, and an empty one is left out.
    start = encoded.find(0) if size else len(encoded)
    return encoded[:start], encoded[start + size :]
