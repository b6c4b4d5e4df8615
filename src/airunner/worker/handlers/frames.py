"""What a worker and its handler processes tell each other: JSON behind its length, over a socket."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

_LENGTH: Final = struct.Struct(">I")
_CHUNK_BYTES: Final = 256 * 1024
_MAX_BYTES: Final = 64 * 1024 * 1024


def encode(*message: object) -> bytes:
    """Return a message as it goes over the socket."""
    text = json.dumps(message).encode()
    return _LENGTH.pack(len(text)) + text


def receive(connection: socket.socket) -> Iterator[list[Any]]:
    """Yield messages until the other end is gone, or sends what is none."""
    received = bytearray()
    while _fill(received, _LENGTH.size, connection):
        end = _LENGTH.size + _LENGTH.unpack_from(received)[0]
        if end > _MAX_BYTES or not _fill(received, end, connection):
            return
        try:
            message = json.loads(received[_LENGTH.size : end])
        except ValueError:
            return
        if not (isinstance(message, list) and message):
            return
        del received[:end]
        yield message


def _fill(received: bytearray, length: int, connection: socket.socket) -> bool:
    """Receive until there are so many bytes; False if there will not be."""
    while len(received) < length:
        try:
            chunk = connection.recv(_CHUNK_BYTES)
        except OSError:  # reset by the other end, or closed by ours
            return False
        if not chunk:
            return False
        received += chunk
    return True
