"""Instants and durations to and from protobuf."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airunner.domain.errors import InvalidArgument
from airunner.domain.limits import MAX_INSTANT

if TYPE_CHECKING:
    from google.protobuf.duration_pb2 import Duration
    from google.protobuf.timestamp_pb2 import Timestamp

_MAX_NANOS = 999_999_999


def instant(message: Timestamp, field: str) -> int:
    """Return the Unix milliseconds of a timestamp; one that is unset is 0."""
    nanos = message.nanos
    if not 0 <= nanos <= _MAX_NANOS:
        raise InvalidArgument(f"{field} has invalid nanos")
    millis = message.seconds * 1000 + nanos // 1_000_000
    if not 0 <= millis <= MAX_INSTANT:
        raise InvalidArgument(f"{field} must be between the years 1970 and 9999")
    return millis


def set_instant(message: Timestamp, millis: int) -> None:
    """Set a timestamp of a message; 0 leaves it unset."""
    if millis:
        message.seconds, message.nanos = millis // 1000, millis % 1000 * 1_000_000


def duration_millis(message: Duration) -> int:
    """Return the milliseconds of a duration."""
    return message.seconds * 1000 + message.nanos // 1_000_000


def set_duration(message: Duration, millis: int) -> None:
    """Set a duration of a message."""
    message.seconds, message.nanos = millis // 1000, millis % 1000 * 1_000_000
