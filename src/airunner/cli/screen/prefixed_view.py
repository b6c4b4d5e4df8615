"""Several jobs in one terminal or pipe: whole lines, each behind the name of its job."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from airunner.cli.printing import hint
from airunner.cli.screen.event_view import remark, say_connection
from airunner.cli.screen.terminal import TerminalText, wants_colours, wrap_beside
from airunner.domain.event import Output, StreamType
from airunner.reading.instants import to_iso
from airunner.reading.log_lines import LineAssembly

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TextIO

    from airunner.client import ConnectionState
    from airunner.domain.event import Event
    from airunner.reading.log_lines import LogLine

_SHORTEST_LABEL: Final = 6
# Not red, which is for standard error.
_COLOURS: Final = (36, 32, 33, 35, 34, 96, 92, 93, 95, 94)
_RED: Final = "\x1b[31m"
_RESET: Final = "\x1b[0m"


def short_labels(job_ids: Sequence[str]) -> dict[str, str]:
    """Return the shortest ends of ids that tell them apart, all of one length."""
    longest = max(map(len, job_ids))
    for length in range(_SHORTEST_LABEL, longest):
        if len({job_id[-length:] for job_id in job_ids}) == len(job_ids):
            return {job_id: job_id[-length:] for job_id in job_ids}
    return {job_id: job_id for job_id in job_ids}


class PrefixedView:
    """One of several jobs. A line is shown when it ends, so those of different jobs never mix."""

    def __init__(self, label: str, number: int, *, raw: bool = False, timestamps: bool = False) -> None:
        """Take the label of the job and its number, which chooses its colour."""
        self._who = f"{label}: "
        self._assembly = LineAssembly()
        self._writers = {
            StreamType.STDOUT: _line_writer(sys.stdout, label, number, red=False, raw=raw),
            StreamType.STDERR: _line_writer(sys.stderr, label, number, red=True, raw=raw),
        }
        self._timestamps = timestamps

    def show(self, event: Event) -> None:
        """Show the lines that the event ends, or what else it means."""
        for line in self._assembly.feed(event):
            self._write(line)
        if not isinstance(event.data, Output):
            remark(event, self._who)

    def tick(self, now: int) -> None:
        """There is no status line for several jobs."""

    def connection_changed(self, state: ConnectionState, reason: str) -> None:
        """Say that the stream is interrupted."""
        say_connection(state, reason, self._who)

    def mode_changed(self, mode: str) -> None:
        """Several jobs are not played back."""

    def played_to(self, offset: int) -> None:
        """Several jobs are not played back."""

    def jumped(self, to: str) -> None:
        """Say where it goes on."""
        hint(f"{self._who}at {to}")

    def finish(self) -> None:
        """Show the lines that never ended."""
        for line in self._assembly.finish():
            self._write(line)

    def _write(self, line: LogLine) -> None:
        stamp = f"{to_iso(line.timestamp)} " if self._timestamps else ""
        self._writers[line.stream].write(stamp, line.content.removesuffix(b"\n"))


class _ExactLines:
    """Every byte of a line, behind its prefix."""

    def __init__(self, stream: TextIO, prefix: str) -> None:
        self._stream = stream.buffer
        self._prefix = prefix

    def write(self, stamp: str, content: bytes) -> None:
        self._stream.write(f"{self._prefix}{stamp}".encode() + content + b"\n")
        self._stream.flush()


class _SafeLines:
    """What of a line is safe on a terminal, beside its prefix; one that breaks there has the prefix again."""

    def __init__(self, stream: TextIO, prefix: str, *, colour: int, red: bool) -> None:
        self._stream = stream
        self._colours = wants_colours(stream)
        self._width = len(prefix)
        self._prefix = f"\x1b[{colour}m{prefix}{_RESET}" if self._colours else prefix
        self._red = red and self._colours

    def write(self, stamp: str, content: bytes) -> None:
        safe = TerminalText(colours=self._colours)
        text = (safe.feed(content) + safe.finish()).rstrip("\n")
        for part in text.split("\n"):
            rows = wrap_beside(part, self._width + len(stamp))
            body = f"{_RED}{rows}" if self._red else rows
            reset = _RESET if self._colours and "\x1b" in body else ""
            self._stream.write(f"{self._prefix}{stamp}{body}{reset}\n")
        self._stream.flush()


def _line_writer(
    stream: TextIO, label: str, number: int, *, red: bool, raw: bool
) -> _ExactLines | _SafeLines:
    prefix = f"{label} │ "
    if raw or not stream.isatty():
        return _ExactLines(stream, prefix)
    return _SafeLines(stream, prefix, colour=_COLOURS[number % len(_COLOURS)], red=red)
