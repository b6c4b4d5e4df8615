"""Key conditions of queries, evaluated: which items a lagging index would still show."""

from __future__ import annotations

import base64
import operator
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.doubles.aws.tables.schemas import Item

_BETWEEN: Final = re.compile(r"(#?\w+)\s+BETWEEN\s+(:\w+)\s+AND\s+(:\w+)", re.IGNORECASE)
_BEGINS_WITH: Final = re.compile(r"begins_with\s*\(\s*(#?\w+)\s*,\s*(:\w+)\s*\)")
_COMPARISON: Final = re.compile(r"(#?\w+)\s*(<=|>=|=|<|>)\s*(:\w+)")
_OPERATORS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class KeyCondition:
    """The KeyConditionExpression of one Query."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self._text: str = arguments["KeyConditionExpression"]
        self._names: dict[str, str] = arguments.get("ExpressionAttributeNames") or {}
        self._values: Item = arguments.get("ExpressionAttributeValues") or {}

    def holds(self, item: Item) -> bool:
        """Tell whether an item satisfies it; one without the attributes does not."""
        for name, low, high in _BETWEEN.findall(self._text):
            if not (
                self._compare(item, name, operator.ge, low) and self._compare(item, name, operator.le, high)
            ):
                return False
        for name, start in _BEGINS_WITH.findall(self._text):
            if not self._compare(item, name, _begins_with, start):
                return False
        return all(
            self._compare(item, name, _OPERATORS[sign], value)
            for name, sign, value in _COMPARISON.findall(self._text)
        )

    def _compare(self, item: Item, name: str, test: Callable[[Any, Any], bool], placeholder: str) -> bool:
        value = item.get(self._names.get(name, name))
        return value is not None and test(comparable(value), comparable(self._values[placeholder]))


def comparable(value: dict[str, Any]) -> Decimal | bytes:
    """Return the value of a key attribute so that it sorts as DynamoDB sorts it."""
    (kind, content), *_ = value.items()
    if kind == "N":
        return Decimal(content)
    return base64.b64decode(content) if kind == "B" else str(content).encode()


def _begins_with(text: bytes, start: bytes) -> bool:
    return text.startswith(start)
