"""The text of a wrong configuration: the key, the rule and where the value came from."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

HIDDEN = "********"
SHOWN_CHARACTERS = 60
PLAIN_WORDS = {
    "a valid integer": "a whole number",
    "a valid number": "a number",
    "a valid boolean": "true or false",
    "a valid string": "text",
    "a valid tuple": "a list",
}


class ConfigError(Exception):
    """The configuration cannot be used. The text holds one line per problem and never a secret."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


def did_you_mean(name: str, known: Mapping[str, str]) -> str:
    """`; did you mean X?` or nothing; `known` maps each name that may be written to the X to show."""
    from difflib import get_close_matches  # late: hardly any name is wrong

    found = get_close_matches(name, known, n=1, cutoff=0.6)
    return f"; did you mean {known[found[0]]}?" if found else ""


def reason(error: OSError | UnicodeDecodeError) -> str:
    """Return why a file cannot be read."""
    return "it is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else str(error.strerror or error)


def problem_of(error: ErrorDetails, origins: Mapping[str, str], secrets: frozenset[str]) -> str:
    """One line for one failed rule of the tree."""
    path = ".".join(str(part) for part in error["loc"] if isinstance(part, str) and _is_key(part))
    path = _longest_known(path, origins)
    shown = "" if path in secrets else _shown_value(error["input"])
    return f"{path}: {_rule(error)}{shown} (from {_origin_of(path, origins)})"


def _is_key(part: str) -> bool:
    """Pydantic also puts names of its own validators into the place of an error."""
    return re.fullmatch(r"[a-z][a-z0-9_]*", part) is not None


def _longest_known(path: str, origins: Mapping[str, str]) -> str:
    while path and not any(known == path or known.startswith(f"{path}.") for known in origins):
        path = path.rpartition(".")[0]
    return path


def _rule(error: ErrorDetails) -> str:
    if error["type"] == "value_error":
        return str(error.get("ctx", {}).get("error", "is not valid"))
    text = re.sub(r"^\w+ should", "must", error["msg"])
    text = re.sub(r"(, unable to .*| after validation, not \d+)$", "", text)
    for theirs, ours in PLAIN_WORDS.items():
        text = text.replace(theirs, ours)
    return text


def _shown_value(value: object) -> str:
    """Only plain values are shown, and none that may hold a password in a URL."""
    if not isinstance(value, str | int | float):
        return ""
    text = value if isinstance(value, str) else str(value).lower()
    if "@" in text:
        return f", not {HIDDEN}"
    cut = text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "..."
    return f", not {cut!r}"


def _origin_of(path: str, origins: Mapping[str, str]) -> str:
    """For a section, the origins of those of its settings that were given."""
    if path in origins:
        return origins[path]
    given = {
        origin for known, origin in origins.items() if known.startswith(f"{path}.") and origin != "default"
    }
    return ", ".join(sorted(given)) or "default"
