"""Events as records of a file: packed as on the wire, each with its length, its sequences and a checksum."""

from __future__ import annotations

import struct
import zlib
from typing import IO, TYPE_CHECKING, Final

from airunner.codec.events import event_to_packed_pb
from airunner.domain.event import EncodedEvent, Event, EventType

if TYPE_CHECKING:
    from collections.abc import Iterator

# Length of the payload and checksum of all that follows; first and last sequence, type and timestamp.
_FRAME: Final = struct.Struct(">II")
_HEADER: Final = struct.Struct(">QQHq")

# More than any event has: a greater length is damage.
_MAX_PAYLOAD_BYTES: Final = 64 * 1024 * 1024


def record_of(event: Event) -> bytes:
    """Return an event as a record; a batch is one."""
    payload = event_to_packed_pb(event).SerializeToString()
    header = _HEADER.pack(event.sequence, event.last_sequence, event.event_type, event.timestamp)
    return _FRAME.pack(len(payload), _checksum(header, payload)) + header + payload


def read_records(file: IO[bytes]) -> Iterator[EncodedEvent]:
    """Yield the records that are as they were written; what is damaged is passed over.

    A damaged length hides the records after it too: the caller has to find out what is missing.
    """
    while len(frame := file.read(_FRAME.size)) == _FRAME.size:
        length, checksum = _FRAME.unpack(frame)
        if length > _MAX_PAYLOAD_BYTES:
            return
        header, payload = file.read(_HEADER.size), file.read(length)
        if len(payload) == length and _checksum(header, payload) == checksum:
            yield _encoded(header, payload)


def _checksum(header: bytes, payload: bytes) -> int:
    return zlib.crc32(payload, zlib.crc32(header))


def _encoded(header: bytes, payload: bytes) -> EncodedEvent:
    first, last, kind, timestamp = _HEADER.unpack(header)
    return EncodedEvent(
        first_sequence=first,
        last_sequence=last,
        first_timestamp=timestamp,
        last_timestamp=timestamp,
        event_type=EventType(kind),
        payload=payload,
    )
