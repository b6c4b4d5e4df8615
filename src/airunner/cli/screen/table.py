"""Tables for people at a terminal."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Final

from airunner.cli.printing import one_line
from airunner.cli.screen.terminal import BOLD_UNDERLINED, COLOUR_END

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_GAP: Final = 2
_STATE_COLOURS: Final = {
    "SCHEDULED": "\x1b[33m",
    "RUNNING": "\x1b[36m",
    "COMPLETED": "\x1b[32m",
    "FAILED": "\x1b[31m",
    "CANCELLED": "\x1b[35m",
}
_NO_WIDTH: Final = frozenset({"Mn", "Me", "Cf"})


def table_lines(
    columns: Sequence[str], rows: Sequence[Sequence[str]], *, width: int, colours: bool
) -> Iterator[str]:
    """Yield a head and the rows as lines; the last column is cut where the terminal ends, but never its name.

    The other columns are whole, so that an id can be copied from a terminal of any width.
    """
    cells = [[one_line(cell) for cell in row] for row in rows]
    widths = [max(map(text_width, column)) for column in zip(columns, *cells, strict=True)]
    room = max(len(columns[-1]), width - sum(widths[:-1]) - _GAP * (len(widths) - 1))
    styles = [
        [BOLD_UNDERLINED] * len(columns),
        *([_STATE_COLOURS.get(cell, "") for cell in row] for row in rows),
    ]
    for row, style in zip([list(columns), *cells], styles, strict=True):
        row[-1] = shortened(row[-1], room)
        shown = [_painted(cell, style) if colours else cell for cell, style in zip(row, style, strict=True)]
        gaps = [" " * (widths[at] - text_width(cell) + _GAP) for at, cell in enumerate(row[:-1])]
        yield "".join(cell + gap for cell, gap in zip(shown, [*gaps, ""], strict=True)).rstrip()


def shortened(text: str, room: int) -> str:
    """Return a text that takes no more columns than there is room for; what is cut ends in an ellipsis."""
    if text_width(text) <= room:
        return text
    while text and text_width(text) > room - 1:
        text = text[: max(room - 1, 0)] if len(text) >= room else text[:-1]
    return f"{text}…"


def text_width(text: str) -> int:
    """Return how many columns a text takes."""
    return len(text) if text.isascii() else sum(map(_char_width, text))


def _char_width(char: str) -> int:
    if unicodedata.category(char) in _NO_WIDTH:
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _painted(cell: str, style: str) -> str:
    return f"{style}{cell}{COLOUR_END}" if style and cell else cell
