"""Plain HTTP for tests, on the loop of the test and in no thread: a fresh connection for each request."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from airunner.client.http.base import Target
from airunner.client.http.pool import ConnectionPool

PATIENCE_MS = 60_000


@dataclass(frozen=True)
class PlainAnswer:
    """What came back; names of headers are in lower case."""

    status: int
    content: bytes
    headers: dict[str, str] = field(default_factory=dict)

    def json(self) -> Any:
        return json.loads(self.content)


@dataclass(frozen=True)
class StreamedAnswer:
    """An answer whose content is still to come."""

    status: int
    content: AsyncIterator[bytes]


class HttpClient:
    """Sends requests as a browser or curl would, and follows nothing."""

    async def get(self, url: str, headers: Mapping[str, str] | None = None) -> PlainAnswer:
        return await self._send("GET", url, headers, b"")

    async def post(
        self, url: str, headers: Mapping[str, str] | None = None, content: bytes = b""
    ) -> PlainAnswer:
        return await self._send("POST", url, headers, content)

    @asynccontextmanager
    async def stream(
        self, method: str, url: str, headers: Mapping[str, str] | None = None, content: bytes = b""
    ) -> AsyncIterator[StreamedAnswer]:
        pool = ConnectionPool()
        try:
            async with aclosing(await pool.open(_target(method, url, headers), content)) as answer:

                async def pieces() -> AsyncIterator[bytes]:
                    while piece := await answer.read():
                        yield piece

                yield StreamedAnswer(answer.status, pieces())
        finally:
            await pool.aclose()

    async def _send(
        self, method: str, url: str, headers: Mapping[str, str] | None, content: bytes
    ) -> PlainAnswer:
        pool = ConnectionPool()
        try:
            answer = await pool.send(_target(method, url, headers), content, timeout_ms=PATIENCE_MS)
        finally:
            await pool.aclose()
        by_name = {name.decode(): value.decode() for name, value in answer.headers}
        return PlainAnswer(answer.status, answer.body, by_name)


def _target(method: str, url: str, headers: Mapping[str, str] | None) -> Target:
    parts = urlsplit(url)
    path = parts.path + (f"?{parts.query}" if parts.query else "")
    return Target(f"{parts.scheme}://{parts.netloc}", path or "/", headers or {}, method)
