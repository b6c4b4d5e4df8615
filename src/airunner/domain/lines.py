"""Bytes in, lines out."""

from __future__ import annotations

from io import BytesIO
from typing import Final

MAX_LINE_BYTES: Final = 64 * 1024


class LineSplitter:
    """Cuts a stream of bytes after each line feed and loses none of them.

    A carriage return ends no line: it redraws it. A line longer than `max_line_bytes` comes in pieces of that
    length, each as soon as it is full, so less than that is held back. What `feed` and `flush` returned,
    joined in order, is what was fed.
    """

    def __init__(self, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self._max = max_line_bytes
        # Parts, joined when the line ends: many small chunks of one long line must not cost quadratic time.
        self._tail: list[bytes] = []
        self._tail_bytes = 0

    @property
    def pending(self) -> bool:
        """Whether the start of an unfinished line is held back."""
        return bool(self._tail)

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that `chunk` finishes, with their newlines, and full pieces of too long ones."""
        if not chunk:
            return []
        if self._tail_bytes + len(chunk) < self._max and b"\n" not in chunk:
            self._hold(chunk)
            return []
        taken = self._take() + chunk
        lines = BytesIO(taken).readlines()
        if len(taken) > self._max and max(map(len, lines)) > self._max:
            lines = [piece for line in lines for piece in self._pieces(line)]
        if not lines[-1].endswith(b"\n") and len(lines[-1]) < self._max:
            self._hold(lines.pop())
        return lines

    def flush(self) -> bytes | None:
        """Return the unfinished line that is held back, if there is one, and forget it."""
        return self._take() or None

    def _hold(self, part: bytes) -> None:
        self._tail.append(part)
        self._tail_bytes += len(part)

    def _take(self) -> bytes:
        taken = b"".join(self._tail)
        self._tail.clear()
        self._tail_bytes = 0
        return taken

    def _pieces(self, line: bytes) -> list[bytes]:
        return [line[start : start + self._max] for start in range(0, len(line), self._max)]
