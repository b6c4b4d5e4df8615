"""Streams of stored batches, a page in one write: the library would write, and wake its reader, for each.

What is answered is what the library answers. A request that is in the least unusual is the library's.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any, Final

from airunner.codec.error_json import error_to_end
from airunner.codec.errors import WireError, http_headers, to_wire
from airunner.codec.methods import STREAM_JOB_EVENT_BATCHES, parse_request
from airunner.codec.streams import accepts_packed, batch_to_pb, start_to_pb, stream_from_pb
from airunner.domain.errors import AirunnerError, DeadlineExceeded, InternalError, InvalidArgument
from airunner.rpc.thin import is_plain
from airunner.services.admission import RequestBody
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from airunner.codec.gen.job.v1 import job_pb2 as pb
    from airunner.domain.event import EncodedEvent
    from airunner.rpc.entrance import Entrance
    from airunner.services.admission import Admission
    from airunner.services.events import EventService
    from airunner.services.streams.shared_pages import StreamedPage

    Scope = dict[str, Any]
    Receive = Callable[[], Awaitable[dict[str, Any]]]
    Send = Callable[[dict[str, Any]], Awaitable[None]]
    AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]
    WriteNow = Callable[[bytes], bool]

WRITE_NOW: Final = "airunner.write_now"
"""An extension of a scope, and what is in it: a call that writes a piece of a body, or False if it cannot."""
_log = get_logger("airunner.rpc")

_NAME: Final = STREAM_JOB_EVENT_BATCHES.name
_PREFIX_BYTES: Final = 5
_SIGN_OF_LIFE: Final = bytes(_PREFIX_BYTES)
_HEADERS: Final = [
    (b"content-type", b"application/connect+proto"),
    (b"connect-content-encoding", b"identity"),
]


class JoinedStreams:
    """An application before JobEventsService: it answers StreamJobEventBatches as our clients ask for it."""

    def __init__(
        self, service: EventService, entrance: Entrance, admission: Admission, otherwise: AsgiApp
    ) -> None:
        """`otherwise` is the library's application, which answers everything else."""
        self._service = service
        self._entrance = entrance
        self._admission = admission
        self._otherwise = otherwise

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"]) if scope.get("path") == STREAM_JOB_EVENT_BATCHES.path else {}
        if not _is_usual(scope, headers):
            await self._otherwise(scope, receive, send)
            return
        first = await receive()
        request = _read(first)
        if request is None:
            await self._otherwise(scope, _again(first, receive), send)
            return
        stream = _StreamAnswer(scope, headers, len(first["body"]), send)
        await stream.run(receive, lambda: self._pages(stream, request))

    async def _pages(self, stream: _StreamAnswer, request: pb.StreamJobEventBatchesRequest) -> None:
        counted = RequestBody(self._admission, _NAME)
        token = await self._entrance.enter(_NAME, stream.authorization, stream.address, stream.size_bytes)
        try:
            counted.add(stream.size_bytes)
            packed, asked = accepts_packed(request), stream_from_pb(request)
            start = await self._service.start_position(asked)
            untold = _frame(start_to_pb(start).SerializeToString()) if asked.is_relative else b""
            framing = _framing(packed=packed)

            def deliver(page: StreamedPage) -> bool:
                return stream.write_now(page.once(packed, framing))

            async with aclosing(self._service.stream_pages(asked, start, deliver)) as pages:
                async for page in pages:
                    frames = page.once(packed, framing) if page else _SIGN_OF_LIFE
                    await stream.write(untold + frames)
                    untold = b""
        finally:
            counted.forget()
            if token:
                token.close()


class _StreamAnswer:
    """One answer: its messages, and the last one that tells how it ended."""

    def __init__(self, scope: Scope, headers: Mapping[bytes, bytes], size_bytes: int, send: Send) -> None:
        self._send = send
        extensions = scope.get("extensions") or {}
        self._write_now: WriteNow | None = extensions.get(WRITE_NOW, {}).get(WRITE_NOW)
        self._is_begun = False
        self._is_deserted = False
        self.size_bytes = size_bytes
        self.authorization = headers.get(b"authorization", b"").decode("latin-1")
        client = scope.get("client")
        self.address = client[0] if client else ""
        timeout = headers.get(b"connect-timeout-ms", b"")
        self._seconds = int(timeout) / 1000 if timeout else None

    async def run(self, receive: Receive, work: Callable[[], Awaitable[None]]) -> None:
        """Do the work while somebody reads, and tell how it ended. A reader who has gone cancels it."""
        task = asyncio.current_task()
        watching = asyncio.create_task(self._watch(receive, task))
        deadline = asyncio.timeout(self._seconds)
        error: AirunnerError | None = None
        try:
            async with deadline:
                await work()
        except AirunnerError as refusal:
            error = refusal
        except asyncio.CancelledError:
            if not self._is_deserted:
                await self._end(WireError("canceled", "Request was cancelled"), {})
                raise
            if task:
                task.uncancel()
            return
        except Exception as failure:  # noqa: BLE001  whatever it is, the caller only learns that it happened
            if isinstance(failure, TimeoutError) and deadline.expired():
                error = DeadlineExceeded("Request timed out")
            else:
                _log.error("rpc.failed", method=_NAME, exc_info=failure)
                error = InternalError()
        finally:
            watching.cancel()
        await self._end(to_wire(error) if error else None, http_headers(error) if error else {})

    async def write(self, frames: bytes) -> None:
        """Write messages in one piece."""
        await self._begin({})
        await self._send({"type": "http.response.body", "body": frames, "more_body": True})

    def write_now(self, frames: bytes) -> bool:
        """Write messages before anybody else goes on; False if that cannot be done: nothing is written."""
        return self._write_now is not None and self._is_begun and self._write_now(frames)

    async def _watch(self, receive: Receive, task: asyncio.Task[Any] | None) -> None:
        with suppress(Exception):
            while (await receive())["type"] != "http.disconnect":
                pass
        if task:
            self._is_deserted = True
            task.cancel()

    async def _begin(self, more: Mapping[str, str]) -> None:
        if self._is_begun:
            return
        self._is_begun = True
        headers = [*_HEADERS, *((name.encode(), value.encode()) for name, value in more.items())]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})

    async def _end(self, wire: WireError | None, more: Mapping[str, str]) -> None:
        await self._begin(more)
        frame = _frame(error_to_end(wire), flags=2)
        await self._send({"type": "http.response.body", "body": frame, "more_body": False})


def _is_usual(scope: Scope, headers: Mapping[bytes, bytes]) -> bool:
    return (
        scope.get("method") == "POST"
        and headers.get(b"content-type") == b"application/connect+proto"
        and is_plain(headers, scope["headers"], encodings="connect-")
    )


def _read(message: dict[str, Any]) -> pb.StreamJobEventBatchesRequest | None:
    """Return the request of a body that came whole; None for one that did not, or that cannot be read."""
    body: bytes = message.get("body", b"")
    if message["type"] != "http.request" or message.get("more_body"):
        return None
    if len(body) < _PREFIX_BYTES or body[0] or int.from_bytes(body[1:5], "big") != len(body) - _PREFIX_BYTES:
        return None
    try:
        return parse_request(STREAM_JOB_EVENT_BATCHES, body[_PREFIX_BYTES:])
    except InvalidArgument:
        return None


def _again(first: dict[str, Any], receive: Receive) -> Receive:
    """Return a source of messages that begins with one that was taken from it."""
    taken = [first]

    async def receive_again() -> dict[str, Any]:
        return taken.pop() if taken else await receive()

    return receive_again


def _framing(*, packed: bool) -> Callable[[Sequence[EncodedEvent]], bytes]:
    def join(events: Sequence[EncodedEvent]) -> bytes:
        return b"".join(_frame(batch_to_pb(event, packed=packed).SerializeToString()) for event in events)

    return join


def _frame(body: bytes, *, flags: int = 0) -> bytes:
    return b"%c%b%b" % (flags, len(body).to_bytes(4, "big"), body)
