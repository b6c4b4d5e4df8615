"""Strict reading of the fields of a JSON message.

What cannot be right is refused with a PermanentFailure, whose code says what is wrong with the message: no
later delivery of the same body would be any better.
"""

from __future__ import annotations

import json
import math
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NoReturn

from airunner.domain.errors import PermanentFailure
from airunner.domain.limits import MAX_INSTANT
from airunner.fleet.records import INSTANCE_ID

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

MAX_SECONDS: Final = MAX_INSTANT / 1000
_SHOWN: Final = 80


class MessageFields:
    """The fields of one message. Each is read once; those that nobody read are unknown."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._left = dict(values)

    @classmethod
    def parse(cls, body: str) -> MessageFields:
        """Return the fields of a body, or refuse it as `not_json`."""
        try:
            parsed = json.loads(body, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            raise PermanentFailure("not_json", f"the body is not JSON: {error}") from None
        if not isinstance(parsed, dict):
            refuse("not_json", "the body is no JSON object")
        return cls(parsed)

    @property
    def unknown(self) -> tuple[str, ...]:
        """The names of the fields that were not read, in their order."""
        return tuple(sorted(self._left))

    def text(self, name: str, *, default: str | None = None, max_length: int = 256) -> str:
        """Return a text; one that is empty counts as missing.

        JSON can hold halves of characters, which can be neither stored nor sent: each becomes a '?'.
        """
        value = self._take(name, default)
        if not isinstance(value, str) or len(value) > max_length:
            refuse("bad_field", f"{name} must be a text of at most {max_length} characters")
        if not value and default is None:
            refuse("missing_field", f"{name} is empty")
        return value.encode(errors="replace").decode()

    def instance_id(self, name: str) -> str:
        """Return the id of an instance. It becomes part of names, so it has letters, digits and '-' alone."""
        value = self.text(name)
        if not INSTANCE_ID.fullmatch(value):
            refuse("bad_field", f"{name} must be 1 to 64 of letters, digits and '-'")
        return value

    def choice(self, name: str, allowed: Collection[str], code: str) -> str:
        """Return one of a few words; any other is refused under `code`."""
        value = self.text(name)
        if value not in allowed:
            refuse(code, f"{name} must be one of {', '.join(sorted(allowed))}, not {value[:_SHOWN]!r}")
        return value

    def integer(
        self, name: str, *, default: int | None = None, low: int = -(2**31), high: int = 2**31 - 1
    ) -> int:
        """Return a whole number within its limits, both included."""
        value = self._take(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            refuse("bad_field", f"{name} must be a whole number from {low} to {high}")
        return value

    def flag(self, name: str, *, default: bool) -> bool:
        """Return true or false."""
        value = self._take(name, default)
        if not isinstance(value, bool):
            refuse("bad_field", f"{name} must be true or false")
        return value

    def seconds(self, name: str) -> float:
        """Return a duration, with or without a fraction; a negative one is refused as `duration`."""
        value = self._take(name, None)
        if isinstance(value, bool) or not isinstance(value, int | float) or not _is_bounded(value):
            refuse("bad_field", f"{name} must be a number of seconds")
        if value < 0:
            refuse("duration", f"{name} is negative")
        return float(value)

    def instant(self, name: str) -> int:
        """Return an instant that is written in ISO 8601 with its zone, in Unix milliseconds."""
        value = self.text(name)
        try:
            parsed = datetime.fromisoformat(value)
            instant = round(parsed.timestamp() * 1000)
        except (ValueError, OverflowError):
            refuse("bad_field", f"{name} must be ISO 8601, not {value[:_SHOWN]!r}")
        if parsed.tzinfo is None or not 0 < instant <= MAX_INSTANT:
            refuse("bad_field", f"{name} must have a zone and be after 1970")
        return instant

    def nested(self, name: str) -> MessageFields:
        """Return the fields of an object; of an empty one where it is not there."""
        value = self._take(name, {})
        if not isinstance(value, dict):
            refuse("bad_field", f"{name} must be an object")
        return MessageFields(value)

    def _take(self, name: str, default: object) -> Any:
        value = self._left.pop(name, None)
        if value is None:
            value = default
        if value is None:
            refuse("missing_field", f"{name} is missing")
        return value


def refuse(code: str, message: str) -> NoReturn:
    """Refuse a message for good."""
    raise PermanentFailure(code, message)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _is_bounded(value: float) -> bool:
    return abs(value) <= MAX_SECONDS and math.isfinite(value)
