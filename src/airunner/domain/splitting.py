"""Splitting lists into parts that fit into one call."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

T = TypeVar("T")


def split_by_size(entries: Iterable[T], size: Callable[[T], int], max_size: int) -> list[list[T]]:
    """Divide entries, in their order, into portions of at most so much; one that is larger is by itself.

    Without entries there is one portion, which is empty.
    """
    divided: list[list[T]] = [[]]
    room = max_size
    for entry in entries:
        needed = size(entry)
        if divided[-1] and needed > room:
            divided.append([])
            room = max_size
        divided[-1].append(entry)
        room -= needed
    return divided


def take_by_size(
    entries: Iterable[T], size: Callable[[T], int], max_size: int, *, at_least: int = 1
) -> list[T]:
    """Return the first entries that have at most so much together, and one at least if there is any.

    No entry is asked for beyond the first that does not fit.
    """
    taken: list[T] = []
    room = max_size
    for entry in entries:
        room -= size(entry)
        if len(taken) >= at_least and room < 0:
            break
        taken.append(entry)
    return taken


def split_by_count(entries: Sequence[T], max_count: int) -> list[Sequence[T]]:
    """Divide entries, in their order, into lists of at most so many; without entries there is no list."""
    return [entries[start : start + max_count] for start in range(0, len(entries), max_count)]
