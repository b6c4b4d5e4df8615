"""What DynamoDB refuses in expressions and an emulator may let pass."""

from __future__ import annotations

import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.doubles.aws.calls import Refusal

if TYPE_CHECKING:
    from collections.abc import Iterator

EXPRESSIONS: Final = (
    "ConditionExpression",
    "FilterExpression",
    "KeyConditionExpression",
    "ProjectionExpression",
    "UpdateExpression",
)

_SIZE_LIMIT: Final = 4096
_WORD: Final = re.compile(r"([#:][A-Za-z0-9_]+|[A-Za-z_][A-Za-z0-9_]*)(\s*\()?")
_SYNTAX: Final = frozenset({"ADD", "AND", "BETWEEN", "DELETE", "IN", "NOT", "OR", "REMOVE", "SET"})
# One assignment of a SET clause: the name, and the value it gets if that is given as it is or as a default.
_ASSIGNMENT: Final = re.compile(r"(#?\w+)\s*=\s*(?:if_not_exists\s*\([^,()]+,\s*)?(:\w+)")


def expression_refusal(arguments: dict[str, Any]) -> Refusal | None:
    """Return why the expressions of one read or write are refused."""
    used: set[str] = set()
    for name in EXPRESSIONS:
        text = arguments.get(name)
        if text is None:
            continue
        if len(text.encode()) > _SIZE_LIMIT:
            return _invalid(f"Invalid {name}: Expression size has exceeded the maximum allowed size;")
        for word, is_function in _tokens(text):
            used.add(word)
            if not is_function and word.upper() not in _SYNTAX and word.upper() in _reserved_words():
                return _invalid(
                    f"Invalid {name}: Attribute name is a reserved keyword; reserved keyword: {word}"
                )
    return _unused(arguments, used)


def assigned_values(arguments: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the attributes that an update sets to a given value, with that value."""
    names = arguments.get("ExpressionAttributeNames") or {}
    values = arguments.get("ExpressionAttributeValues") or {}
    for name, value in _ASSIGNMENT.findall(arguments.get("UpdateExpression", "")):
        if value in values:
            yield names.get(name, name), values[value]


def _unused(arguments: dict[str, Any], used: set[str]) -> Refusal | None:
    for field in ("ExpressionAttributeNames", "ExpressionAttributeValues"):
        given = arguments.get(field)
        if given is None:
            continue
        if not given:
            return _invalid(f"{field} must not be empty")
        if not any(name in arguments for name in EXPRESSIONS):
            return _invalid(f"{field} can only be specified when using expressions")
        if unused := sorted(set(given) - used):
            keys = ", ".join(unused)
            return _invalid(f"Value provided in {field} unused in expressions: keys: {{{keys}}}")
    return None


def _tokens(text: str) -> Iterator[tuple[str, bool]]:
    for match in _WORD.finditer(text):
        yield match[1], match[2] is not None


@cache
def _reserved_words() -> frozenset[str]:
    """Read DynamoDB's list from moto, where that is installed, without importing it."""
    spec = find_spec("moto")
    if spec is None or not spec.submodule_search_locations:
        return frozenset()
    file = Path(spec.submodule_search_locations[0], "dynamodb/parsing/reserved_keywords.txt")
    return frozenset(file.read_text(encoding="utf-8").upper().split())


def _invalid(message: str) -> Refusal:
    return Refusal(code="ValidationException", message=message)
