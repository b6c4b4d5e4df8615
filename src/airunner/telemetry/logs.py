"""Structured logs on standard error. Logging never raises: what cannot be written is dropped and counted.

Whoever uses airunner as a library and has not configured structlog gets warnings and errors, in plain text.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

import structlog

from airunner.telemetry.instruments import Counter

if TYPE_CHECKING:
    from collections.abc import Iterator

# One for all lines: to make one costs as much as to use it.
_to_json = json.JSONEncoder(default=repr).encode

logs_dropped = Counter("airunner.logs.dropped", "Log lines that could not be written")


def get_logger(name: str) -> Any:
    """Return a logger that follows how structlog is configured, by us or by the program that we are in.

    Nothing is configured here: as long as nobody has, it writes for itself. The default of structlog would
    print to standard output, and tracebacks with the values of all variables, parameters of jobs among them.
    """
    return _Logger(name)


def set_up_logs(level: str, style: str = "auto") -> None:
    """Write logs to standard error: for people on a terminal, as JSON otherwise."""
    people = style == "console" or (style == "auto" and sys.stderr.isatty())
    renderer: structlog.typing.Processor = (
        # A traceback shows where, never the values there: they may be secret.
        structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
        if people
        else structlog.processors.JSONRenderer(serializer=lambda fields, **_: _to_json(fields))
    )
    lines = _LineWriter(sys.stderr)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=_never_raising(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=lambda *_: lines,
        cache_logger_on_first_use=True,
    )


@contextmanager
def lines_together() -> Iterator[None]:
    """Write what this thread logs within the block in one piece, at its end. For blocks that do not await."""
    lines: list[tuple[TextIO, str]] = []
    _held.lines = lines
    try:
        yield
    finally:
        del _held.lines
        try:
            for file in dict.fromkeys(file for file, _ in lines):
                _write(file, "".join([text for to, text in lines if to is file]))
        except Exception:  # noqa: BLE001  there is nowhere to tell of it but in a number
            logs_dropped.add(len(lines))


def _never_raising(level: int) -> type[structlog.typing.FilteringBoundLogger]:
    """Return a logger of a level and above whose calls always return.

    A disk without room, a pipe that nobody reads, a value that cannot be shown: none of it is the caller's.
    """
    base: Any = structlog.make_filtering_bound_logger(level)

    class NeverRaising(base):  # type: ignore[misc]  # structlog makes the class
        def _proxy_to_logger(
            self, method_name: str, event: str | None = None, *args: Any, **fields: Any
        ) -> Any:
            try:
                return super()._proxy_to_logger(method_name, event, *args, **fields)
            except Exception:  # noqa: BLE001  there is nowhere to tell of it but in a number
                logs_dropped.add(1)
                return None

    return NeverRaising


class _Logger:
    """Passes every call on to a logger of structlog: the configured one, or a plain one of our own."""

    __slots__ = ("_configured", "_plain")

    def __init__(self, name: str) -> None:
        self._configured = structlog.get_logger(name)
        self._plain = structlog.wrap_logger(
            _LineWriter(),
            processors=[
                structlog.contextvars.merge_contextvars,
                structlog.processors.add_log_level,
                structlog.processors.TimeStamper(fmt="iso", utc=True),
                structlog.dev.ConsoleRenderer(
                    colors=False, exception_formatter=structlog.dev.plain_traceback
                ),
            ],
            wrapper_class=_never_raising(logging.WARNING),
            context_class=dict,
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._configured if structlog.is_configured() else self._plain, name)


class _LineWriter:
    """Writes lines to a file, each in one piece; without one, to what is standard error at that moment."""

    def __init__(self, file: TextIO | None = None) -> None:
        self._file = file

    def msg(self, message: str) -> None:
        file, line = self._file or sys.stderr, f"{message}\n"
        held: list[tuple[TextIO, str]] | None = getattr(_held, "lines", None)
        if held is None:
            _write(file, line)
        else:
            held.append((file, line))

    debug = info = warning = error = critical = msg


_held = threading.local()
"""Of each thread: the lines that it holds back, with where they go, if it does."""
_writing = threading.Lock()


def _write(file: TextIO, text: str) -> None:
    with _writing:
        file.write(text)
        file.flush()


_log = get_logger("airunner.telemetry")


def forward_warnings(library: str, event: str) -> None:
    """Log what a library warns of as an event of ours; without this it would be plain text among the JSON."""
    logger = logging.getLogger(library)
    logger.handlers = [_Forwarder(event)]
    logger.propagate = False


class _Forwarder(logging.Handler):
    """Passes on the text of records, without their tracebacks."""

    def __init__(self, event: str) -> None:
        super().__init__(logging.WARNING)
        self._event = event

    def emit(self, record: logging.LogRecord) -> None:
        _log.warning(self._event, error=record.getMessage())
