"""What `airunner config show` prints: each value in effect and where it came from, secrets hidden."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from airunner.config.errors import HIDDEN
from airunner.config.layers import Origin
from airunner.config.loading import Loaded
from airunner.config.settings import setting_fields, value_at
from airunner.config.values import Secret

JsonValue: TypeAlias = str | int | float | bool | list["JsonValue"] | None
NOTHING = "(none)"


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingLine:
    """One setting as text."""

    path: str
    value_text: str
    origin: Origin


def describe(loaded: Loaded) -> list[SettingLine]:
    """Every setting, in the order of the tree."""
    return [
        SettingLine(path=path, value_text=_text(_plain(loaded, path)), origin=loaded.origins[path])
        for path in setting_fields()
    ]


def to_jsonable(loaded: Loaded) -> dict[str, object]:
    """The same for JSON: `settings`, a list of path, value and origin, and `unknown_variables`."""
    settings = [
        {"path": path, "value": _plain(loaded, path), "origin": loaded.origins[path]}
        for path in setting_fields()
    ]
    return {"settings": settings, "unknown_variables": list(loaded.unknown_variables)}


def hide_credentials(url: str) -> str:
    """Return a URL with what stands before its host hidden."""
    scheme, separator, rest = url.rpartition("://")
    place, slash, path = rest.partition("/")
    credentials, _, host = place.rpartition("@")
    return f"{scheme}{separator}{f'{HIDDEN}@' if credentials else ''}{host}{slash}{path}"


def _plain(loaded: Loaded, path: str) -> JsonValue:
    return _plain_value(value_at(loaded.settings, path))


def _plain_value(value: object) -> JsonValue:
    if isinstance(value, Secret):
        return HIDDEN
    if isinstance(value, Mapping):
        return [str(name) if entry == "" else f"{name}={entry}" for name, entry in value.items()]
    if isinstance(value, tuple):
        return [_plain_value(entry) for entry in value]
    if isinstance(value, str | Path):
        return str(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    raise TypeError(f"a setting of type {type(value).__name__} has no text")


def _text(value: JsonValue) -> str:
    if value is None or value in ("", []):
        return NOTHING
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ",".join(_text(entry) for entry in value)
    return str(value)
