"""Structured logs on standard error. Logging never raises: what cannot be written is dropped and counted.

Whoever uses airunner as a library and has not configured structlog gets warnings and errors, in plain text.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

import structlog

from airunner.telemetry.instruments import Counter

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


class _Logger:
    """Passes every call on to a logger of structlog: the configured one, or a plain one of our own."""

    __slots__ = ("_configured", "_plain")

    def __init__(self, name: str) -> None:
        self._configured = structlog.get_logger(name)
        self._plain = structlog.wrap_logger(
            _StandardError(),
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


class _StandardError:
    """Writes lines to what is standard error at that moment."""

    def msg(self, message: str) -> None:
        sys.stderr.write(f"{message}\n")
        sys.stderr.flush()

    debug = info = warning = error = critical = msg


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
