"""Structured logs on standard error."""

from __future__ import annotations

import logging
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, cast

import structlog

if TYPE_CHECKING:
    from typing import TextIO

_log = structlog.get_logger("airunner.telemetry")


def set_up_logs(level: str, style: str = "auto") -> None:
    """Write logs to standard error: for people on a terminal, as JSON otherwise."""
    people = style == "console" or (style == "auto" and sys.stderr.isatty())
    renderer: structlog.typing.Processor = (
        # A traceback shows where, never the values there: they may be secret.
        structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
        if people
        else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(cast("TextIO", _LogFile(sys.stderr))),
        cache_logger_on_first_use=True,
    )


def forward_warnings(library: str, event: str) -> None:
    """Log what a library warns of as an event of ours; without this it would be plain text among the JSON."""
    logger = logging.getLogger(library)
    logger.handlers = [_Forwarder(event)]
    logger.propagate = False


class _LogFile:
    """A file that drops what cannot be written: no call fails because a disk is full or a reader is gone."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, text: str) -> None:
        with suppress(OSError, ValueError):
            self._file.write(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self._file.flush()


class _Forwarder(logging.Handler):
    """Passes on the text of records, without their tracebacks."""

    def __init__(self, event: str) -> None:
        super().__init__(logging.WARNING)
        self._event = event

    def emit(self, record: logging.LogRecord) -> None:
        _log.warning(self._event, error=record.getMessage())
