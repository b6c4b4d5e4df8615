"""Where the output of a job goes: bytes exactly as they are, or text that is safe on a terminal."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Final, Protocol

from airunner.cli.screen.terminal import TerminalText, wants_colours, wrap_beside
from airunner.reading.instants import to_iso

if TYPE_CHECKING:
    from typing import TextIO

_RED: Final = "\x1b[31m"
_RESET: Final = "\x1b[0m"


class OutputStream(Protocol):
    """One of the two output streams of a job."""

    @property
    def at_line_start(self) -> bool:
        """Whether the last thing written ended its line."""

    def write(self, output: bytes, at: int) -> None:
        """Show output that was written at an instant."""

    def finish(self) -> None:
        """Show what was held back."""


def open_output_stream(stream: TextIO, *, is_error: bool, raw: bool, timestamps: bool) -> OutputStream:
    """Return where to write for a stream of ours; only a terminal needs protection."""
    if raw or not stream.isatty():
        return ExactStream(stream.buffer, timestamps=timestamps)
    return TerminalStream(stream, colours=wants_colours(stream), red=is_error, timestamps=timestamps)


class ExactStream:
    """Hands on every byte; with timestamps, each line has one in front."""

    def __init__(self, stream: IO[bytes], *, timestamps: bool = False) -> None:
        self._stream = stream
        self._timestamps = timestamps
        self.at_line_start = True

    def write(self, output: bytes, at: int) -> None:
        """Show output."""
        if self._timestamps:
            for line in output.splitlines(keepends=True):
                stamp = f"{to_iso(at)} ".encode() if self.at_line_start else b""
                self._stream.write(stamp + line)
                self.at_line_start = line.endswith(b"\n")
        else:
            self._stream.write(output)
            self.at_line_start = output.endswith(b"\n")
        self._stream.flush()

    def finish(self) -> None:
        """Nothing is held back."""


class TerminalStream:
    """Shows safe text; lines with timestamps are wrapped so that the text stays beside them."""

    def __init__(self, stream: TextIO, *, colours: bool, red: bool, timestamps: bool = False) -> None:
        self._stream = stream
        self._text = TerminalText(colours=colours)
        self._reset = _RESET if colours else ""
        self._red = red and colours
        self._timestamps = timestamps
        self._last_at = 0
        self.at_line_start = True

    def write(self, output: bytes, at: int) -> None:
        """Show output."""
        self._last_at = at
        self._show(self._text.feed(output))

    def finish(self) -> None:
        """Show the rest, and leave the terminal as it was."""
        self._show(self._text.finish())
        self._stream.write(("" if self.at_line_start else "\n") + self._reset)
        self.at_line_start = True
        self._stream.flush()

    def _show(self, text: str) -> None:
        *lines, rest = text.split("\n")
        for line in lines:
            self._stream.write(self._laid_out(line) + "\n")
            self.at_line_start = True
        if rest:
            self._stream.write(self._laid_out(rest))
            self.at_line_start = False
        self._stream.flush()

    def _laid_out(self, body: str) -> str:
        stamp = f"{to_iso(self._last_at)} " if self._timestamps and self.at_line_start else ""
        if stamp:
            body = wrap_beside(body, len(stamp))
        return stamp + (f"{_RED}{body}{_RESET}" if self._red and body else body)
