"""Requests below what an HTTP client would send: odd headers, false envelopes, bodies that end too soon."""

from __future__ import annotations

import base64
import gzip
import random
import re
import socket
import struct
from collections.abc import Callable, Sequence

import zstandard
from google.protobuf.descriptor import MethodDescriptor

from tests.integration.wire import METHODS, Mischief, path_of

_ENVELOPE = struct.Struct(">BI")
_PATIENCE_SECONDS = 2.0
_WRONG = re.compile(
    rb'"code": ?"(internal|unknown|data_loss)"|grpc-status: ?(2|13|15)\b|^HTTP/1.1 50[02]', re.IGNORECASE
)
# What the protocols themselves call INTERNAL: a frame that says it is compressed, in a call that is not.
_AS_SPECIFIED = re.compile(rb"sent(%20| )compressed(%20| )message(%20| )without(%20| )compression")


class RawMischief:
    """Makes requests at random, byte by byte: some right, most wrong in one of many ways."""

    def __init__(self, chance: random.Random, job_ids: Sequence[str], tokens: Sequence[str]) -> None:
        self._chance = chance
        self._messages = Mischief(chance, job_ids, tokens)

    def request(self) -> bytes:
        """Return one request, whole or cut."""
        method = self._chance.choice(METHODS)
        message, encoding = self._messages.request(method)
        kind, body = self._content(method, message, encoding)
        headers = [("host", "127.0.0.1"), ("connection", "close"), ("content-type", kind)]
        headers += self._length(body)
        if headers[-1][0] == "transfer-encoding":
            body = self._chunked(body)
        head = self._head(method, [*headers, *self._odd_headers()])
        return self._cut(head + body)

    def _content(self, method: MethodDescriptor, message: bytes, encoding: str) -> tuple[str, bytes]:
        """Return a content type, and the message as this type has it; or not quite."""
        streams = method.client_streaming or method.server_streaming
        draw = self._chance.random()
        if draw < 0.25:
            return f"application/grpc-web+{encoding}", self._enveloped(message)
        if draw < 0.3:
            return "application/grpc-web-text", base64.b64encode(self._enveloped(message))
        if streams or draw < 0.4:
            return f"application/connect+{encoding}", self._enveloped(message)
        return f"application/{encoding}", self._squeezed(message)

    def _enveloped(self, message: bytes) -> bytes:
        """Return frames whose flags and lengths need not be true."""
        frames = b""
        for _ in range(self._chance.choice((1, 1, 1, 0, 2, 5))):
            flags = self._chance.choice((0, 0, 0, 1, 2, 3, 0x80, 0x81, 0xFF))
            content = self._squeezed(message) if flags & 1 else message
            length = self._chance.choice((len(content),) * 5 + (0, 1, len(content) + 7, 2**31, 2**32 - 1))
            frames += _ENVELOPE.pack(flags, length) + content
        return frames

    def _squeezed(self, message: bytes) -> bytes:
        squeeze: Callable[[bytes], bytes] = self._chance.choice(
            (bytes, bytes, gzip.compress, zstandard.compress, lambda content: gzip.compress(content)[:-3])
        )
        return squeeze(message)

    def _length(self, body: bytes) -> list[tuple[str, str]]:
        """Return how long the body is said to be, if anything is said."""
        draw = self._chance.random()
        if draw < 0.7:
            return [("content-length", str(len(body)))]
        if draw < 0.85:
            return [("transfer-encoding", "chunked")]
        lies = (0, 1, len(body) + 1, len(body) // 2, -1, 10**9, 10**30, "x", "", "0x10")
        return [("content-length", str(self._chance.choice(lies)))]

    def _chunked(self, body: bytes) -> bytes:
        chunks = b""
        while body:
            size = self._chance.randrange(1, len(body) + 1)
            said = self._chance.choice((b"%x" % size,) * 8 + (b"0", b"-1", b"zz", b"ffffffffff"))
            chunks += said + b"\r\n" + body[:size] + b"\r\n"
            body = body[size:]
        return chunks + self._chance.choice((b"0\r\n\r\n", b"0\r\n\r\n", b"", b"0\r\nx: y\r\n\r\n"))

    def _odd_headers(self) -> list[tuple[str, str]]:
        count = self._chance.choice((0, 1, 1, 2, 4))
        # Who says nothing of a time-out may wait for long.
        return [("connect-timeout-ms", "150"), *(self._chance.choice(_ODD_HEADERS) for _ in range(count))]

    def _head(self, method: MethodDescriptor, headers: list[tuple[str, str]]) -> bytes:
        verb = self._chance.choice(("POST",) * 40 + ("GET", "PUT", "OPTIONS", "NONSENSE", ""))
        path = self._chance.choice((path_of(method),) * 40 + ("/", "*", "//", "/%ff", f"{path_of(method)}?x"))
        version = self._chance.choice(("HTTP/1.1",) * 40 + ("HTTP/1.0", "HTTP/9.9", ""))
        self._chance.shuffle(headers)
        lines = [f"{verb} {path} {version}", *(f"{name}: {value}" for name, value in headers), "", ""]
        return "\r\n".join(lines).encode("latin-1")

    def _cut(self, request: bytes) -> bytes:
        """Return all of a request, or its beginning."""
        return request if self._chance.random() < 0.75 else request[: self._chance.randrange(len(request))]


def send_raw(port: int, request: bytes) -> bytes:
    """Send a request and say no more; return what comes back before the connection ends or falls silent."""
    answer = b""
    with socket.create_connection(("127.0.0.1", port), timeout=_PATIENCE_SECONDS) as connection:
        try:
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
            while piece := connection.recv(65536):
                answer += piece
        except OSError:
            return answer
    return answer


def is_at_a_loss(answer: bytes) -> bool:
    """Return whether a server says that something is wrong with itself, in any protocol."""
    return bool(_WRONG.search(answer)) and not _AS_SPECIFIED.search(answer)


_ODD_HEADERS = (
    ("connect-timeout-ms", "-1"),
    ("connect-timeout-ms", "abc"),
    ("connect-timeout-ms", "99999999999999999999"),
    ("connect-timeout-ms", "0"),
    ("grpc-timeout", "1H1"),
    ("grpc-timeout", "99999999999S"),
    ("grpc-timeout", "-5m"),
    ("connect-protocol-version", "1"),
    ("connect-protocol-version", "2"),
    ("content-encoding", "gzip"),
    ("content-encoding", "zstd"),
    ("content-encoding", "br"),
    ("connect-content-encoding", "gzip"),
    ("connect-content-encoding", "zstd"),
    ("connect-content-encoding", "nonsense"),
    ("connect-accept-encoding", "gzip,zstd,,;q=x"),
    ("grpc-encoding", "gzip"),
    ("grpc-encoding", "nonsense"),
    ("accept-encoding", "\xff\xfe"),
    ("content-type", "application/proto; charset=\xe9"),
    ("content-type", ""),
    ("authorization", "Bearer \xff"),
    ("authorization", "Bearer"),
    ("authorization", "Basic " + "A" * 5000),
    ("host", ""),
    ("origin", "null"),
    ("expect", "100-continue"),
    ("upgrade", "h2c"),
    ("x" * 300, "y" * 3000),
    ("traceparent", "00-zz-zz-zz"),
    ("user-agent", ""),
)
