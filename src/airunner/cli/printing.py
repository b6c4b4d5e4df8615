"""Data goes to standard output, talk to standard error."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

SCHEMA_VERSION = 1


def say(text: str) -> None:
    """Talk to the person at the terminal, each line under airunner's name; nobody has to listen."""
    for line in text.splitlines() or [""]:
        announce(f"airunner: {line}")


def announce(text: str) -> None:
    """Say a line that scripts wait for, exactly as it is; without a reader or a disk with room it is lost."""
    with suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def hint(text: str) -> None:
    """Say something that may be overlooked: dim, and only on a terminal."""
    if sys.stderr.isatty():
        _console(stderr=True).print(text, style="dim", markup=False, highlight=False)


def print_json(kind: str, content: Mapping[str, object]) -> None:
    """Print one object on one line, with the version of the schema."""
    fields = {"v": SCHEMA_VERSION, "type": kind, **content}
    print(json.dumps(fields, ensure_ascii=False, separators=(",", ":")), flush=True)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows: as a table on a terminal, else one line each with tabs and without a head."""
    if not sys.stdout.isatty():
        for row in rows:
            print("\t".join(map(one_line, row)))
        return
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    console = _console()
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold underline")
    widths = [max(map(cell_len, cells)) for cells in zip(columns, *rows, strict=True)]
    room = max(len(columns[-1]), console.width - sum(widths[:-1]) - 2 * len(widths))
    for column in columns:
        table.add_column(column, no_wrap=True)
    for row in rows:
        cells = [Text(one_line(cell), style=_STATE_STYLES.get(cell, "")) for cell in row]
        cells[-1].truncate(room, overflow="ellipsis")
        table.add_row(*cells)
    console.print(table)


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


def _console(*, stderr: bool = False) -> Console:
    # Rich looks at NO_COLOR, FORCE_COLOR, TERM and whether there is a terminal at all.
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, soft_wrap=False)


_STATE_STYLES = {
    "SCHEDULED": "yellow",
    "RUNNING": "cyan",
    "COMPLETED": "green",
    "FAILED": "red",
    "CANCELLED": "magenta",
}
