"""A TCP proxy that breaks connections on demand: resets after some bytes, silence, refusal."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

from tests.support.processes import unused_port

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class FaultyProxy:
    """Forwards to a server. `answer_limit` says for each new connection after how many bytes of the
    server's answers it is reset; None is never. While `silent`, answers are swallowed.
    """

    def __init__(self, target: str) -> None:
        parts = urlsplit(target)
        self._target = (parts.hostname, parts.port)
        self._streams: set[asyncio.StreamWriter] = set()
        self.answer_limit: Callable[[], int | None] = lambda: None
        self.silent = False
        self.connections = 0
        self.resets = 0
        self.url = ""

    def reset_all(self) -> None:
        """Break every connection."""
        for stream in tuple(self._streams):
            reset(stream)

    async def handle(self, client_reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        """Forward one connection."""
        self.connections += 1
        limit = self.answer_limit()
        self._streams.add(client)
        with suppress(OSError):
            server_reader, server = await asyncio.open_connection(*self._target)
            try:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._forward_requests(client_reader, server))
                    tasks.create_task(self._forward_answers(server_reader, client, limit))
            finally:
                server.close()
        self._streams.discard(client)
        client.close()

    async def _forward_requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while piece := await reader.read(65536):
                writer.write(piece)
                await writer.drain()
            writer.close()

    async def _forward_answers(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limit: int | None
    ) -> None:
        with suppress(OSError):
            while piece := await reader.read(65536):
                if self.silent:
                    continue
                kept = piece if limit is None else piece[:limit]
                limit = None if limit is None else limit - len(piece)
                writer.write(kept)
                await writer.drain()
                if limit is not None and limit <= 0:
                    self.resets += 1
                    reset(writer)
                    return
            writer.close()


@asynccontextmanager
async def faulty_proxy(target: str) -> AsyncIterator[FaultyProxy]:
    """Run a proxy in front of a server."""
    proxy = FaultyProxy(target)
    server = await asyncio.start_server(proxy.handle, "127.0.0.1", 0)
    proxy.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        server.close()
        proxy.reset_all()


def unused_url() -> str:
    """Return an address of this machine at which nobody listens."""
    return f"http://127.0.0.1:{unused_port()}"


def reset(writer: asyncio.StreamWriter) -> None:
    sock = writer.get_extra_info("socket")
    if sock is not None and sock.fileno() >= 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    writer.transport.abort()
