"""Everything that can go wrong, as one tree.

AirunnerError
├── InvalidArgument          the request itself is wrong
│   ├── InvalidTaskToken     malformed, altered, or of another key
│   └── NonMonotonicSequence
├── NotFound
│   ├── JobNotFound
│   └── AttemptSuperseded    the token's attempt is over: forget the job
├── FailedPrecondition       right request, wrong state
├── AlreadyExists            request_id reused with other parameters
├── SequenceMismatch         a gap or overlap; carries the expected sequence
├── ResourceExhausted        a limit is reached
│   ├── MessageTooLarge      of a message: the same one will never be taken
│   └── Overloaded           of the server: the same call may be taken a little later
├── Unavailable              shutting down, or a dependency is away: try again
├── DeadlineExceeded         the answer did not come in time
├── Unauthenticated
├── PermissionDenied
└── InternalError            our fault; the text for callers is fixed

Apart from it stand the things a handler may say about its own delivery: PermanentFailure,
JobProcessingError and VisibilityLost. `permanent_failure` tells which errors are never tried again.
"""

from __future__ import annotations

import re
from typing import Final

# After the code there is nothing more, or a text that is set apart from it.
_DEAD_LETTER: Final = re.compile(
    r"DLQ:(?P<code>[A-Za-z0-9_-]{1,64})(?:(?::|\s)\s*(?P<message>.*))?\Z", re.DOTALL
)


class AirunnerError(Exception):
    """The base of all errors of airunner."""

    @property
    def text(self) -> str:
        """The sentence for the caller."""
        return str(self) or (self.__doc__ or "").strip()

    @property
    def operator_text(self) -> str:
        """What logs, records and the command line say: more than `text` where callers are told little."""
        return self.text


class InvalidArgument(AirunnerError):
    """The request is malformed."""


class InvalidTaskToken(InvalidArgument):
    """The task token is not one of ours."""


class NonMonotonicSequence(InvalidArgument):
    """Sequences must ascend."""


class NotFound(AirunnerError):
    """There is no such thing."""


class JobNotFound(NotFound):
    """There is no such job."""


class AttemptSuperseded(NotFound):
    """This attempt of the job is over."""


class FailedPrecondition(AirunnerError):
    """The job's state does not allow this."""


class AlreadyExists(AirunnerError):
    """The request_id was used with other parameters."""


class SequenceMismatch(AirunnerError):
    """The sequence is not the expected one."""

    def __init__(self, expected: int, got: int) -> None:
        super().__init__(f"expected sequence {expected}, got {got}")
        self.expected = expected


class ResourceExhausted(AirunnerError):
    """A limit is reached."""


class MessageTooLarge(ResourceExhausted):
    """The message has more bytes than the server takes."""


class Overloaded(ResourceExhausted):
    """The server takes no more of this now; try again after `retry_after_seconds`."""

    def __init__(self, text: str = "", *, retry_after_seconds: float) -> None:
        super().__init__(text)
        self.retry_after_seconds = retry_after_seconds


class Unavailable(AirunnerError):
    """The server cannot answer now; try again."""


class DeadlineExceeded(AirunnerError):
    """The answer did not come in time."""


class Unauthenticated(AirunnerError):
    """A valid API key is required."""


class PermissionDenied(AirunnerError):
    """The API key does not allow this."""


class InternalError(AirunnerError):
    """Internal error."""


class PermanentFailure(Exception):
    """Raised by a handler to say that trying again is useless."""

    def __init__(self, code: str, message: str = "") -> None:
        super().__init__(message or code)
        # Whoever raises it may have given a number, or a member of an Enum.
        self.code = str(code)


class JobProcessingError(Exception):
    """Raised by a handler that could not do its work: it is tried again, unless `permanent` is set."""

    def __init__(self, message: str = "", *, permanent: bool = False, code: str = "permanent") -> None:
        super().__init__(message)
        self.permanent = permanent
        self.code = code
        """Why it is permanent, as a word for programs."""


class VisibilityLost(Exception):
    """Somebody else holds the delivery now; whatever was done for it must be forgotten."""


def retry_after_seconds(error: BaseException) -> float:
    """Return how long whoever got this error was told to wait at least; 0 if nothing was said."""
    return error.retry_after_seconds if isinstance(error, Overloaded) else 0.0


def permanent_failure(error: BaseException) -> PermanentFailure | None:
    """Return an error as the permanent failure that it is; None if the work may be tried again.

    Permanent are PermanentFailure, JobProcessingError with `permanent`, and any other Exception whose text is
    `DLQ:CODE`, alone or with a colon or a space and more text behind it. CODE is 1 to 64 letters, digits, `_`
    and `-`. This is the one place where that is decided, for jobs and for messages.
    """
    if isinstance(error, PermanentFailure):
        return error
    if not isinstance(error, Exception):
        return None
    text = message_of(error)
    if named := _DEAD_LETTER.match(text):
        failure = PermanentFailure(named["code"], named["message"] or "")
    elif isinstance(error, JobProcessingError) and error.permanent:
        failure = PermanentFailure(error.code, text)
    else:
        return None
    failure.__cause__ = error
    return failure


def error_text(error: BaseException) -> str:
    """Return what operators read of an error: our own by their sentence, others by class and message."""
    if isinstance(error, AirunnerError):
        return error.operator_text
    return class_and_message(error)


def class_and_message(error: BaseException) -> str:
    """Return any error as its class and, if it has one, its message."""
    text = message_of(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def message_of(error: BaseException) -> str:
    """Return the text of any error; empty if it has none, or raises when it is asked for it."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001  a class that somebody else wrote harms nobody who reports its errors
        return ""
