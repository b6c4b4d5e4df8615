"""Values as DynamoDB has them, and the keys of the fleet's table."""

from __future__ import annotations

from typing import Any, TypeAlias

from airunner.fleet.aws.layout import KEY

Item: TypeAlias = dict[str, dict[str, Any]]


def record_key(record_id: str) -> Item:
    """Return the key of a record."""
    return {KEY: text(record_id)}


def text(value: str) -> dict[str, Any]:
    """Return a text as an attribute."""
    return {"S": value}


def number(value: int) -> dict[str, Any]:
    """Return a whole number as an attribute."""
    return {"N": str(value)}


def number_at(item: Item, name: str) -> int:
    """Return the number of an attribute; 0 where there is none."""
    return int(item.get(name, {}).get("N", 0))


def expiry(instant: int, kept_ms: int) -> dict[str, Any]:
    """Return the attribute by which an item expires so long after an instant."""
    return number((instant + kept_ms) // 1000)
