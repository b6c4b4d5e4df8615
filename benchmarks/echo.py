"""The least that a call can cost: 200 bytes there and back between bare asyncio protocols.

`python -m benchmarks.echo PORT` is the server. Both sides run on the standard loop, and import nothing else.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Final, cast

MESSAGE: Final = bytes(200)


class EchoServer(asyncio.Protocol):
    """Sends back what it gets."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way out."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Send it back."""
        self._transport.write(data)


class EchoClient(asyncio.Protocol):
    """Sends a message, and the next one as soon as it is back."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._missing = 0
        self._left = 0
        self._done: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way out."""
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell whoever waits."""
        if self._done and not self._done.done():
            self._done.set_exception(exc or ConnectionError("the server has closed the connection"))

    def data_received(self, data: bytes) -> None:
        """Send the next one, once all of the last is back."""
        self._missing -= len(data)
        if self._missing:
            return
        self._left -= 1
        if self._left:
            self._send()
        elif self._done:
            self._done.set_result(None)

    async def exchange(self, count: int) -> None:
        """Return once so many messages were there and back, one after the other."""
        if self._transport is None or self._transport.is_closing():
            raise ConnectionError("the connection is closed")
        self._left = count
        self._done = asyncio.get_running_loop().create_future()
        self._send()
        await self._done

    def close(self) -> None:
        """Close the connection."""
        if self._transport:
            self._transport.close()

    def _send(self) -> None:
        self._missing = len(MESSAGE)
        cast("asyncio.Transport", self._transport).write(MESSAGE)


async def connect(port: int, seconds: float = 60) -> EchoClient:
    """Return a connection to the server, once it is there."""
    loop = asyncio.get_running_loop()
    give_up_at = time.monotonic() + seconds
    while True:
        try:
            _, client = await loop.create_connection(EchoClient, "127.0.0.1", port)
        except OSError:
            if time.monotonic() > give_up_at:
                raise
            await asyncio.sleep(0.02)
        else:
            return client


async def _serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(EchoServer, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1])))
