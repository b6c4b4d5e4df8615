"""Streams of events on bare sockets, which read when a test says so and break when it wants them to."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from typing import Protocol
from urllib.parse import urlsplit

from google.protobuf.json_format import Parse

from airunner.codec.events import decode_event, event_from_pb
from airunner.codec.gen.job.v1 import job_pb2 as pb
from airunner.domain.batching import unpack
from airunner.domain.event import EncodedEvent, Event, EventType

_ENVELOPE = struct.Struct(">BI")
_END_OF_STREAM = 2
_BATCHES = "/job.v1.JobEventsService/StreamJobEventBatches"
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
# The kernel keeps little for a reader that does not read, so that its server soon has to wait.
_STALLED_BUFFER = 16 * 1024
_READING_BUFFER = 1024 * 1024


class Broken(Exception):
    """The connection ended before the answer did."""


class RawStream:
    """One answer as it comes from a socket: its head at once, its body when it is asked for."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._buffer = bytearray()
        self.status = 0

    @classmethod
    async def open(cls, url: str, request: bytes) -> RawStream:
        """Send a request and read the head of its answer, and no more than came with it."""
        loop = asyncio.get_running_loop()
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _STALLED_BUFFER)
        sock.setblocking(False)
        stream = cls(sock)
        try:
            parts = urlsplit(url)
            await loop.sock_connect(sock, (parts.hostname, parts.port))
            await loop.sock_sendall(sock, request)
            head = await stream._until(b"\r\n\r\n")
        except BaseException:
            stream.close()
            raise
        stream.status = int(head.split(b" ", 2)[1])
        return stream

    async def body(self) -> AsyncIterator[bytes]:
        """Yield the pieces of the body as the server sent them, to its end."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _READING_BUFFER)
        while size := int(await self._until(b"\r\n"), 16):
            yield await self._exactly(size)
            await self._exactly(2)

    def close(self) -> None:
        """Leave, as a client does that has seen enough."""
        self._socket.close()

    def reset(self) -> None:
        """Break the connection."""
        if self._socket.fileno() >= 0:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self._socket.close()

    async def _until(self, mark: bytes) -> bytes:
        while (found := self._buffer.find(mark)) < 0:
            await self._fill()
        return (await self._exactly(found + len(mark)))[:found]

    async def _exactly(self, size: int) -> bytes:
        while len(self._buffer) < size:
            await self._fill()
        piece = bytes(self._buffer[:size])
        del self._buffer[:size]
        return piece

    async def _fill(self) -> None:
        try:
            piece = await asyncio.get_running_loop().sock_recv(self._socket, _READING_BUFFER)
        except OSError as error:
            raise Broken from error
        if not piece:
            raise Broken
        self._buffer += piece


class RawReader(Protocol):
    """A reader of one job's events on one connection."""

    stream: RawStream

    def events(self) -> AsyncIterator[list[Event]]:
        """Yield what comes, to the end that the server announces; Broken when there is none."""


class BatchReader:
    """StreamJobEventBatches."""

    def __init__(self, stream: RawStream) -> None:
        self.stream = stream

    @classmethod
    async def open(cls, url: str, key: str, job_id: str) -> BatchReader:
        message = pb.StreamJobEventBatchesRequest(job_id=job_id).SerializeToString()
        body = _ENVELOPE.pack(0, len(message)) + message
        head = _head("POST", _BATCHES, key, "content-type: application/connect+proto", _length(body))
        return cls(await RawStream.open(url, head + body))

    async def events(self) -> AsyncIterator[list[Event]]:
        async for flags, message in self._messages():
            if flags & _END_OF_STREAM:
                assert message == b"{}", message
                return
            if events := _events_of(pb.StreamJobEventBatchesResponse.FromString(message)):
                yield events
        raise Broken

    async def _messages(self) -> AsyncIterator[tuple[int, bytes]]:
        kept = bytearray()
        async for piece in self.stream.body():
            kept += piece
            while len(kept) >= _ENVELOPE.size:
                flags, size = _ENVELOPE.unpack_from(kept)
                if len(kept) < _ENVELOPE.size + size:
                    break
                yield flags, bytes(kept[_ENVELOPE.size : _ENVELOPE.size + size])
                del kept[: _ENVELOPE.size + size]


class SseReader:
    """Server-sent events. `last_id` is what a browser would send when it comes back."""

    def __init__(self, stream: RawStream) -> None:
        self.stream = stream
        self.last_id = ""

    @classmethod
    async def open(cls, url: str, key: str, job_id: str, *, last_id: str = "", query: str = "") -> SseReader:
        resume = (f"last-event-id: {last_id}",) if last_id else ()
        head = _head("GET", f"/v1/jobs/{job_id}/events{query}", key, *resume)
        reader = cls(await RawStream.open(url, head))
        reader.last_id = last_id
        return reader

    async def events(self) -> AsyncIterator[list[Event]]:
        kept = b""
        async for piece in self.stream.body():
            *messages, kept = (kept + piece).split(b"\n\n")
            for fields in map(_fields, messages):
                if fields.get("event") == "end":
                    return
                if "data" in fields:
                    self.last_id = fields["id"]
                    yield [event_from_pb(Parse(fields["data"], pb.JobEvent()))]
        raise Broken


def _events_of(message: pb.StreamJobEventBatchesResponse) -> list[Event]:
    if not message.first_sequence:
        return []
    stored = EncodedEvent(
        first_sequence=message.first_sequence,
        last_sequence=message.last_sequence,
        first_timestamp=0,
        last_timestamp=0,
        event_type=EventType.OUTPUT_BATCH,
        payload=message.event,
        attempt=message.attempt,
    )
    return unpack(decode_event(stored))


def _fields(message: bytes) -> dict[str, str]:
    return dict(_field(line) for line in message.decode().splitlines())


def _field(line: str) -> tuple[str, str]:
    name, _, value = line.partition(": ")
    return name, value


def _head(method: str, path: str, key: str, *headers: str) -> bytes:
    lines = (f"{method} {path} HTTP/1.1", "host: 127.0.0.1", f"authorization: Bearer {key}", *headers)
    return "".join(f"{line}\r\n" for line in lines).encode() + b"\r\n"


def _length(body: bytes) -> str:
    return f"content-length: {len(body)}"
