"""How errors of handlers read, to the one who asked for the job and in its log."""

from __future__ import annotations

import os
import traceback
from pathlib import Path
from typing import Final

from airunner.domain.errors import PermanentFailure, class_and_message, message_of

_AIRUNNER: Final = str(Path(__file__).parents[2]) + os.sep


class RemoteFailure(Exception):
    """An error of a handler in another process, with the texts that were made there."""

    def __init__(self, summary: str, details: str) -> None:
        super().__init__(summary)
        self.details = details


def summary_of(error: BaseException) -> str:
    """Return the error in a line."""
    if isinstance(error, RemoteFailure):
        return str(error)
    if isinstance(error, PermanentFailure):
        text = message_of(error)
        return f"{error.code}: {text}" if text not in {"", error.code} else error.code
    return class_and_message(error)


def details_of(error: Exception) -> str:
    """Return the text of a permanent failure, or the traceback from the handler's own code on."""
    if isinstance(error, RemoteFailure):
        return error.details
    if isinstance(error, PermanentFailure):
        return summary_of(error)
    shown = traceback.TracebackException.from_exception(error)
    shown.stack = traceback.StackSummary.from_list(
        [frame for frame in shown.stack if not frame.filename.startswith(_AIRUNNER)]
    )
    return "".join(shown.format()).rstrip("\n")
