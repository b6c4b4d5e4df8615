"""Keeping secret values out of what a job prints, as a pure function of the bytes that were fed."""

from __future__ import annotations

import re
from copy import copy
from typing import TYPE_CHECKING, Final

from airunner.domain.limits import MIN_SECRET_BYTES
from airunner.domain.lines import LineSplitter
from airunner.worker.secrets.forms import base64_forms, plain_forms

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

MARK: Final = b"[redacted]"

_HEAD_BYTES: Final = MIN_SECRET_BYTES
_FEW_HEADS: Final = 40
_WRAPPED: Final = re.compile(rb"[\r\n](?<=[A-Za-z0-9+/_-]{60}.)", re.DOTALL)
"""The end of a line that may go on in the next one: tools wrap base64 at 64 or 76 characters."""
_WRAPPED_END: Final = re.compile(rb"[A-Za-z0-9+/_-]{60}[\r\n]{1,2}\Z")
_RECENT_BYTES: Final = 62
_LINE_ENDS: Final = b"\r\n"


class Redactor:
    """Replaces every form of the secrets in one stream of bytes by `[redacted]`.

    A value is found as it is, in base64 of any alignment (wrapped into lines too), URL-encoded and
    JSON-escaped, wherever the stream was cut. At one place the longest form wins, and forms that overlap
    become one mark. Held back is only a tail that is a proper prefix of a form. The same bytes give the same
    output, joined, however they were cut. A copy is independent, and shares what is costly to build.
    """

    def __init__(self, secrets: Iterable[bytes]) -> None:
        secrets = tuple(secrets)
        in_base64 = {form for secret in secrets for form in base64_forms(secret)}
        self._all = _Forms(in_base64.union(*map(plain_forms, secrets)))
        self._base64 = _Forms(in_base64)
        self._held = b""
        self._covered = 0  # how much of what is held belongs to a mark that was shown
        self._recent = b""  # the end of what was fed
        self._wrapped = False  # whether a line end in what is looked at may be one within base64

    def feed(self, data: bytes) -> bytes:
        """Return what can be shown now, after what was shown before."""
        if not data:
            return b""
        self._wrapped = b"\n" in self._held or bool(_WRAPPED.search(self._recent + data))
        self._recent = (self._recent + data[-_RECENT_BYTES:])[-_RECENT_BYTES:]
        buffer = self._held + data
        return self._show(buffer, self._shown_until(buffer))

    def flush(self) -> bytes:
        """Return the tail that was held back: the stream is over."""
        return self._show(self._held, len(self._held))

    def _shown_until(self, buffer: bytes) -> int:
        """Return where the longest tail begins that may become a form."""
        start = len(buffer) - self._all.unfinished(buffer)
        if not self._wrapped or (buffer[-1] in _LINE_ENDS and not _WRAPPED_END.search(self._recent)):
            return start
        tail = buffer[-2 * self._base64.longest :]
        return min(start, _without_last(buffer, self._base64.unfinished(_joined(tail))))

    def _show(self, buffer: bytes, until: int) -> bytes:
        """Return the buffer up to `until` with its marks, and hold the rest."""
        parts: list[bytes] = []
        done = self._covered
        for start, end in self._spans(buffer):
            if start >= until:
                break
            if start >= done:
                parts += (buffer[done:start], MARK)
            done = max(done, end)
        parts.append(buffer[done:until])
        self._held = buffer[until:]
        self._covered = max(0, done - until)
        return b"".join(parts)

    def _spans(self, buffer: bytes) -> list[tuple[int, int]]:
        spans = list(self._all.occurrences(buffer))
        joined = list(self._base64.occurrences(_joined(buffer))) if self._wrapped else []
        if joined:
            offsets = [offset for offset, byte in enumerate(buffer) if byte not in _LINE_ENDS]
            spans += [(offsets[start], offsets[end - 1] + 1) for start, end in joined]
        return sorted(spans)


class LineRedactor:
    """Redacts the lines of a process, each of its streams for itself, and keeps them lines where it can."""

    def __init__(self, secrets: Iterable[bytes]) -> None:
        self._unfed = Redactor(secrets)
        self._stdout, self._stderr = copy(self._unfed), copy(self._unfed)

    def unused_copy(self) -> LineRedactor:
        """Return one for the same secrets that was fed nothing, and shares what is costly to build."""
        unused = copy(self)
        unused._stdout, unused._stderr = copy(self._unfed), copy(self._unfed)  # noqa: SLF001  one of us
        return unused

    def feed(self, lines: Sequence[bytes], is_stderr: bool) -> list[bytes]:
        """Return the lines that can be shown now, maybe none."""
        printed = b"".join(lines)
        shown = self._stream(is_stderr).feed(printed)
        return list(lines) if shown == printed else _as_lines(shown)

    def flush(self, is_stderr: bool) -> list[bytes]:
        """Return what was held back of a stream that is over."""
        return _as_lines(self._stream(is_stderr).flush())

    def text(self, text: str) -> str:
        """Return a whole message without secrets."""
        redactor = copy(self._unfed)
        shown = redactor.feed(text.encode("utf-8", "surrogateescape")) + redactor.flush()
        return shown.decode("utf-8", "replace")

    def _stream(self, is_stderr: bool) -> Redactor:
        return self._stderr if is_stderr else self._stdout


class _Forms:
    """A fixed set of byte strings to be looked for at once, none shorter than the shortest secret.

    Only their heads are in a pattern: one of whole keys would take long to compile.
    """

    def __init__(self, forms: Iterable[bytes]) -> None:
        longest_first = sorted(set(forms), key=lambda form: (-len(form), form))
        self.longest = len(longest_first[0])
        self._by_head: dict[bytes, list[bytes]] = {}
        for form in longest_first:
            self._by_head.setdefault(form[:_HEAD_BYTES], []).append(form)
        self._head = re.compile(b"|".join(map(re.escape, self._by_head)))
        self._starts = {head[:length] for head in self._by_head for length in range(1, _HEAD_BYTES)}

    def occurrences(self, buffer: bytes) -> Iterator[tuple[int, int]]:
        """Return where forms begin and end, the longest of each position, overlapping ones too."""
        # Nearly all output has none, and looking for one text after the other is much quicker than a pattern.
        if len(self._by_head) <= _FEW_HEADS and not any(head in buffer for head in self._by_head):
            return
        offset = 0
        while found := self._head.search(buffer, offset):
            start = found.start()
            for form in self._by_head[found[0]]:
                if buffer.startswith(form, start):
                    yield start, start + len(form)
                    break
            offset = start + 1

    def unfinished(self, buffer: bytes) -> int:
        """Return the length of the longest tail that is a proper prefix of a form."""
        offset = max(0, len(buffer) - self.longest + 1)
        while found := self._head.search(buffer, offset):
            tail = buffer[found.start() :]
            if any(len(form) > len(tail) and form.startswith(tail) for form in self._by_head[found[0]]):
                return len(tail)
            offset = found.start() + 1
        lengths = range(min(_HEAD_BYTES - 1, len(buffer)), 0, -1)
        return next((length for length in lengths if buffer[-length:] in self._starts), 0)


def _joined(lines: bytes) -> bytes:
    return lines.translate(None, _LINE_ENDS)


def _without_last(buffer: bytes, count: int) -> int:
    """Return where the last `count` bytes begin when line ends do not count."""
    offset = len(buffer)
    while count:
        offset -= 1
        count -= buffer[offset] not in _LINE_ENDS
    return offset


def _as_lines(output: bytes) -> list[bytes]:
    splitter = LineSplitter()
    lines = splitter.feed(output)
    rest = splitter.flush()
    return lines if rest is None else [*lines, rest]
