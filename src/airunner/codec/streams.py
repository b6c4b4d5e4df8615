"""Streams of events, to and from the messages of the wire: what is asked for, and what is answered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airunner.codec.building import refusing
from airunner.codec.enums import enum_from_pb, to_wire
from airunner.codec.events import event_to_pb
from airunner.codec.gen.job.v1 import job_pb2 as pb
from airunner.codec.packing import unpack_payload
from airunner.domain.event import EncodedEvent, EventType, Position
from airunner.domain.requests import StreamRequest

if TYPE_CHECKING:
    from airunner.domain.event import Event


@refusing
def stream_to_pb(request: StreamRequest) -> pb.StreamJobEventBatchesRequest:
    """Return the message that asks for stored batches, packed as they are."""
    return pb.StreamJobEventBatchesRequest(
        job_id=request.job_id,
        from_sequence=request.from_sequence,
        from_timestamp=request.from_timestamp,
        event_filter=map(to_wire, sorted(request.event_filter)),
        attempt=request.attempt,
        cursor=request.cursor,
        no_follow=not request.follow,
        accept_encodings=[pb.BATCH_ENCODING_ZSTD],
    )


def stream_from_pb(message: pb.StreamJobEventsRequest | pb.StreamJobEventBatchesRequest) -> StreamRequest:
    """Return which events are asked for."""
    return StreamRequest(
        job_id=message.job_id,
        from_sequence=message.from_sequence,
        from_timestamp=message.from_timestamp,
        event_filter=frozenset(
            enum_from_pb(EventType, number, "event_filter") for number in message.event_filter if number
        ),
        attempt=message.attempt,
        cursor=message.cursor,
        follow=not message.no_follow,
    )


def accepts_packed(message: pb.StreamJobEventBatchesRequest) -> bool:
    """Return whether the reader of a stream can unpack batches."""
    return pb.BATCH_ENCODING_ZSTD in message.accept_encodings


def streamed_to_pb(event: Event) -> pb.StreamJobEventsResponse:
    """Return the message of a streamed event."""
    return pb.StreamJobEventsResponse(event=event_to_pb(event))


def batch_to_pb(stored: EncodedEvent | None, *, packed: bool) -> pb.StreamJobEventBatchesResponse:
    """Return the message of a stored event, packed or unpacked for its reader; None is a sign of life."""
    if stored is None:
        return pb.StreamJobEventBatchesResponse()
    return pb.StreamJobEventBatchesResponse(
        attempt=stored.attempt,
        first_sequence=stored.first_sequence,
        last_sequence=stored.last_sequence,
        event=stored.payload if packed else unpack_payload(stored.payload),
        cursor=stored.position.cursor,
    )


def start_to_pb(position: Position) -> pb.StreamJobEventBatchesResponse:
    """Return the message that tells where a stream begins; to who does not know it, it is a sign of life."""
    return pb.StreamJobEventBatchesResponse(cursor=position.cursor)


def start_from_pb(message: pb.StreamJobEventBatchesResponse) -> Position | None:
    """Return where a stream begins, None if the message does not tell."""
    if message.first_sequence or not message.cursor:
        return None
    return Position.from_cursor(message.cursor)


def batch_from_pb(message: pb.StreamJobEventBatchesResponse, timestamp: int) -> EncodedEvent | None:
    """Return the stored event of a message, None for a sign of life.

    The wire tells neither time nor type beside the payload. They only matter when that cannot be decoded,
    so the event gets the timestamp that is given.
    """
    first = message.first_sequence
    if not first:
        return None
    return EncodedEvent(
        first,
        message.last_sequence,
        timestamp,
        timestamp,
        EventType.OUTPUT_BATCH,
        message.event,
        message.attempt,
    )
