"""The reader of settings that are plainly right, without a library that commands would have to wait for.

It takes a value only if its meaning is beyond doubt. Everything else, above all what is wrong, is for
`judging`, which alone refuses.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from types import MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, Final, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from airunner.config.section import Limits, Section
from airunner.config.values import After, Before, ListenAddress, Secret

S = TypeVar("S", bound=Section)
_WHOLE: Final = re.compile(r"0|[1-9][0-9]{0,11}")
_DECIMAL: Final = re.compile(r"(0|[1-9][0-9]{0,11})(\.[0-9]{1,6})?")
_SWITCH: Final = MappingProxyType({"true": True, "1": True, "false": False, "0": False})


class _NotPlain(ValueError):
    """A value that may be right or wrong."""


def read_plainly(kind: type[S], given: Mapping[str, Any]) -> S | None:
    """Return the section with the values given, nested as the tree is; None if one is not plainly right."""
    try:
        return _section(kind, given)
    except (ValueError, TypeError):
        return None


def _section(kind: type[S], given: Mapping[str, Any]) -> S:
    known = kind.settings()
    values: dict[str, Any] = {}
    hints: Mapping[str, Any] = {}
    for name, value in given.items():
        default, limits = known[name].default, known[name].limits
        if isinstance(default, Section):
            values[name] = _section(type(default), value)
        else:
            hints = hints or get_type_hints(kind, include_extras=True)
            values[name] = _within(limits, _read(hints[name], value))
    return kind(**values)


def _read(kind: Any, value: Any) -> Any:
    read = _READERS.get(kind) if isinstance(kind, type) else None
    if read is not None:
        return read(value)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _one_of({member.value: member for member in kind}, value)
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _annotated(parts[0], parts[1:], value)
    if origin in {Union, UnionType}:
        return None if value is None and NoneType in parts else _read(parts[0], value)
    if origin is Literal:
        return _one_of({part: part for part in parts}, value)
    return _gathered(origin, parts, value)


def _gathered(origin: Any, parts: tuple[Any, ...], value: Any) -> Any:
    if origin is tuple and type(value) in {list, tuple}:
        return tuple(_read(parts[0], entry) for entry in value)
    if origin is Mapping and type(value) is dict:
        return {_read(parts[0], name): _read(parts[1], entry) for name, entry in value.items()}
    raise _NotPlain


def _annotated(kind: Any, rules: tuple[Any, ...], value: Any) -> Any:
    """Read with rules around a kind; the last is the outermost."""
    if not rules:
        return _read(kind, value)
    *inner, rule = rules
    if isinstance(rule, Before):
        return _annotated(kind, tuple(inner), rule.function(value))
    found = _annotated(kind, tuple(inner), value)
    return rule.function(found) if isinstance(rule, After) else _within(rule, found)


def _within(limits: Limits, value: Any) -> Any:
    if not limits.allow(value):
        raise _NotPlain
    return value


def _one_of(members: Mapping[Any, Any], value: Any) -> Any:
    if type(value) is str and value in members:
        return members[value]
    raise _NotPlain


def _text(value: Any) -> str:
    if type(value) is str:
        return value
    raise _NotPlain


def _whole(value: Any) -> int:
    if type(value) is int or (type(value) is str and _WHOLE.fullmatch(value)):
        return int(value)
    raise _NotPlain


def _decimal(value: Any) -> float:
    if type(value) is int or (type(value) is str and _DECIMAL.fullmatch(value)):
        return float(value)
    if type(value) is float and abs(value) < float("inf"):
        return value
    raise _NotPlain


def _switch(value: Any) -> bool:
    if type(value) is bool:
        return value
    if type(value) is str and value in _SWITCH:
        return _SWITCH[value]
    raise _NotPlain


def _path(value: Any) -> Path:
    if isinstance(value, Path):
        return value
    raise _NotPlain


_READERS: Final[Mapping[Any, Callable[[Any], Any]]] = {
    str: _text,
    int: _whole,
    float: _decimal,
    bool: _switch,
    Path: _path,
    Secret: lambda value: Secret(_text(value)),
    ListenAddress: lambda value: ListenAddress(_text(value)),
}
