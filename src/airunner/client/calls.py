"""Calls in the Connect protocol: messages as bodies, errors as our own."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from airunner.client.http.base import MAX_BODY_BYTES, ConnectionLost, Target
from airunner.codec.error_json import error_of_answer, error_of_end
from airunner.codec.errors import WireError, from_wire
from airunner.codec.methods import parse_answer
from airunner.domain.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

    from airunner.client.http.base import HttpStream, HttpTransport
    from airunner.codec.methods import Method

Q = TypeVar("Q", bound="WireMessage")
R = TypeVar("R")

_OK: Final = 200
_UNARY: Final = "application/proto"
_STREAM: Final = "application/connect+proto"
_PREFIX_BYTES: Final = 5
_COMPRESSED: Final = 1
_END: Final = 2


class WireMessage(Protocol):
    """A message of the wire."""

    def SerializeToString(self) -> bytes:  # noqa: N802  as protobuf calls it
        """Return its bytes."""


class Channel:
    """Calls to one server."""

    def __init__(self, address: str, transport: HttpTransport, headers: Mapping[str, str]) -> None:
        """`headers` go with every call."""
        self._address = address
        self._transport = transport
        self._headers = headers
        self._targets: dict[str, Target] = {}

    @property
    def address(self) -> str:
        """Where the server is."""
        return self._address

    async def call(self, method: Method[Q, R], request: Q, *, timeout_ms: int) -> R:
        """Return the answer to a request; see HttpTransport for what may go wrong on the way."""
        target = self._target(method.path, _UNARY)
        answer = await self._transport.send(target, request.SerializeToString(), timeout_ms=timeout_ms)
        content_type = answer.content_type
        if answer.status == _OK and content_type == _UNARY:
            return self._parse(method, answer.body)
        if answer.status == _OK:
            raise _wrong_type(content_type, _UNARY)
        raise self._refusal(error_of_answer(answer.status, content_type, answer.body))

    async def stream(self, method: Method[Q, R], request: Q) -> AsyncGenerator[list[R], None]:
        """Yield the messages of a stream, those together that came together, until it ends."""
        body = request.SerializeToString()
        framed = b"\0%b%b" % (len(body).to_bytes(4, "big"), body)
        answer = await self._transport.open(self._target(method.path, _STREAM), framed)
        async with aclosing(answer):
            if answer.status != _OK:
                told = error_of_answer(answer.status, answer.content_type, await _read_all(answer))
                raise self._refusal(told)
            if answer.content_type != _STREAM:
                raise _wrong_type(answer.content_type, _STREAM)
            frames = _Frames()
            while not frames.ended:
                piece = await answer.read()
                if not piece:
                    raise ConnectionLost(f"{self._address} went away: the stream ended without its end")
                bodies = frames.feed(piece)
                if bodies:
                    yield [self._parse(method, body) for body in bodies]
            # Read to the end, so that the connection can be used again.
            await _read_all(answer)
            if frames.error:
                raise self._refusal(frames.error)

    def _target(self, path: str, content_type: str) -> Target:
        target = self._targets.get(path)
        if target is None:
            more = {"content-type": content_type, "connect-protocol-version": "1"}
            target = self._targets[path] = Target(self._address, path, {**self._headers, **more})
        return target

    def _parse(self, method: Method[Q, R], body: bytes) -> R:
        message = parse_answer(method, body)
        if message is None:
            raise InternalError(f"{self._address} answered with a message that cannot be read")
        return message

    def _refusal(self, wire: WireError) -> Exception:
        if wire.code == "canceled":
            # Nobody here cancelled: it is the server that ends.
            return ConnectionLost(f"{self._address} went away: {wire.message}")
        return from_wire(wire)


class _Frames:
    """The messages of a stream, as they come; the last one tells how it ended."""

    def __init__(self) -> None:
        self._rest = b""
        self.ended = False
        self.error: WireError | None = None

    def feed(self, piece: bytes) -> Sequence[bytes]:
        """Return the messages that are whole by now. Raises InternalError for what is no message."""
        data = self._rest + piece if self._rest else piece
        if not data[0] and int.from_bytes(data[1:_PREFIX_BYTES], "big") == len(data) - _PREFIX_BYTES:
            # A line for a watcher who waits for it mostly comes by itself.
            self._rest = b""
            return (data[_PREFIX_BYTES:],)
        bodies: list[bytes] = []
        at, size = 0, len(data)
        while size - at >= _PREFIX_BYTES and not self.ended:
            flags = data[at]
            begin = at + _PREFIX_BYTES
            end = begin + int.from_bytes(data[at + 1 : begin], "big")
            _check_frame(flags, end - begin)
            if end > size:
                break
            if flags & _END:
                self.ended, self.error = True, error_of_end(data[begin:end])
            else:
                bodies.append(data[begin:end])
            at = end
        self._rest = data[at:] if at else data
        return bodies


def _check_frame(flags: int, size: int) -> None:
    if flags & ~(_END | _COMPRESSED):
        raise InternalError("protocol error: invalid envelope flags")
    if flags & _COMPRESSED:
        raise InternalError("protocol error: sent compressed message without compression support")
    if size > MAX_BODY_BYTES:
        raise InternalError(f"protocol error: a message of {size} bytes")


async def _read_all(answer: HttpStream) -> bytes:
    """Return the rest of an answer; no more than is of use."""
    pieces = bytearray()
    while len(pieces) <= MAX_BODY_BYTES and (piece := await answer.read()):
        pieces += piece
    return bytes(pieces)


def _wrong_type(content_type: str, expected: str) -> InternalError:
    return InternalError(f"invalid content-type: {content_type!r}; expecting {expected!r}")
