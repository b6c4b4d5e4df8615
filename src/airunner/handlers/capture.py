"""Routing what handlers print and log, each to its own output, however many run at once.

The streams of the process are replaced by ones that look up the output of the current handler for every
write: a context variable follows a handler through its calls, its tasks and `asyncio.to_thread`. A bare
thread that a handler starts has no output of its own; what it prints goes to the original stream.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from io import TextIOBase
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from airunner.handlers.context import OutputSink

current_output: ContextVar[OutputSink | None] = ContextVar("current_output", default=None)
"""Takes the output of the current handler; None outside of handlers."""


@contextmanager
def captured() -> Iterator[None]:
    """Send what handlers print and log to their outputs.

    Several in a process share one capture, which ends with the last of them, in whatever order they end.
    """
    _users.enter()
    try:
        yield
    finally:
        _users.leave()


@contextmanager
def _captured() -> Iterator[None]:
    stdout, stderr = sys.stdout, sys.stderr
    out, err = _stream(stdout, is_stderr=False), _stream(stderr, is_stderr=True)
    root = logging.getLogger()
    level, logs = root.level, _Logs(err)
    sys.stdout, sys.stderr = out, err
    root.addHandler(logs)
    if root.level == logging.WARNING:
        # The default level would drop what handlers log for people to read.
        root.setLevel(logging.INFO)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = stdout, stderr
        root.removeHandler(logs)
        root.setLevel(level)


class _Stream(TextIOBase):
    """Writes to the output of the current handler, or else to the stream that it replaces."""

    encoding = "utf-8"

    def __init__(self, original: TextIO, *, is_stderr: bool) -> None:
        super().__init__()
        self._original = original
        self._is_stderr = is_stderr

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return current_output.get() is None and self._original.isatty()

    def fileno(self) -> int:
        return self._original.fileno()

    def close(self) -> None:
        """Close nothing: the original is somebody else's, and may be closed when this is collected."""

    def write(self, text: str, /) -> int:
        output = current_output.get()
        if output is None:
            return self._original.write(text)
        output.write(text, is_stderr=self._is_stderr)
        return len(text)

    def flush(self) -> None:
        output = current_output.get()
        if output is None:
            self._original.flush()
        else:
            output.flush()


def _stream(original: TextIO, *, is_stderr: bool) -> _Stream:
    """Return what replaces a stream: the same one each time, and never freed.

    A handler that does not end may print while its stream is put back, and `print` holds no reference to the
    stream that it writes to: CPython crashes if nobody else does (gh-130163).
    """
    key = id(original), is_stderr
    if key not in _streams:
        _streams[key] = _Stream(original, is_stderr=is_stderr)
    return _streams[key]


class _Logs(logging.Handler):
    """Writes log records to the standard error of the current handler, unless another log handler does.

    What is logged outside of handlers goes where it would go without this.
    """

    def __init__(self, stream: _Stream) -> None:
        super().__init__()
        self._stream = stream
        self.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))

    def handle(self, record: logging.LogRecord) -> bool:
        """Write a record without the lock of log handlers: who waits for room would hold up all who log."""
        is_wanted = bool(self.filter(record))
        if is_wanted:
            self.emit(record)
        return is_wanted

    def emit(self, record: logging.LogRecord) -> None:
        output = current_output.get()
        if output is None:
            self._leave_to_the_last_resort(record)
            return
        if any(_writes_to_output(other) for other in logging.getLogger().handlers):
            return
        try:
            text = self.format(record) + "\n"
        except Exception:  # noqa: BLE001  a log call never harms its caller
            self.handleError(record)
            return
        output.write(text, is_stderr=True)

    def _leave_to_the_last_resort(self, record: logging.LogRecord) -> None:
        """Do as logging does without any log handler: errors of libraries are not to get lost."""
        last = logging.lastResort
        if last and record.levelno >= last.level and all(one is self for one in _log_handlers(record.name)):
            last.handle(record)


def _log_handlers(name: str) -> Iterator[logging.Handler]:
    """Yield the log handlers that get the records of a logger."""
    logger: logging.Logger | None = logging.getLogger(name)
    while logger:
        yield from logger.handlers
        logger = logger.parent if logger.propagate else None


def _writes_to_output(other: logging.Handler) -> bool:
    return isinstance(other, logging.StreamHandler) and isinstance(other.stream, _Stream)


class _Users:
    """How many want the output of handlers captured now, and how their capture ends."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._capture = ExitStack()

    def enter(self) -> None:
        """Begin to capture, if nobody else wanted it."""
        with self._lock:
            if self._count == 0:
                self._capture.enter_context(_captured())
            self._count += 1

    def leave(self) -> None:
        """End it, if nobody else wants it any more."""
        with self._lock:
            self._count -= 1
            if self._count == 0:
                self._capture.close()


_users: Final = _Users()
_streams: Final[dict[tuple[int, bool], _Stream]] = {}
