"""Output events as lines, and which of them somebody wants to see. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from airunner.domain.errors import InvalidArgument
from airunner.domain.event import Gap, Output, StreamType
from airunner.domain.lines import LineSplitter

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from airunner.domain.event import Event

# Longer lines are cut, so that a job that never ends its line cannot fill the reader's memory.
_LONGEST_LINE: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """One line as it was written, with its newline if it has one, and the position of its first piece.

    `starts` is False for what continues a line that was cut, or may do so since what is before it was not
    read.
    """

    attempt: int
    sequence: int
    timestamp: int
    stream: StreamType
    content: bytes
    starts: bool = True

    @property
    def text(self) -> str:
        """The line as text, without its end."""
        return self.content.decode(errors="replace").rstrip("\r\n")


class LineAssembly:
    """Puts together the lines of each stream, which events may hold in pieces.

    Lines come out when they end, `finish` gives those that never did, and a Gap those whose end may be lost.
    Behind a Gap, or begun later than with the first event of an attempt, it cannot know whether the first
    line of each stream is whole.
    """

    def __init__(self, *, from_start: bool = True) -> None:
        self._from_start = from_start
        self._attempt = 0
        self._streams: dict[StreamType, _StreamLines] = {}

    def feed(self, event: Event) -> Iterator[LogLine]:
        """Take the next event; yield the lines that it ends."""
        if self._attempt not in {0, event.attempt}:
            yield from self.finish()
        self._attempt = event.attempt
        if isinstance(event.data, Gap):
            yield from self.finish()
            self._from_start = False
        if isinstance(event.data, Output):
            stream = event.data.stream
            if stream not in self._streams:
                self._streams[stream] = _StreamLines(stream, starts=self._from_start)
            yield from self._streams[stream].feed(event, event.data.output)

    def finish(self) -> list[LogLine]:
        """Return what no newline ended, in the order in which it began."""
        rest = [line for stream in self._streams.values() for line in stream.finish()]
        self._streams.clear()
        self._from_start = True
        return sorted(rest, key=lambda line: line.sequence)


class LineFilter:
    """Chooses lines. `pattern` is a regular expression, searched in the text of a line; `invert` negates it.

    A pattern that is not a regular expression is InvalidArgument.
    """

    def __init__(
        self,
        pattern: str | None = None,
        *,
        ignore_case: bool = False,
        invert: bool = False,
        stream: StreamType | None = None,
    ) -> None:
        self._pattern = _compile(pattern, ignore_case=ignore_case) if pattern is not None else None
        self._invert = invert
        self._stream = stream

    def wants(self, line: LogLine) -> bool:
        """Return whether a line is chosen."""
        if self._stream not in {None, line.stream}:
            return False
        return self._pattern is None or (self._pattern.search(line.text) is None) == self._invert

    def mark(self, line: LogLine, begin: str, end: str) -> bytes:
        """Return the content of a line with each match of the pattern between two texts."""
        if self._pattern is None or self._invert:
            return line.content
        marked = self._pattern.sub(lambda found: f"{begin}{found[0]}{end}" if found[0] else "", line.text)
        return marked.encode() + (b"\n" if line.content.endswith(b"\n") else b"")


class _StreamLines:
    """The lines of one stream of one attempt."""

    def __init__(self, stream: StreamType, *, starts: bool) -> None:
        self._stream = stream
        self._splitter = LineSplitter(_LONGEST_LINE)
        self._first: Event | None = None
        self._starts = starts

    def feed(self, event: Event, output: bytes) -> Iterator[LogLine]:
        yield from self._lines(event, self._splitter.feed(output))
        if not self._splitter.pending:
            self._first = None
        elif self._first is None:
            self._first = event

    def finish(self) -> Iterator[LogLine]:
        if self._first and (rest := self._splitter.flush()):
            yield from self._lines(self._first, [rest])

    def _lines(self, event: Event, contents: Iterable[bytes]) -> Iterator[LogLine]:
        for content in contents:
            first, self._first = self._first or event, None
            yield LogLine(
                attempt=first.attempt,
                sequence=first.sequence,
                timestamp=first.timestamp,
                stream=self._stream,
                content=content,
                starts=self._starts,
            )
            self._starts = content.endswith(b"\n")


def _compile(pattern: str, *, ignore_case: bool) -> re.Pattern[str]:
    try:
        return re.compile(pattern, re.IGNORECASE if ignore_case else 0)
    except re.error as error:
        raise InvalidArgument(f"{pattern!r} is not a regular expression: {error}") from None
