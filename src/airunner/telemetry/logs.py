"""Structured logs on standard error. Logging never raises: what cannot be written is dropped and counted.

Whoever uses airunner as a library and has not configured structlog gets warnings and errors, in plain text.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TextIO, TypeAlias

import structlog

from airunner.telemetry.instruments import Counter

if TYPE_CHECKING:
    from collections.abc import Sequence

# One for all lines: to make one costs as much as to use it.
_to_json = json.JSONEncoder(default=repr).encode
_stamp = structlog.processors.TimeStamper(fmt="iso", utc=True)

Line: TypeAlias = tuple[int, str, dict[str, Any]]
"""A level of the standard library, an event and its fields."""

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
    lowest = logging.getLevelNamesMapping()[level.upper()]
    lines = _LineWriter(sys.stderr)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            _stamp,
            structlog.processors.format_exc_info,
            *(_for_people() if people else [_JsonRenderer(lowest, lines)]),
        ],
        wrapper_class=_never_raising(lowest),
        logger_factory=lambda *_: lines,
        cache_logger_on_first_use=True,
    )


def log_together(logger: Any, lines: Sequence[Line]) -> None:
    """Log plain values, line by line; as JSON of ours in one piece, with one timestamp. Never raises.

    Line by line the same JSON takes three times as long.
    """
    with suppress(Exception):
        *_, renderer = structlog.get_config()["processors"]
        if isinstance(renderer, _JsonRenderer):
            renderer.write(lines)
            return
    for level, event, fields in lines:
        with suppress(Exception):
            logger.log(level, event, **fields)


def _for_people(**options: Any) -> list[structlog.typing.Processor]:
    """Return the steps that make a record a line for people.

    A traceback shows where, never the values there: they may be secret.
    """
    plain = structlog.dev.plain_traceback
    return [_escape_controls, structlog.dev.ConsoleRenderer(exception_formatter=plain, **options)]


def _escape_controls(
    _logger: Any, _method: str, record: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    """Escape what could move a cursor: errors of handlers and of other machines are logged as they are."""
    return {name: _escaped(value) if isinstance(value, str) else value for name, value in record.items()}


def _escaped(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in "\n\t" else char.encode("unicode_escape").decode()
        for char in text
    )


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
                _stamp,
                structlog.processors.format_exc_info,
                *_for_people(colors=False),
            ],
            wrapper_class=_never_raising(logging.WARNING),
            context_class=dict,
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._configured if structlog.is_configured() else self._plain, name)


class _JsonRenderer:
    """Makes a line of JSON of a record, the last step of each; or of many records at once."""

    def __init__(self, lowest: int, lines: _LineWriter) -> None:
        self._lowest = lowest
        self._lines = lines

    def __call__(self, _logger: Any, _method: str, record: structlog.typing.EventDict) -> str:
        return _to_json(record)

    def write(self, lines: Sequence[Line]) -> None:
        """Write those of the lines that are wanted; one that cannot be shown is dropped and counted alone."""
        wanted = [line for line in lines if line[0] >= self._lowest]
        timestamp = _stamp(None, "", {})["timestamp"]
        texts, written = [], 0
        for level, event, fields in wanted:
            with suppress(Exception):
                name = logging.getLevelName(level).lower()
                texts.append(_to_json({**fields, "event": event, "level": name, "timestamp": timestamp}))
        with suppress(Exception):
            if texts:
                self._lines.msg("\n".join(texts))
            written = len(texts)
        logs_dropped.add(len(wanted) - written)


class _LineWriter:
    """Writes lines to a file, each in one piece; without one, to what is standard error at that moment."""

    def __init__(self, file: TextIO | None = None) -> None:
        self._file = file

    def msg(self, message: str) -> None:
        file = self._file or sys.stderr
        with _writing:
            file.write(f"{message}\n")
            file.flush()

    debug = info = warning = error = critical = msg


# Reentrant: a finalizer may run while it is held, and log.
_writing = threading.RLock()
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
