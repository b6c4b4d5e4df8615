"""What stands before `--` on a command line and what after it, which the parser does not tell apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

DIVIDER: Final = "--"
COMMANDS_WITH_JOBS: Final = frozenset({"run", "submit"})


def with_visible_divider(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with the first `--` doubled where it matters: the parser takes one away."""
    kept = list(arguments)
    if kept and kept[0] in COMMANDS_WITH_JOBS and DIVIDER in kept:
        kept.insert(kept.index(DIVIDER), DIVIDER)
    return kept


def repository_and_command(tokens: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Return the repository in front of `--`, if there is one, and the command after it."""
    from airunner.domain.errors import InvalidArgument
    from airunner.domain.repository import parse_repository

    tokens = tuple(tokens)
    divider_at = tokens.index(DIVIDER) if DIVIDER in tokens else len(tokens)
    before, command = tokens[:divider_at], tokens[divider_at + 1 :]
    if not before:
        return "", command
    hint = "write the command after '--', as in: -- echo hello"
    if len(before) > 1:
        raise InvalidArgument(f"there is more than a repository before '--'; {hint}")
    try:
        parse_repository(before[0])
    except InvalidArgument as error:
        raise InvalidArgument(f"{error.text}; {hint}") from None
    return before[0], command
