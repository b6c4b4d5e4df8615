"""What an AWS call can end in besides an answer, and the one table that says which error is which.

An answer that says no is an exception of its own: ConditionFailed, TransactionCancelled. Everything else
becomes a Failure, which knows whether trying again may help and what the caller is told in the end. No text
here repeats what AWS wrote: its messages may quote items.
"""

from __future__ import annotations

import asyncio
import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import aiohttp
from botocore import exceptions as boto
from botocore.parsers import ResponseParserError

from airunner.domain.errors import InternalError, ResourceExhausted, Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from airunner.domain.errors import AirunnerError


@dataclass(frozen=True, slots=True)
class CancellationReason:
    """Why one action of a transaction did not happen; "None" when it was not its fault."""

    code: str
    item: dict[str, Any] | None = None

    @property
    def is_fault(self) -> bool:
        """Whether the action was wrong by itself: neither will it ever happen, nor what comes with it."""
        return self.code not in {"None", "ConditionalCheckFailed", *_PASSING_REASONS}


class ConditionFailed(Exception):
    """A condition did not hold. `item` is what stood there, None when nothing did or it was not asked for."""

    def __init__(self, item: dict[str, Any] | None = None) -> None:
        super().__init__("a condition did not hold")
        self.item = item


class TransactionCancelled(Exception):
    """A transaction did not happen, none of it. `reasons` has one entry for each of its actions, in order."""

    def __init__(self, reasons: list[CancellationReason]) -> None:
        super().__init__("the transaction was cancelled: " + ", ".join(reason.code for reason in reasons))
        self.reasons = reasons


class Refused(InternalError):
    """AWS, or the SDK, did not accept a call: `code` says why. Callers of ours are told nothing of it."""

    def __init__(self, code: str, operation: str = "") -> None:
        super().__init__(InternalError.__doc__)
        self.code = code
        self._operation = operation

    @property
    def operator_text(self) -> str:
        """Which call was refused, and why."""
        return f"AWS refused {self._operation or 'a call'}: {self.code}"


class NotPerformed(Unavailable):
    """AWS could not be reached by the last try, or said that it is away: that try has changed nothing."""


class ErrorKind(enum.Enum):
    """What is to be done about a failure. The value is the `outcome` it is counted under."""

    THROTTLED = "throttled"
    TIMED_OUT = "timeout"
    AWAY = "error"
    FAULT = "fault"

    @property
    def outcome(self) -> str:
        """The label of `airunner.aws.calls`."""
        return "error" if self is ErrorKind.FAULT else self.value

    @property
    def may_pass(self) -> bool:
        """Whether trying again may help."""
        return self is not ErrorKind.FAULT


@dataclass(frozen=True, slots=True)
class Failure:
    """A try that got no answer: what kind, and the code to find it by in the log."""

    kind: ErrorKind
    code: str

    def verdict(self, operation: str = "") -> AirunnerError:
        """What the caller of an operation is told when no try is left."""
        match self.kind:
            case ErrorKind.THROTTLED:
                return ResourceExhausted("The store is too busy; try again later.")
            case ErrorKind.TIMED_OUT | ErrorKind.AWAY:
                kind = NotPerformed if self.code in _NOT_PERFORMED else Unavailable
                return kind("The store does not answer; try again.")
            case ErrorKind.FAULT:
                return Refused(self.code, operation)

    @property
    def in_words(self) -> str:
        """What is the matter, as the end of a sentence that begins with what was asked."""
        if self.kind is not ErrorKind.FAULT:
            return "is too busy" if self.kind is ErrorKind.THROTTLED else "does not answer"
        return next((words for part, words in _FAULTS_IN_WORDS if part in self.code), f"fails: {self.code}")


def read_error(error: Exception) -> Failure | ConditionFailed | TransactionCancelled:
    """Say what an error of the SDK means."""
    if isinstance(error, boto.ClientError):
        return _read_reply(error)
    for kind, classes in _BY_CLASS:
        if isinstance(error, classes):
            return Failure(kind, _BROKEN if _is_broken(error) else type(error).__name__)
    return Failure(ErrorKind.FAULT, type(error).__name__)


def may_have_happened(error: BaseException) -> bool:
    """Return whether a call of one try that ended so may have been performed nevertheless."""
    is_unanswered = isinstance(error, Unavailable | asyncio.CancelledError)
    return is_unanswered and not isinstance(error, NotPerformed)


def read_failed_entry(entry: Mapping[str, Any]) -> AirunnerError:
    """Say what an entry under `Failed` of a batch of SQS means; its message is not repeated."""
    code = _bare(entry.get("Code", ""))
    return Failure(_kind_of(code, 400 if entry.get("SenderFault") else 500), code).verdict()


def _read_reply(error: boto.ClientError) -> Failure | ConditionFailed | TransactionCancelled:
    # The stubs know only what every error reply has.
    reply: dict[str, Any] = dict(error.response)
    error_part = reply.get("Error", {})
    code = _told_apart(_bare(error_part.get("Code", "")), error_part.get("Message", ""))
    if code == "ConditionalCheckFailedException":
        return ConditionFailed(reply.get("Item") or None)
    if code == "TransactionCanceledException":
        return _read_cancellation(code, reply.get("CancellationReasons", []))
    return Failure(_kind_of(code, reply.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)), code)


def _read_cancellation(code: str, reasons: Iterable[dict[str, Any]]) -> Failure | TransactionCancelled:
    told = [CancellationReason(entry.get("Code", "None"), entry.get("Item") or None) for entry in reasons]
    blamed = {reason.code for reason in told} - {"None"}
    # One that says no for good decides, whatever else went wrong beside it.
    if blamed and blamed <= _PASSING_REASONS.keys():
        worst = min(blamed, key=lambda reason: (_PASSING_REASONS[reason] is not ErrorKind.THROTTLED, reason))
        return Failure(_PASSING_REASONS[worst], f"{code}.{worst}")
    return TransactionCancelled(told)


def _kind_of(code: str, status: int) -> ErrorKind:
    if code in _THROTTLING_CODES or status == 429:
        return ErrorKind.THROTTLED
    if code in _AWAY_CODES or status >= 500:
        return ErrorKind.AWAY
    return ErrorKind.FAULT


def _bare(code: str) -> str:
    """Strip what some protocols put before a code: "AWS.SimpleQueueService.", "com.amazonaws...#"."""
    return code.rpartition("#")[2].rpartition(".")[2]


def _is_broken(error: Exception) -> bool:
    """Return whether a connection broke that was there: the SDK says the same of one that was never made."""
    if not isinstance(error, boto.EndpointConnectionError):
        return False
    cause: object = error.kwargs.get("error")
    return isinstance(cause, Exception) and not isinstance(cause, aiohttp.ClientConnectorError)


def _told_apart(code: str, message: str) -> str:
    """Return a code of our own for a case that AWS tells from others in its text alone."""
    return next((own for general, part, own in _TOLD_APART if general == code and part in message), code)


_TOLD_APART: Final = (
    ("InvalidParameterValue", "Dead letter target does not exist", "DeadLetterTargetDoesNotExist"),
)

_THROTTLING_CODES: Final = frozenset({
    "BandwidthLimitExceeded",
    "KmsThrottled",
    "LimitExceededException",
    "OverLimit",
    "PriorRequestNotComplete",
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "RequestThrottled",
    "RequestThrottledException",
    "SlowDown",
    "Throttling",
    "ThrottledException",
    "ThrottlingException",
    "TooManyRequestsException",
    "TransactionInProgressException",
})  # fmt: skip

_AWAY_CODES: Final = frozenset({
    "InternalError",
    "InternalFailure",
    "InternalServerError",
    "ReplicatedWriteConflictException",
    "RequestTimeout",
    "RequestTimeoutException",
    "ServiceUnavailable",
    "TransactionConflictException",
})  # fmt: skip

_BROKEN: Final = "ConnectionBroken"
# Nothing was sent, or it was sent back.
_NOT_PERFORMED: Final = frozenset({
    "ConnectTimeoutError",
    "EndpointConnectionError",
    "ServiceUnavailable",
})  # fmt: skip

_PASSING_REASONS: Final = {
    "ProvisionedThroughputExceeded": ErrorKind.THROTTLED,
    "ThrottlingError": ErrorKind.THROTTLED,
    "TransactionConflict": ErrorKind.AWAY,
}

# By what a code contains: services spell the same differently.
_FAULTS_IN_WORDS: Final = (
    ("NotFound", "does not exist"),
    ("NonExistentQueue", "does not exist"),
    ("QueueDoesNotExist", "does not exist"),
    ("NoSuchBucket", "does not exist"),
    ("AccessDenied", "may not be used by us"),
    ("NoCredentials", "cannot be asked: there are no credentials"),
    ("UnrecognizedClient", "cannot be asked: the credentials are not valid"),
    ("InvalidSignature", "cannot be asked: the credentials are not valid"),
    ("InvalidClientToken", "cannot be asked: the credentials are not valid"),
    ("ExpiredToken", "cannot be asked: the credentials have expired"),
)

# The first row that fits decides: a timeout is a connection error, too.
_BY_CLASS: Final[tuple[tuple[ErrorKind, tuple[type[Exception], ...]], ...]] = (
    (ErrorKind.TIMED_OUT, (TimeoutError, boto.ReadTimeoutError, boto.ConnectTimeoutError)),
    (
        ErrorKind.AWAY,
        (
            boto.HTTPClientError,
            boto.ConnectionError,
            boto.ChecksumError,
            boto.IncompleteReadError,
            boto.CredentialRetrievalError,
            ResponseParserError,
            aiohttp.ClientError,
            OSError,
        ),
    ),
)
