"""Which run-time settings there are. Each has one home, whatever else is configured."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Final, TypeAlias

from airunner.domain.errors import InvalidArgument
from airunner.domain.execution import BATCHING_RANGES

SettingValue: TypeAlias = int | bool

_WHOLE_NUMBER: Final = re.compile("[0-9]{1,18}")
_SWITCHES: Final = {"true": True, "false": False}


class Home(Enum):
    """Where a setting is kept."""

    STORE = "store"
    """Beside the jobs, so that all servers of the store have it."""
    POSTGRES = "postgres"
    """In the application's database, beside what it steers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTimeSetting:
    """One setting: `parse` returns the value of a text, or raises InvalidArgument."""

    name: str
    home: Home
    allowed: str
    """Which values it may have, in words."""
    parse: Callable[[str], SettingValue]


def whole_number(name: str, home: Home, low: int, high: int) -> RunTimeSetting:
    """Return a setting that is a whole number of a range."""
    allowed = f"a whole number from {low} to {high}"
    return RunTimeSetting(
        name=name, home=home, allowed=allowed, parse=partial(_parse_number, name, allowed, low, high)
    )


def switch(name: str, home: Home) -> RunTimeSetting:
    """Return a setting that is on or off."""
    return RunTimeSetting(name=name, home=home, allowed="true or false", parse=partial(_parse_switch, name))


def value_text(value: SettingValue) -> str:
    """Return the one text of a value."""
    return str(value).lower()


def _parse_number(name: str, allowed: str, low: int, high: int, text: str) -> int:
    # Digits alone: int() would take underscores, spaces and the digits of other scripts.
    if _WHOLE_NUMBER.fullmatch(text) and low <= int(text) <= high:
        return int(text)
    raise InvalidArgument(f"{name} must be {allowed}, not {text[:40]!r}")


def _parse_switch(name: str, text: str) -> bool:
    if text.lower() in _SWITCHES:
        return _SWITCHES[text.lower()]
    raise InvalidArgument(f"{name} must be true or false, not {text[:40]!r}")


BATCHING: Final = "execution.batching."

SETTINGS: Final = {
    setting.name: setting
    for setting in (
        *(
            whole_number(f"{BATCHING}{field}", Home.STORE, low, high)
            for field, (low, high) in BATCHING_RANGES.items()
        ),
        switch(f"{BATCHING}adaptive", Home.STORE),
    )
}
"""All of them, by name."""
