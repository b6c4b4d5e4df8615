"""HTTP/1.1 on asyncio streams, as much as AWS clients and emulators speak of it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Self

if TYPE_CHECKING:
    import asyncio

HEAD_LIMIT: Final = 1 << 20

_HOP_BY_HOP: Final = frozenset({"connection", "transfer-encoding", "content-length", "expect", "keep-alive"})
_BODILESS: Final = frozenset({204, 304})


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsRequest:
    """One request. Headers have names in lower case, and none that belongs to the connection."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes = b""

    @property
    def target(self) -> str:
        """The service and operation of the JSON protocols, `DynamoDB_20120810.PutItem`; empty for S3."""
        return self.headers.get("x-amz-target", "")

    def encoded(self) -> bytes:
        return _encoded(f"{self.method} {self.path} HTTP/1.1", self.headers, self.body)

    def with_json(self, body: dict[str, Any]) -> Self:
        return replace(self, body=json.dumps(body).encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsAnswer:
    """One answer, its body whole."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    bodiless_length: str | None = None
    """What an answer to HEAD says of the length of the body that it does not have."""
    is_last: bool = False
    """The emulator closes the connection after it."""

    def encoded(self) -> bytes:
        return _encoded(f"HTTP/1.1 {self.status} -", self.headers, self.body, self.bodiless_length)

    def with_json(self, body: dict[str, Any]) -> Self:
        # The checksum is of the body that was.
        headers = {name: text for name, text in self.headers.items() if name != "x-amz-crc32"}
        return replace(self, headers=headers, body=json.dumps(body).encode())


async def read_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> AwsRequest:
    """Read the next request; asks for the body where the client waits to be asked.

    Raises asyncio.IncompleteReadError when the client has left.
    """
    first, headers = await _read_head(reader)
    method, path, _ = first.split(" ", 2)
    if headers.get("expect", "").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    body = await _read_body(reader, headers)
    return AwsRequest(method=method, path=path, headers=_of_message(headers), body=body)


async def read_answer(reader: asyncio.StreamReader, *, to_head: bool = False) -> AwsAnswer:
    """Read the answer to the request sent last; `to_head` says that it was HEAD."""
    first, headers = await _read_head(reader)
    status = int(first.split(" ", 2)[1])
    is_bodiless = to_head or status in _BODILESS
    return AwsAnswer(
        status=status,
        headers=_of_message(headers),
        body=b"" if is_bodiless else await _read_body(reader, headers),
        bodiless_length=headers.get("content-length") if is_bodiless else None,
        is_last=headers.get("connection", "").lower() == "close",
    )


async def _read_head(reader: asyncio.StreamReader) -> tuple[str, dict[str, str]]:
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").rstrip("\r\n").split("\r\n")
    headers = {}
    for line in lines:
        name, _, text = line.partition(":")
        headers[name.lower()] = text.strip()
    return first, headers


async def _read_body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    if headers.get("transfer-encoding", "").lower() != "chunked":
        return await reader.readexactly(int(headers.get("content-length", "0")))
    pieces = []
    while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
        pieces.append((await reader.readexactly(size + 2))[:-2])
    while await reader.readuntil(b"\r\n") != b"\r\n":
        pass
    return b"".join(pieces)


def _of_message(headers: dict[str, str]) -> dict[str, str]:
    return {name: text for name, text in headers.items() if name not in _HOP_BY_HOP}


def _encoded(first: str, headers: dict[str, str], body: bytes, length: str | None = None) -> bytes:
    lines = [first, *(f"{name}: {text}" for name, text in headers.items())]
    lines.append(f"content-length: {length or len(body)}")
    return "\r\n".join((*lines, "", "")).encode("latin-1") + body
