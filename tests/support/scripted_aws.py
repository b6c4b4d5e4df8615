"""An HTTP server that answers calls of AWS as a script says: refusals, silence, resets."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from airunner.testing.conditions import until

_DRIP_SECONDS = 0.005
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True)
class Reply:
    """What one request is answered with."""

    status: int = 200
    body: bytes = b"{}"


RESET = "reset"
HELD = "held"
DRIPPING = "dripping"
Step = Reply | str


def refusal(code: str, status: int = 400, **more: Any) -> Reply:
    """An error as DynamoDB and SQS write it."""
    said = {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": "quotes an item", **more}
    return Reply(status, json.dumps(said).encode())


@dataclass(slots=True)
class ScriptedAws:
    """Takes the steps one request after the other and stays with the last.

    `RESET` breaks the connection once the request has come; `HELD` answers when `let_go` is set; `DRIPPING`
    always sends a little more, and never all.
    """

    steps: list[Step]
    url: str = ""
    operations: list[str] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    let_go: asyncio.Event = field(default_factory=asyncio.Event)
    connections: set[asyncio.StreamWriter] = field(default_factory=set)

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.add(writer)
        with suppress(OSError, asyncio.IncompleteReadError):
            while await self._answer(reader, writer):
                pass
        self.connections.discard(writer)
        writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
        headers = dict(line.split(": ", 1) for line in head[1:] if line)
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        self.operations.append(headers.get("x-amz-target", head[0]).rpartition(".")[2])
        self.bodies.append(json.loads(body or b"{}"))
        step = self.steps.pop(0) if len(self.steps) > 1 else self.steps[0]
        if step == RESET:
            connection: socket.socket = writer.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            return False
        if isinstance(step, Reply):
            await _write(writer, step)
            return True
        return await (self._hold(reader, writer) if step == HELD else _drip(writer))

    async def _hold(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Wait until the answer may go or the client has."""
        gone, free = asyncio.ensure_future(reader.read(1)), asyncio.ensure_future(self.let_go.wait())
        try:
            await asyncio.wait((gone, free), return_when=asyncio.FIRST_COMPLETED)
            if self.let_go.is_set():
                await _write(writer, Reply())
            return False
        finally:
            gone.cancel()
            free.cancel()


@asynccontextmanager
async def scripted_aws(*steps: Step) -> AsyncIterator[ScriptedAws]:
    """Serve a script on loopback."""
    aws = ScriptedAws(list(steps))
    server = await asyncio.start_server(aws.handle, "127.0.0.1", 0)
    aws.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield aws
    finally:
        server.close()
        for connection in aws.connections:
            connection.close()
        await until(lambda: not aws.connections)


async def _drip(writer: asyncio.StreamWriter) -> bool:
    writer.write(b"HTTP/1.1 200 OK\r\n")
    while not writer.is_closing():
        writer.write(b"x: y\r\n")
        await asyncio.sleep(_DRIP_SECONDS)
    return False


async def _write(writer: asyncio.StreamWriter, reply: Reply) -> None:
    head = (
        f"HTTP/1.1 {reply.status} X\r\ncontent-type: application/x-amz-json-1.0\r\n"
        f"content-length: {len(reply.body)}\r\n\r\n"
    )
    writer.write(head.encode() + reply.body)
    await writer.drain()
