"""A proxy before a server that executes every call, and loses the replies of some."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

from tests.support.faulty_proxy import reset


class ReplyLosingProxy:
    """Forwards calls over HTTP/1.1. What a dequeue answers is never lost: it cannot be asked for again."""

    def __init__(self, target: str, chance: random.Random, share: float) -> None:
        parts = urlsplit(target)
        self._target = (parts.hostname, parts.port)
        self._chance = chance
        self._share = share
        self._tasks: set[asyncio.Task[None]] = set()
        self.url = ""
        self.lost: Counter[str] = Counter()

    def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._forward(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        call = _Call()
        with suppress(OSError):
            answers, server = await asyncio.open_connection(*self._target)
            try:
                async with asyncio.TaskGroup() as both:
                    both.create_task(self._requests(call, reader, server))
                    both.create_task(self._answers(call, answers, writer))
            finally:
                server.close()
                writer.close()

    async def _requests(
        self, call: _Call, reader: asyncio.StreamReader, server: asyncio.StreamWriter
    ) -> None:
        try:
            with suppress(OSError):
                while piece := await reader.read(65536):
                    if call.answered:
                        call.begin(piece, loses=self._chance.random() < self._share)
                    server.write(piece)
                    await server.drain()
        finally:
            # A client that goes with something unread resets the connection: the server shall hear of it too.
            server.close()

    async def _answers(
        self, call: _Call, answers: asyncio.StreamReader, client: asyncio.StreamWriter
    ) -> None:
        try:
            with suppress(OSError):
                while piece := await answers.read(65536):
                    call.answered = True
                    if call.loses:
                        self.lost[call.method] += 1
                        reset(client)
                        return
                    client.write(piece)
                    await client.drain()
        finally:
            client.close()


class _Call:
    """The call that is under way on a connection, on which there is one at a time."""

    def __init__(self) -> None:
        self.answered = True
        self.loses = False
        self.method = ""

    def begin(self, request: bytes, *, loses: bool) -> None:
        self.answered = False
        self.method = request.split(b" ", 2)[1].decode().rpartition("/")[2]
        self.loses = loses and not self.method.startswith("Dequeue")


@asynccontextmanager
async def reply_losing_proxy(
    target: str, chance: random.Random, *, share: float
) -> AsyncIterator[ReplyLosingProxy]:
    """Run a proxy in front of a server that loses this share of the replies."""
    proxy = ReplyLosingProxy(target, chance, share)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        server.close()
        await proxy.close()
