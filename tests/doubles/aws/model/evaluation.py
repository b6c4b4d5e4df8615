"""Conditions and updates of DynamoDB, evaluated; each expression is parsed once."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

from tests.doubles.aws.tables.key_conditions import comparable
from tests.doubles.aws.tables.schemas import Item

Value = dict[str, Any]
Operand = Callable[[Item, Item], Value | None]
"""What an expression means for an item, given the values of its placeholders."""
Test = Callable[[Item, Item], bool]
Step = Callable[[Item, Item, Item], None]
"""One change: of the new item, given the old one and the values."""

_TOKEN: Final = re.compile(r"\s*(<=|>=|<>|[=<>(),.+\-]|[#:]?\w+)")
_SIGNS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def holds(arguments: Mapping[str, Any], item: Item, expression: str = "ConditionExpression") -> bool:
    """Return whether a condition holds for an item; one that is not given does."""
    text = arguments.get(expression)
    if not text:
        return True
    test = _condition(text, _names(arguments))
    return test(item, arguments.get("ExpressionAttributeValues") or {})


def updated(arguments: Mapping[str, Any], item: Item) -> Item:
    """Return an item as an UpdateExpression leaves it; the one given stays as it is."""
    after = dict(item)
    for step in _update(arguments.get("UpdateExpression", ""), _names(arguments)):
        step(after, item, arguments.get("ExpressionAttributeValues") or {})
    return after


def projected(arguments: Mapping[str, Any], item: Item) -> Item:
    """Return what a ProjectionExpression wants of an item; all of it where there is none."""
    text = arguments.get("ProjectionExpression")
    if not text:
        return item
    names = arguments.get("ExpressionAttributeNames") or {}
    wanted = [names.get(name.strip(), name.strip()) for name in text.split(",")]
    return {name: item[name] for name in wanted if name in item}


def _names(arguments: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple((arguments.get("ExpressionAttributeNames") or {}).items())


@lru_cache(maxsize=1000)
def _condition(text: str, names: tuple[tuple[str, str], ...]) -> Test:
    return _Parser(text, dict(names)).condition()


@lru_cache(maxsize=1000)
def _update(text: str, names: tuple[tuple[str, str], ...]) -> list[Step]:
    return _Parser(text, dict(names)).steps()


class _Parser:
    """Reads one expression from left to right."""

    def __init__(self, text: str, names: dict[str, str]) -> None:
        self._tokens = _TOKEN.findall(text)
        self._names = names

    def condition(self) -> Test:
        tests = [self._conjunction()]
        while self._take("OR"):
            tests.append(self._conjunction())
        return lambda item, values: any(test(item, values) for test in tests)

    def steps(self) -> list[Step]:
        found: list[Step] = []
        while self._tokens:
            clause = self._tokens.pop(0).upper()
            found.append(self._step(clause))
            while self._take(","):
                found.append(self._step(clause))
        return found

    def _conjunction(self) -> Test:
        tests = [self._term()]
        while self._take("AND"):
            tests.append(self._term())
        return lambda item, values: all(test(item, values) for test in tests)

    def _term(self) -> Test:
        if self._take("NOT"):
            negated = self._term()
            return lambda item, values: not negated(item, values)
        if self._take("("):
            inner = self.condition()
            self._expect(")")
            return inner
        if self._is_next("attribute_exists", "attribute_not_exists", "begins_with"):
            return self._function()
        left = self._operand()
        if self._take("BETWEEN"):
            low = self._operand()
            self._expect("AND")
            high = self._operand()
            return lambda item, values: (
                _compare(operator.ge, left, low, item, values)
                and _compare(operator.le, left, high, item, values)
            )
        sign, right = _SIGNS[self._tokens.pop(0)], self._operand()
        return lambda item, values: _compare(sign, left, right, item, values)

    def _function(self) -> Test:
        name = self._tokens.pop(0).lower()
        self._expect("(")
        path = self._operand()
        start = self._operand() if self._take(",") else path
        self._expect(")")
        if name == "begins_with":
            return lambda item, values: _begins_with(path(item, values), start(item, values))
        return lambda item, values: (path(item, values) is not None) == (name == "attribute_exists")

    def _step(self, clause: str) -> Step:
        path = self._path()
        if clause == "REMOVE":
            return lambda after, _before, _values: _put(after, path, None)
        if clause == "ADD":
            more = self._operand()
            return lambda after, before, values: _put(
                after, path, _sum(_at(before, path) or {"N": "0"}, more(before, values), 1)
            )
        self._expect("=")
        value = self._operand()
        if self._is_next("+", "-"):
            sign, left, right = (1 if self._tokens.pop(0) == "+" else -1), value, self._operand()
            return lambda after, before, values: _put(
                after, path, _sum(left(before, values), right(before, values), sign)
            )
        return lambda after, before, values: _put(after, path, value(before, values))

    def _operand(self) -> Operand:
        if self._is_next("if_not_exists"):
            self._tokens.pop(0)
            self._expect("(")
            path = self._path()
            self._expect(",")
            default = self._operand()
            self._expect(")")
            return lambda item, values: _at(item, path) or default(item, values)
        if self._tokens[0].startswith(":"):
            name = self._tokens.pop(0)
            return lambda _item, values: values[name]
        path = self._path()
        return lambda item, _values: _at(item, path)

    def _path(self) -> tuple[str, ...]:
        parts = [self._tokens.pop(0)]
        while self._take("."):
            parts.append(self._tokens.pop(0))
        return tuple(self._names.get(part, part) for part in parts)

    def _is_next(self, *names: str) -> bool:
        return bool(self._tokens) and self._tokens[0].lower() in names

    def _take(self, word: str) -> bool:
        if self._tokens and self._tokens[0].upper() == word:
            self._tokens.pop(0)
            return True
        return False

    def _expect(self, word: str) -> None:
        if not self._take(word):
            raise ValueError(f"{word} expected before {' '.join(self._tokens)}")


def _at(item: Item, path: tuple[str, ...]) -> Value | None:
    value = item.get(path[0])
    for part in path[1:]:
        value = (value or {}).get("M", {}).get(part)
    return value


def _put(item: Item, path: tuple[str, ...], value: Value | None) -> None:
    """Set or remove what is at a path; maps on the way are copied, since the old item has them too."""
    content: dict[str, Any] = item
    for part in path[:-1]:
        content[part] = {"M": dict(content[part]["M"])}
        content = content[part]["M"]
    if value is None:
        content.pop(path[-1], None)
    else:
        content[path[-1]] = value


def _sum(left: Value | None, right: Value | None, sign: int) -> Value:
    assert left is not None
    assert right is not None
    return {"N": str(int(left["N"]) + sign * int(right["N"]))}


def _compare(
    test: Callable[[Any, Any], bool], left: Operand, right: Operand, item: Item, values: Item
) -> bool:
    one, other = left(item, values), right(item, values)
    if one is None or other is None:
        return False
    if test in (operator.eq, operator.ne):
        return test(one, other)
    return bool(one.keys() == other.keys() and test(comparable(one), comparable(other)))


def _begins_with(value: Value | None, start: Value | None) -> bool:
    return value is not None and start is not None and str(value.get("S", "")).startswith(start["S"])
