"""Structured logs on standard error. Logging never raises: what cannot be written is dropped and counted."""

from __future__ import annotations

import logging
import sys
from typing import Any

import structlog

from airunner.telemetry.instruments import Counter

_log = structlog.get_logger("airunner.telemetry")

logs_dropped = Counter("airunner.logs.dropped", "Log lines that could not be written")


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
        wrapper_class=_never_raising(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
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
