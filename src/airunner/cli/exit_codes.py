"""What the exit code of a command says, in one place."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airunner.domain.job import JobResult


class ExitCode(IntEnum):
    """The exit codes of airunner itself. `run` and `submit --wait` also hand on the job's own."""

    OK = 0
    FAILED = 1
    USAGE = 2
    AUTH = 4
    NOT_FOUND = 5
    TIMEOUT = 124
    AIRUNNER_FAILED = 125
    INTERRUPTED = 130
    READER_GONE = 141


def of_error(error: Exception) -> ExitCode:
    """Return the code for a command that could not do what was asked."""
    from airunner.config import ConfigError
    from airunner.domain import errors

    table: list[tuple[type[Exception], ExitCode]] = [
        (ConfigError, ExitCode.USAGE),
        (errors.InvalidArgument, ExitCode.USAGE),
        (errors.Unauthenticated, ExitCode.AUTH),
        (errors.PermissionDenied, ExitCode.AUTH),
        (errors.NotFound, ExitCode.NOT_FOUND),
        (errors.DeadlineExceeded, ExitCode.TIMEOUT),
        (errors.Unavailable, ExitCode.AIRUNNER_FAILED),
        (errors.InternalError, ExitCode.AIRUNNER_FAILED),
    ]
    return next((code for kind, code in table if isinstance(error, kind)), ExitCode.FAILED)


def of_result(result: JobResult) -> int:
    """Return the code that stands for a job's end: its own where its process had one."""
    from airunner.domain.job import Outcome

    match result.outcome:
        case Outcome.SUCCESS:
            return ExitCode.OK
        case Outcome.FAILURE:
            return result.exit_code & 0xFF or ExitCode.FAILED
        case Outcome.TIMEOUT:
            return ExitCode.TIMEOUT
        case Outcome.CANCELLED:
            return ExitCode.INTERRUPTED
        case _:
            return ExitCode.AIRUNNER_FAILED
