"""Files of NAME=value lines, as systemd's EnvironmentFile and `.env` have them."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_ASSIGNMENT: Final = re.compile(r"^\s*(?:export\s+)?([A-Za-z_]\w*)\s*=")


def read(path: Path) -> str:
    """Return the text of a file; one that does not exist is empty."""
    return path.read_text(encoding="utf-8") if path.exists() else ""


def names(text: str) -> set[str]:
    """Return the variables that are set there."""
    return {found[1] for line in text.splitlines() if (found := _ASSIGNMENT.match(line))}


def with_variables(text: str, values: Mapping[str, str]) -> str:
    """Return the text with these variables set; lines of others, comments included, stay where they are."""
    left = dict(values)
    lines: list[str] = []
    for line in text.splitlines():
        found = _ASSIGNMENT.match(line)
        name = found[1] if found else ""
        if name not in values:
            lines.append(line)
        elif name in left:
            lines.append(f"{name}={left.pop(name)}")
    lines += [f"{name}={value}" for name, value in left.items()]
    return "".join(f"{line}\n" for line in lines)


def write(path: Path, text: str) -> None:
    """Replace the file at once by one that only this user can read."""
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # of this user alone
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(draft).replace(path)
    except BaseException:
        Path(draft).unlink()
        raise
