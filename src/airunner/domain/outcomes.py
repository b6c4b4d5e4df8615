"""Batches whose entries have their own outcomes: one that is refused fails alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from airunner.domain.errors import AirunnerError, InternalError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

E = TypeVar("E")
P = TypeVar("P")
R = TypeVar("R")


def prepare_entries(entries: Iterable[E], prepare: Callable[[E], P]) -> list[P | AirunnerError]:
    """Return what `prepare` makes of each entry, or the error that it refuses the entry with."""
    prepared: list[P | AirunnerError] = []
    for entry in entries:
        try:
            prepared.append(prepare(entry))
        except AirunnerError as error:
            prepared.append(error)
    return prepared


async def send_entries(
    prepared: Sequence[P | AirunnerError],
    send: Callable[[Sequence[P]], Awaitable[Sequence[R | AirunnerError]]],
) -> list[R | AirunnerError]:
    """Send the entries that were not refused in one call, and return the outcomes of all in their order.

    Nothing is sent when every entry was refused. A batch without any entry is sent, for the receiver to
    judge. What the call as a whole fails with is raised.
    """
    accepted = [entry for entry in prepared if not isinstance(entry, AirunnerError)]
    outcomes = await send(accepted) if accepted or not prepared else ()
    if len(outcomes) != len(accepted):
        raise InternalError(f"{len(accepted)} entries were answered with {len(outcomes)} outcomes")
    if len(accepted) == len(prepared):
        return list(outcomes)
    remaining = iter(outcomes)
    return [entry if isinstance(entry, AirunnerError) else next(remaining) for entry in prepared]


def single(outcomes: Sequence[R | AirunnerError]) -> R:
    """Return the outcome of a batch with one entry, or raise it."""
    outcome = outcomes[0]
    if isinstance(outcome, AirunnerError):
        raise outcome
    return outcome
