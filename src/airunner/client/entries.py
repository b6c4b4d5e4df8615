"""Calls that carry many entries, each with its own outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from airunner.domain.errors import (
    AirunnerError,
    DeadlineExceeded,
    InternalError,
    PermissionDenied,
    Unauthenticated,
    Unavailable,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

M = TypeVar("M")
Q = TypeVar("Q")
R = TypeVar("R")

# Errors of a call as a whole; any other is what became of its one entry.
_OF_THE_CALL = (Unavailable, DeadlineExceeded, Unauthenticated, PermissionDenied, InternalError)


async def each(
    requests: Sequence[Q],
    build: Callable[[Q], M],
    send_one: Callable[[M], Awaitable[R]],
    send_many: Callable[[Sequence[M]], Awaitable[Sequence[R | AirunnerError]]],
) -> Sequence[R | AirunnerError]:
    """Send many requests in one call; one that cannot be sent or is refused fails alone."""
    prepared = [_built(build, request) for request in requests]
    sendable = [entry for entry in prepared if not isinstance(entry, AirunnerError)]
    answers: Sequence[R | AirunnerError] = ()
    if len(requests) == len(sendable) == 1:
        answers = [await _outcome(send_one(sendable[0]))]
    elif sendable or not requests:
        answers = await send_many(sendable)
    arrived = iter(answers)
    return [entry if isinstance(entry, AirunnerError) else next(arrived) for entry in prepared]


def _built(build: Callable[[Q], M], request: Q) -> M | AirunnerError:
    try:
        return build(request)
    except AirunnerError as error:
        return error


async def _outcome(answer: Awaitable[R]) -> R | AirunnerError:
    try:
        return await answer
    except _OF_THE_CALL:
        raise
    except AirunnerError as error:
        return error


def only(outcomes: Sequence[R | AirunnerError]) -> R:
    """Return the outcome of a call with one entry, or raise it."""
    outcome = outcomes[0]
    if isinstance(outcome, AirunnerError):
        raise outcome
    return outcome
