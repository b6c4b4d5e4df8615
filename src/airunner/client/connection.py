"""Calls to a service that has several addresses: deadlines, fail-over, and errors as our own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast
from urllib.parse import urlsplit

import pyqwest
from connectrpc.errors import ConnectError

from airunner import __version__
from airunner.client.transport import warn_of_plaintext
from airunner.codec.errors import from_connect, is_cancellation
from airunner.domain.errors import DeadlineExceeded, InvalidArgument, Overloaded, Unavailable
from airunner.domain.retry import RetryPolicy, retry

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from airunner.client.transport import Transports
    from airunner.domain.clock import Clock

C = TypeVar("C")
Q = TypeVar("Q")
R = TypeVar("R")
C_contra = TypeVar("C_contra", contravariant=True)
Q_contra = TypeVar("Q_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)

_BROKEN = (OSError, pyqwest.ReadError, pyqwest.WriteError, pyqwest.RemoteProtocolError)
# What another server, or the same one a little later, may answer otherwise.
_PASSING = (Unavailable, Overloaded)
# How the library names a stream that ended without its last message.
_TRUNCATED = "protocol error: unexpected EOF"


class Unary(Protocol[C_contra, Q_contra, R_co]):
    """A unary method of a generated client."""

    def __call__(
        self,
        client: C_contra,
        request: Q_contra,
        /,
        *,
        headers: Mapping[str, str] | None = None,
        timeout_ms: int | None = None,
    ) -> Awaitable[R_co]: ...


class ServerStream(Protocol[C_contra, Q_contra, R_co]):
    """A server-streaming method of a generated client."""

    def __call__(
        self, client: C_contra, request: Q_contra, /, *, headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[R_co]: ...


class Unreachable(Unavailable):
    """The server could not be connected to: nothing was sent."""


class ConnectionLost(Unavailable):
    """The connection broke: the server may have acted, and its answer is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRules:
    """How calls are made. `retry.attempts`, when set, counts rounds through all addresses."""

    clock: Clock
    api_key: str = ""
    timeout_seconds: float = 30
    retry: RetryPolicy = RetryPolicy()

    @property
    def headers(self) -> dict[str, str]:
        """What every request says about its sender."""
        headers = {"user-agent": f"airunner/{__version__}"}
        return {**headers, "authorization": f"Bearer {self.api_key}"} if self.api_key else headers


class ServiceConnection(Generic[C]):
    """One service at one or more addresses; it stays with the address that answered last."""

    def __init__(self, clients: Mapping[str, C], rules: CallRules) -> None:
        self._clients = tuple(clients.items())
        self._rules = rules
        self._headers = rules.headers
        self._current = 0

    @property
    def clock(self) -> Clock:
        """The clock that pauses and deadlines go by."""
        return self._rules.clock

    @property
    def policy(self) -> RetryPolicy:
        """How long to pause after each round through all addresses."""
        return self._rules.retry

    @property
    def address_count(self) -> int:
        """How many addresses are tried before the first pause."""
        return len(self._clients)

    async def call(
        self,
        method: Unary[C, Q, R],
        request: Q,
        *,
        wait_seconds: int = 0,
        undo: Callable[[R], Awaitable[None]] | None = None,
    ) -> R:
        """Make a call, again and elsewhere while no server can answer, until its deadline.

        The deadline is the time-out of the client, beyond `wait_seconds` for a long poll, whose wait is
        shortened when it has to begin anew. All addresses are tried before the first pause, which lasts at
        least as long as a server with too much to do has said. A call that has to be undone when nobody takes
        its answer is only repeated when no server can have acted on it.
        """
        clock = self.clock
        answer_by = clock.monotonic() + wait_seconds * 1000
        give_up_at = answer_by + int(self._rules.timeout_seconds * 1000)
        begun = False

        async def send() -> R:
            nonlocal begun
            if begun and wait_seconds:
                left = max(0, answer_by - clock.monotonic()) // 1000
                cast("Any", request).wait_seconds = min(wait_seconds, left)
            begun = True
            return await self._send(method, request, give_up_at - clock.monotonic(), undo)

        def may_repeat(error: Exception) -> bool:
            unclear = undo is not None and isinstance(error, ConnectionLost)
            return isinstance(error, _PASSING) and not unclear and clock.monotonic() < give_up_at

        return await retry(
            self._rules.retry,
            clock,
            lambda: self._send_anywhere(send, may_repeat),
            retry_if=may_repeat,
            give_up_at=give_up_at,
        )

    async def stream(self, method: ServerStream[C, Q, R], request: Q) -> AsyncGenerator[R, None]:
        """Yield the messages of one stream, from the current address and without a second try."""
        index = self._current
        address, client = self._clients[index]
        try:
            messages = cast("AsyncGenerator[R, None]", method(client, request, headers=self._headers))
            async with aclosing(messages):
                async for message in messages:
                    yield message
        except ConnectError as error:
            raise self._failure(error, index, address) from error

    def leave(self) -> None:
        """Prefer the next address from now on."""
        self._leave(self._current)

    async def _send_anywhere(
        self, send: Callable[[], Awaitable[R]], may_repeat: Callable[[Exception], bool]
    ) -> R:
        """Send a request to the current address, then to each of the others while none can answer."""
        for _ in self._clients[1:]:
            try:
                return await send()
            except _PASSING as error:
                if not may_repeat(error):
                    raise
        return await send()

    async def _send(
        self,
        method: Unary[C, Q, R],
        request: Q,
        timeout_ms: int,
        undo: Callable[[R], Awaitable[None]] | None,
    ) -> R:
        index = self._current
        address, client = self._clients[index]
        noted = _cancel_requests()
        try:
            answer = await method(client, request, headers=self._headers, timeout_ms=max(1, timeout_ms))
        except ConnectError as error:
            if _cancel_requests() > noted:
                raise asyncio.CancelledError from error
            raise self._failure(error, index, address) from error
        if _cancel_requests() > noted:
            # The library waits with wait_for, which before Python 3.12 prefers an answer to a cancellation.
            if undo:
                await undo(answer)
            raise asyncio.CancelledError
        return answer

    def _failure(self, error: ConnectError, index: int, address: str) -> BaseException:
        failure = translate(error, address)
        if isinstance(failure, (*_PASSING, DeadlineExceeded)):
            self._leave(index)
        return failure

    def _leave(self, index: int) -> None:
        # Whoever failed there first has moved on already.
        if self._current == index:
            self._current = (index + 1) % len(self._clients)


def translate(error: ConnectError, address: str) -> BaseException:
    """Return what an error of the library means: one of ours, or what it hides, such as a cancellation."""
    cause = error.__cause__
    if isinstance(cause, ConnectionError):
        return Unreachable(f"cannot connect to {address}: {_last_words(cause)}")
    if cause is None or isinstance(cause, TimeoutError):
        broken = is_cancellation(error) or error.message == _TRUNCATED
        return ConnectionLost(f"{address} went away: {error.message}") if broken else from_connect(error)
    if isinstance(cause, _BROKEN):
        return ConnectionLost(f"lost the connection to {address}: {_last_words(cause)}")
    # The task was cancelled, or the client is used after its end: nothing that a server could mend.
    return cause


def parse_servers(servers: Sequence[str] | str) -> tuple[str, ...]:
    """Return the addresses of a list, or of a text that separates them by commas."""
    texts = servers.split(",") if isinstance(servers, str) else servers
    addresses = tuple(dict.fromkeys(text.strip().rstrip("/") for text in texts if text.strip()))
    if not addresses:
        raise InvalidArgument("at least one server is needed")
    for address in addresses:
        _check_address(address)
    return addresses


def connect(
    make: Callable[..., C], addresses: Sequence[str], transports: Transports, rules: CallRules
) -> ServiceConnection[C]:
    """Return the connection of a generated client class; warn if its key would travel in the clear."""
    if rules.api_key:
        warn_of_plaintext(addresses)

    def client_of(address: str) -> C:
        http = pyqwest.Client(transports.to(address))
        return make(address, send_compression=None, accept_compression=[], http_client=http)

    clients = {address: client_of(address) for address in addresses}
    return ServiceConnection(clients, rules)


def _check_address(address: str) -> None:
    try:
        parts = urlsplit(address)
        valid = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid:
        raise InvalidArgument(f"{address!r} is not a server address such as http://127.0.0.1:8080")


def _last_words(cause: BaseException) -> str:
    # The transport tells the whole chain of causes; the last one says it.
    return str(cause).rsplit(": ", 1)[-1]


def _cancel_requests() -> int:
    """Return how often the running task was asked to end."""
    task = asyncio.current_task()
    return task.cancelling() if task else 0
