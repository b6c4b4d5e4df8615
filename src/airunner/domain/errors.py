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

Apart from it stand the two things a handler may say about its own delivery: PermanentFailure and
VisibilityLost.
"""

from __future__ import annotations


class AirunnerError(Exception):
    """The base of all errors of airunner."""

    @property
    def text(self) -> str:
        """The sentence for the caller."""
        return str(self) or (self.__doc__ or "").strip()


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
        self.code = code


class VisibilityLost(Exception):
    """Somebody else holds the delivery now; whatever was done for it must be forgotten."""


def retry_after_seconds(error: BaseException) -> float:
    """Return how long whoever got this error was told to wait at least; 0 if nothing was said."""
    return error.retry_after_seconds if isinstance(error, Overloaded) else 0.0


def error_text(error: BaseException) -> str:
    """Return what a log says of an error: our own by their sentence, others by their class and message."""
    if isinstance(error, AirunnerError):
        return error.text
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
