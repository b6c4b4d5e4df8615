"""A server on loopback whose every byte a test decides: what clients do with odd answers."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass
class Visit:
    """One connection that a client made."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    requests: list[bytes] = field(default_factory=list)

    async def request(self) -> bytes:
        """Return the next request, head and body; raises IncompleteReadError when there is none."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        size = int(lengths[0].partition(b":")[2]) if lengths else 0
        request = head + await self.reader.readexactly(size)
        self.requests.append(request)
        return request

    async def send(self, *pieces: bytes) -> None:
        """Send pieces, each by itself."""
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()

    async def gone(self) -> None:
        """Wait until the client has closed the connection."""
        try:
            while await self.reader.read(65536):
                pass
        except ConnectionError:
            pass


@dataclass
class ScriptedHttp:
    """The server: `serve` is what it does with each connection."""

    serve: Callable[[Visit], Awaitable[None]]
    visits: list[Visit] = field(default_factory=list)
    address: str = ""

    @property
    def requests(self) -> list[bytes]:
        return [request for visit in self.visits for request in visit.requests]


def answer(body: bytes = b"", *, status: str = "200 OK", content_type: str = "application/proto") -> bytes:
    """Return an answer with a length."""
    head = f"HTTP/1.1 {status}\r\ncontent-type: {content_type}\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def chunk(piece: bytes) -> bytes:
    """Return a piece of an answer without a length."""
    return b"%x\r\n%b\r\n" % (len(piece), piece)


CHUNKED = b"HTTP/1.1 200 OK\r\ncontent-type: application/connect+proto\r\ntransfer-encoding: chunked\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"


@asynccontextmanager
async def scripted_http(
    serve: Callable[[Visit], Awaitable[None]], *, tls: ssl.SSLContext | None = None
) -> AsyncIterator[ScriptedHttp]:
    """Serve until the block ends; a connection is closed when its script is over."""
    server = ScriptedHttp(serve)
    serving: set[asyncio.Task[None]] = set()

    async def visit(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        serving.add(task)
        visit = Visit(reader, writer)
        server.visits.append(visit)
        try:
            await server.serve(visit)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()
            serving.discard(task)

    listening = await asyncio.start_server(visit, "127.0.0.1", 0, ssl=tls)
    port = listening.sockets[0].getsockname()[1]
    server.address = f"{'https' if tls else 'http'}://127.0.0.1:{port}"
    try:
        yield server
    finally:
        listening.close()
        for task in list(serving):
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)
