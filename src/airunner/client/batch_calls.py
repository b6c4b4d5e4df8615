"""Calls that carry many entries, each with its own outcome."""

from __future__ import annotations

from operator import methodcaller
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from airunner.domain.errors import (
    AirunnerError,
    DeadlineExceeded,
    InternalError,
    MessageTooLarge,
    PermissionDenied,
    Unauthenticated,
    Unavailable,
)
from airunner.domain.outcomes import prepare_entries, send_entries
from airunner.domain.splitting import split_by_size

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence


class Sized(Protocol):
    """A message of the wire."""

    def ByteSize(self) -> int:  # noqa: N802  as protobuf calls it
        """Return how many bytes it takes."""


M = TypeVar("M", bound=Sized)
Q = TypeVar("Q")
R = TypeVar("R")

# A server takes 4 MiB unless it is told otherwise; this leaves room for what holds entries together.
_CALL_BYTES: Final = 3 * 1024 * 1024
# Errors of a call as a whole; any other is what became of its one entry.
_OF_THE_CALL = (Unavailable, DeadlineExceeded, Unauthenticated, InternalError)


async def send_batch(
    requests: Sequence[Q],
    build: Callable[[Q], M],
    send_one: Callable[[M], Awaitable[R]],
    send_many: Callable[[Sequence[M]], Awaitable[Sequence[R | AirunnerError]]],
) -> Sequence[R | AirunnerError]:
    """Send many requests in one call, or in a few where they are large; one that is refused fails alone.

    The calls go one after the other. When one fails as a whole, those before it have happened: whoever
    repeats the requests gets the same outcomes for them again.
    """
    if len(requests) == 1:
        return [await _send_alone(requests[0], build, send_one, send_many)]

    async def send(messages: Sequence[M]) -> list[R | AirunnerError]:
        answers: list[R | AirunnerError] = []
        for call in split_by_size(messages, methodcaller("ByteSize"), _CALL_BYTES):
            answers += await send_call(call, send_one, send_many)
        return answers

    return await send_entries(prepare_entries(requests, build), send)


async def send_call(
    messages: Sequence[M],
    send_one: Callable[[M], Awaitable[R]],
    send_many: Callable[[Sequence[M]], Awaitable[Sequence[R | AirunnerError]]],
) -> list[R | AirunnerError]:
    """Send entries together, or apart where the server takes less than it usually does."""
    if len(messages) == 1:
        return [await _send_one(messages[0], send_one, send_many)]
    try:
        return list(await send_many(messages))
    except MessageTooLarge:
        half = len(messages) // 2
        parts = messages[:half], messages[half:]
        return [answer for part in parts for answer in await send_call(part, send_one, send_many)]


async def _send_alone(
    request: Q,
    build: Callable[[Q], M],
    send_one: Callable[[M], Awaitable[R]],
    send_many: Callable[[Sequence[M]], Awaitable[Sequence[R | AirunnerError]]],
) -> R | AirunnerError:
    try:
        message = build(request)
    except AirunnerError as error:
        return error
    return await _send_one(message, send_one, send_many)


async def _send_one(
    message: M,
    send_one: Callable[[M], Awaitable[R]],
    send_many: Callable[[Sequence[M]], Awaitable[Sequence[R | AirunnerError]]],
) -> R | AirunnerError:
    """Return what became of an entry; raise what its call failed with as a whole."""
    try:
        return await send_one(message)
    except PermissionDenied:
        # Of the call, or of a queue that the key is not for: only a call that carries many tells them apart.
        return (await send_many([message]))[0]
    except _OF_THE_CALL:
        raise
    except AirunnerError as error:
        return error
