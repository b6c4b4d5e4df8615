"""What calls need of HTTP: to send something and get the answer, whole or as it comes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import urlsplit

from airunner.domain.errors import DeadlineExceeded, InvalidArgument, Unavailable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CONNECT_SECONDS: Final = 5.0
"""How long a server has to take a connection."""
MAX_HEADER_BYTES: Final = 64 * 1024
"""Of an answer."""
MAX_BODY_BYTES: Final = 64 * 1024 * 1024
"""Of an answer that is read whole; of a stream each message is bounded, by whoever reads it."""
_FORBIDDEN: Final = frozenset("\r\n\0")


class Unreachable(Unavailable):
    """The server could not be connected to: nothing was sent."""


class ConnectionLost(Unavailable):
    """The connection broke: the server may have acted, and its answer is gone."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where to send requests, and what each of them says beside its body."""

    address: str
    path: str
    headers: Mapping[str, str] = field(repr=False)
    """A key may be among them."""
    method: str = "POST"
    head: bytes = field(init=False, repr=False)
    """The beginning of a request, as HTTP/1.1 writes it."""

    def __post_init__(self) -> None:
        """Raise InvalidArgument for a header that would be more than one."""
        for name, value in self.headers.items():
            if _FORBIDDEN & set(name + value):
                raise InvalidArgument(f"header {name!r} has a character that no header can have")
        host = urlsplit(self.address).netloc.rpartition("@")[2]
        lines = [f"{self.method} {urlsplit(self.address).path}{self.path} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in {"host": host, **self.headers}.items()]
        object.__setattr__(self, "head", ("\r\n".join(lines) + "\r\n").encode("latin-1", "strict"))

    def request(self, body: bytes, timeout_ms: int | None) -> bytes:
        """Return a whole request as HTTP/1.1 writes it; a deadline is told."""
        if self.method == "GET":
            return self.head + b"\r\n"
        deadline = b"" if timeout_ms is None else b"connect-timeout-ms: %d\r\n" % timeout_ms
        return b"%b%bcontent-length: %d\r\n\r\n%b" % (self.head, deadline, len(body), body)


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """An answer that was read whole; names of headers are in lower case."""

    status: int
    headers: Sequence[tuple[bytes, bytes]]
    body: bytes

    @property
    def content_type(self) -> str:
        """What its body is; empty if it does not say so."""
        return header_of(self.headers, b"content-type")


class HttpStream(Protocol):
    """An answer that is read as it comes. It is closed by whoever opened it."""

    @property
    def status(self) -> int: ...

    @property
    def content_type(self) -> str: ...

    async def read(self) -> bytes:
        """Return what came since the last time, once there is something; nothing at the end.

        ConnectionLost if the connection breaks first, after everything that came before.
        """

    async def aclose(self) -> None:
        """Read no more; a connection on which something is still to come is closed."""


class HttpTransport(Protocol):
    """The way to servers. Nothing is repeated, no redirect is followed, no cookie kept.

    Raises Unreachable when nothing was sent, ConnectionLost when a server may have acted. A call that is
    cancelled or late closes its connection, so that the server hears of it.
    """

    async def send(self, target: Target, body: bytes = b"", *, timeout_ms: int) -> HttpAnswer:
        """Return the answer; DeadlineExceeded when it takes longer, which the server is told of too.

        An answer that is there when the task is cancelled is returned, so that it can be undone.
        """

    async def open(self, target: Target, body: bytes = b"") -> HttpStream:
        """Return the answer as soon as its head is there."""

    async def aclose(self) -> None:
        """Let go of all connections; a second time there is nothing to do."""


def header_of(headers: Sequence[tuple[bytes, bytes]], name: bytes) -> str:
    """Return the value of a header; empty if it is not there."""
    for key, value in headers:
        if key == name:
            return value.decode("latin-1")
    return ""


def timed_out() -> DeadlineExceeded:
    """Return the error of a call whose answer did not come in time."""
    return DeadlineExceeded("Request timed out")
