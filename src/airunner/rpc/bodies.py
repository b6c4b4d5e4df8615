"""Counting the bytes of requests, from when they come in until their call has ended."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from connectrpc.compression.gzip import GzipCompression

from airunner.domain.errors import AirunnerError
from airunner.rpc.errors import to_connect
from airunner.services.admission import RequestBody

if TYPE_CHECKING:
    from airunner.services.admission import Admission

current_body: ContextVar[RequestBody] = ContextVar("current_body")


class CountedBodies:
    """An ASGI application before whose requests there is a count; it goes down however a call ends."""

    admission: Admission

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = RequestBody(self.admission, scope["path"].rpartition("/")[2])
        current_body.set(body)

        async def receive_counted() -> Any:
            message = await receive()
            if received := message.get("body"):
                _count(body, len(received))
            return message

        application: Any = super()
        try:
            await application.__call__(scope, receive_counted, send)
        finally:
            body.forget()


class CountedGzip(GzipCompression):
    """Counts what comes compressed as large as it is."""

    def decompress(self, data: bytes | bytearray | memoryview, read_max_bytes: int | None = None) -> bytes:
        """Decompress a message of the current request."""
        message = super().decompress(data, read_max_bytes)
        _count(current_body.get(), len(message))
        return message


def _count(body: RequestBody, size_bytes: int) -> None:
    """Count bytes; no interceptor sees what is refused while a request is read, so it is mapped here."""
    try:
        body.add(size_bytes)
    except AirunnerError as error:
        raise to_connect(error) from None
