"""Data goes to standard output, talk to standard error."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SCHEMA_VERSION = 1
_UNICODE = frozenset({"utf-8", "utf8"})
# JSON need not escape these, and terminals take some of them for the beginning of a control sequence.
_ESCAPED_CONTROLS = {code: f"\\u{code:04x}" for code in range(0x7F, 0xA0)}


def say(text: str) -> None:
    """Talk to the person at the terminal, each line under airunner's name; nobody has to listen.

    Much of what is said comes from jobs and servers, so that only text is let through.
    """
    for line in text.splitlines() or [""]:
        announce(f"airunner: {one_line(line)}")


def announce(text: str) -> None:
    """Say a line that scripts wait for, exactly as it is; without a reader or a disk with room it is lost."""
    with suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def hint(text: str) -> None:
    """Say something that may be overlooked: dim, and only on a terminal."""
    if not sys.stderr.isatty():
        return
    from airunner.cli.screen.terminal import COLOUR_END, DIM, wants_colours

    plain = one_line(text)
    announce(f"{DIM}{plain}{COLOUR_END}" if wants_colours(sys.stderr) else plain)


def print_json(kind: str, content: Mapping[str, object]) -> None:
    """Print one object on one line, with the version of the schema; it can be read in any encoding."""
    fields = {"v": SCHEMA_VERSION, "type": kind, **content}
    has_all_letters = str(sys.stdout.encoding).lower() in _UNICODE
    text = json.dumps(fields, ensure_ascii=not has_all_letters, separators=(",", ":"))
    print(text.translate(_ESCAPED_CONTROLS), flush=True)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows: as a table on a terminal, else one line each with tabs and without a head."""
    if not sys.stdout.isatty():
        for row in rows:
            print("\t".join(map(one_line, row)))
        return
    import shutil

    from airunner.cli.screen.table import table_lines
    from airunner.cli.screen.terminal import wants_colours

    width = shutil.get_terminal_size().columns
    for line in table_lines(columns, rows, width=width, colours=wants_colours(sys.stdout)):
        print(line)


def print_fields(fields: Mapping[str, str]) -> None:
    """Print one thing: a name and a value a line, empty values left out."""
    shown = {name: value for name, value in fields.items() if value}
    width = max(map(len, shown), default=0) if sys.stdout.isatty() else 0
    for name, value in shown.items():
        gap = " " * (width - len(name) + 2) if width else "\t"
        print(f"{name}{gap}{one_line(value)}")


def one_line(text: str) -> str:
    """Return a text that moves no cursor and breaks no row."""
    return "".join(char if char.isprintable() else " " for char in text)


def moment(instant: int) -> str:
    """Return an instant for a table: how long ago on a terminal, else exactly; nothing for none."""
    from airunner.domain.clock import SystemClock
    from airunner.reading.instants import format_duration, to_iso

    if not instant or not sys.stdout.isatty():
        return to_iso(instant)
    return f"{format_duration(SystemClock().now() - instant)} ago"
