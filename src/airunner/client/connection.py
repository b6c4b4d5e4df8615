"""Calls to a service that has several addresses: deadlines, fail-over, and errors as our own."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, cast
from urllib.parse import urlsplit

from airunner import __version__
from airunner.client.calls import Channel
from airunner.client.http.base import ConnectionLost
from airunner.client.transport import warn_of_plaintext
from airunner.domain.errors import AirunnerError, DeadlineExceeded, InvalidArgument, Overloaded, Unavailable
from airunner.domain.retry import RetryPolicy, retry

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence

    from airunner.client.calls import WireMessage
    from airunner.client.transport import Transports
    from airunner.codec.methods import Method
    from airunner.domain.clock import Clock

Q = TypeVar("Q", bound="WireMessage")
R = TypeVar("R")

SILENCE_SECONDS: Final = 45.0
"""How long a stream may be silent: the server says something every 15 s, if only that it lives."""
PASSING: Final = (Unavailable, Overloaded)
"""What another server, or the same one a little later, may answer otherwise."""


class RemoteServer(Protocol):
    """One server, and calls to it; errors are ours."""

    async def call(self, method: Method[Q, R], request: Q, *, timeout_ms: int) -> R:
        """Return the answer to a request."""

    def stream(self, method: Method[Q, R], request: Q) -> AsyncGenerator[list[R], None]:
        """Yield the messages of a stream, those together that came together."""


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


@dataclass(frozen=True, slots=True)
class _Failed:
    """A call whose first try has failed: with what, how long its answer may take, and by when it is due."""

    error: Exception
    wait_seconds: int
    answer_by: int
    timeout_ms: int

    @property
    def give_up_at(self) -> int:
        return self.answer_by + self.timeout_ms


class ServiceConnection:
    """One service at one or more servers; it stays with the one that answered last."""

    def __init__(self, servers: Sequence[RemoteServer], rules: CallRules) -> None:
        self._servers = tuple(servers)
        self._rules = rules
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
        return len(self._servers)

    async def call(
        self,
        method: Method[Q, R],
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
        began, timeout_ms = self.clock.monotonic(), int(self._rules.timeout_seconds * 1000)
        try:
            # Most calls are answered at once, and pay for nothing that others need.
            return await self._send(method, request, wait_seconds * 1000 + timeout_ms, undo)
        except PASSING as error:
            failed = _Failed(error, wait_seconds, began + wait_seconds * 1000, timeout_ms)
        return await self._send_again(method, request, undo, failed)

    async def call_again(self, method: Method[Q, R], request: Q, error: Exception, began: int) -> R:
        """Go on with a call whose first try was made in another way, at an instant of the monotonic clock.

        What it failed with is the first failure, so pauses and the deadline are those of a call that was made
        here; it is raised where there is no time left.
        """
        timeout_ms = int(self._rules.timeout_seconds * 1000)
        return await self._send_again(method, request, None, _Failed(error, 0, began, timeout_ms))

    @asynccontextmanager
    async def stream(self, method: Method[Q, R], request: Q) -> AsyncIterator[AsyncGenerator[list[R], None]]:
        """Open one stream, from the current server and without a second try; it yields messages.

        What fails while the block runs makes the next address the preferred one.
        """
        index = self._current
        try:
            async with aclosing(self._servers[index].stream(method, request)) as messages:
                yield messages
        except (*PASSING, DeadlineExceeded):
            self._leave(index)
            raise

    async def _send_again(
        self,
        method: Method[Q, R],
        request: Q,
        undo: Callable[[R], Awaitable[None]] | None,
        failed: _Failed,
    ) -> R:
        """Go on with a call whose first try has failed."""
        clock, give_up_at = self.clock, failed.give_up_at
        first_error: Exception | None = failed.error

        async def send() -> R:
            nonlocal first_error
            if first_error:
                # It counts as the first of all tries.
                error, first_error = first_error, None
                raise error
            if failed.wait_seconds:
                left = max(0, failed.answer_by - clock.monotonic()) // 1000
                cast("Any", request).wait_seconds = min(failed.wait_seconds, left)
            return await self._send(method, request, give_up_at - clock.monotonic(), undo)

        def may_repeat(error: Exception) -> bool:
            unclear = undo is not None and isinstance(error, ConnectionLost)
            return isinstance(error, PASSING) and not unclear and clock.monotonic() < give_up_at

        return await retry(
            self._rules.retry,
            clock,
            lambda: self._send_anywhere(send, may_repeat),
            retry_if=may_repeat,
            give_up_at=give_up_at,
        )

    async def _send_anywhere(
        self, send: Callable[[], Awaitable[R]], may_repeat: Callable[[Exception], bool]
    ) -> R:
        """Send a request to the current address, then to each of the others while none can answer."""
        for _ in self._servers[1:]:
            try:
                return await send()
            except PASSING as error:
                if not may_repeat(error):
                    raise
        return await send()

    async def _send(
        self,
        method: Method[Q, R],
        request: Q,
        timeout_ms: int,
        undo: Callable[[R], Awaitable[None]] | None,
    ) -> R:
        index, task = self._current, asyncio.current_task()
        noted = _cancel_requests(task)
        try:
            answer = await self._servers[index].call(method, request, timeout_ms=max(1, timeout_ms))
        except AirunnerError as error:
            if isinstance(error, (*PASSING, DeadlineExceeded)):
                self._leave(index)
            if _cancel_requests(task) > noted:
                # The refusal was there before the cancellation, which must not be lost to a further try.
                raise asyncio.CancelledError from error
            raise
        if _cancel_requests(task) > noted:
            # So was the answer.
            if undo:
                await undo(answer)
            raise asyncio.CancelledError
        return answer

    def _leave(self, index: int) -> None:
        # Whoever failed there first has moved on already.
        if self._current == index:
            self._current = (index + 1) % len(self._servers)


def parse_servers(servers: Sequence[str] | str) -> tuple[str, ...]:
    """Return the addresses of a list, or of a text that separates them by commas."""
    texts = servers.split(",") if isinstance(servers, str) else servers
    addresses = tuple(dict.fromkeys(text.strip().rstrip("/") for text in texts if text.strip()))
    if not addresses:
        raise InvalidArgument("at least one server is needed")
    for address in addresses:
        _check_address(address)
    return addresses


def connect(addresses: Sequence[str], transports: Transports, rules: CallRules) -> ServiceConnection:
    """Return the connection of a service; warn if its key would travel in the clear."""
    if rules.api_key:
        warn_of_plaintext(addresses)
    headers = rules.headers
    channels = [Channel(address, transports.to(address), headers) for address in addresses]
    return ServiceConnection(channels, rules)


def _check_address(address: str) -> None:
    try:
        parts = urlsplit(address)
        valid = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid:
        raise InvalidArgument(f"{address!r} is not a server address such as http://127.0.0.1:8080")


def _cancel_requests(task: asyncio.Task[Any] | None) -> int:
    """Return how often a task was asked to end."""
    return task.cancelling() if task else 0
