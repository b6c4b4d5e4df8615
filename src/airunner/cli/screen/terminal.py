"""What may reach a terminal: text and colours. Everything else that moves, asks or hides is taken out."""

from __future__ import annotations

import codecs
import re
import shutil
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from typing import TextIO

# Bold and inverse, so that the text keeps whatever colours it has.
MARK_BEGIN: Final = "\x1b[1;7m"
MARK_END: Final = "\x1b[22;27m"
BOLD_UNDERLINED: Final = "\x1b[1;4m"
DIM: Final = "\x1b[2m"
COLOUR_END: Final = "\x1b[0m"
# What terminals are called that only print.
_DUMB: Final = frozenset({"dumb", "unknown"})

_SGR: Final = r"\x1b\[[0-9;:]*m"
_SEQUENCE: Final = re.compile(
    rf"""(?P<colour>{_SGR})
    | (?P<newline>\r\n?)
    | \x1b\[[0-?]*[\ -/]*[@-~]                       # other control sequences: cursor, erase, modes, reports
    | \x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)    # strings: titles, links, device control
    | \x1b[\ -/]*[0-~]                              # two-character escapes
    | [\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]        # single controls, the 8-bit ones and a lone ESC included
    """,
    re.VERBOSE,
)
# The beginning of a sequence whose end may come with the next piece of output.
_UNFINISHED: Final = re.compile(
    r"(?:\r|\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b\n]*\x1b?|[ -/]*)?)\Z",
)
_LONGEST_UNFINISHED: Final = 4096
_NARROWEST: Final = 20
_SPLIT_SGR: Final = re.compile(f"({_SGR})")


class TerminalText:
    """Turns the bytes of one stream into text that is safe on a terminal, whatever pieces they come in.

    A carriage return begins a new line: drawing over a line could hide what was written there.
    """

    def __init__(self, *, colours: bool = True) -> None:
        self._colours = colours
        self._decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
        self._kept = ""

    def feed(self, output: bytes) -> str:
        """Return what can be shown by now."""
        text = self._kept + self._decode(output)
        unfinished = _UNFINISHED.search(text)
        cut = unfinished.start() if unfinished else len(text)
        if len(text) - cut > _LONGEST_UNFINISHED:
            cut = len(text)
        self._kept = text[cut:]
        return self._safe(text[:cut])

    def finish(self) -> str:
        """Return the rest."""
        text, self._kept = self._kept + self._decode(b"", final=True), ""
        return self._safe(text)

    def _safe(self, text: str) -> str:
        return _SEQUENCE.sub(self._replacement, text)

    def _replacement(self, found: re.Match[str]) -> str:
        if found["newline"]:
            return "\n"
        return (found["colour"] or "") if self._colours else ""


def wrap_beside(line: str, indent: int) -> str:
    """Return a line in rows as wide as the terminal, all of them right of the first `indent` columns.

    What stands in these columns of the first row is the caller's; in the others they are empty.
    """
    width = max(_NARROWEST, shutil.get_terminal_size().columns - indent)
    return ("\n" + " " * indent).join(wrap(line, width, indent))


def wrap(line: str, width: int, indent: int = 0) -> list[str]:
    """Cut a line into pieces that fit into `width` columns, right of `indent` others; colours take none."""
    if len(line) <= width and line.isascii() and "\t" not in line:
        return [line]
    from rich.cells import get_character_cell_size

    pieces, used = [""], 0
    for part in _SPLIT_SGR.split(line):
        if part.startswith("\x1b"):
            pieces[-1] += part
            continue
        for char in part:
            columns = 8 - (indent + used) % 8 if char == "\t" else get_character_cell_size(char)
            if used + columns > width and used:
                pieces.append("")
                used = 0
            pieces[-1] += char
            used += columns
    return pieces


def wants_colours(stream: TextIO) -> bool:
    """Return whether a stream shows colours and the person there wants them."""
    if not can_redraw(stream):
        return False
    from airunner.config import process_environment

    return not process_environment().get("NO_COLOR")


def can_redraw(stream: TextIO) -> bool:
    """Return whether a stream is a terminal on which a line can be drawn over."""
    if not stream.isatty():
        return False
    from airunner.config import process_environment

    return process_environment().get("TERM", "").lower() not in _DUMB


class StatusLine:
    """One line at the bottom of a terminal that is drawn over and taken away again."""

    def __init__(self, stream: TextIO, *, enabled: bool) -> None:
        self.enabled = enabled
        self._stream = stream
        self._drawn = False

    def draw(self, text: str) -> None:
        """Show the text, cut to the width of the terminal."""
        if self.enabled:
            columns = shutil.get_terminal_size().columns
            self._stream.write(f"\r\x1b[0m\x1b[2K{DIM}{text[: columns - 1]}{COLOUR_END}")
            self._stream.flush()
            self._drawn = True

    def clear(self) -> None:
        """Take the line away, so that something else can be written there."""
        if self._drawn:
            self._stream.write("\r\x1b[2K")
            self._stream.flush()
            self._drawn = False
