"""Enums of the domain, whose values are those of the contract, to and from the numbers of the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from airunner.domain.errors import InvalidArgument

if TYPE_CHECKING:
    from enum import IntEnum

E = TypeVar("E", bound="IntEnum")


def to_wire(member: IntEnum) -> Any:
    """Return the number of an enum member, as messages take it."""
    return int(member)


def enum_or(kind: type[E], value: int, unspecified: E) -> E:
    """Return the member of an enum; for a number that is unknown here, what an unspecified one means.

    For clients: a server that is newer may say what they have no word for yet.
    """
    try:
        return kind(value)
    except ValueError:
        return unspecified


def enum_from_pb(kind: type[E], value: int, field: str) -> E:
    """Return the member of an enum, or refuse the number. For servers, and for what stores keep."""
    try:
        return kind(value)
    except ValueError:
        raise InvalidArgument(f"{field}: {value} is not a known value") from None
