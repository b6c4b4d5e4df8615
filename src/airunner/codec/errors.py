"""The one table between our errors and the codes of the wire, in both directions.

Codes go by their names, so that whoever only calls a server does not load a server's library.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from airunner.codec.gen.job.v1 import job_pb2 as pb
from airunner.codec.instants import duration_millis, set_duration
from airunner.domain import errors

_CODES: dict[type[errors.AirunnerError], str] = {
    errors.InvalidArgument: "invalid_argument",
    errors.NotFound: "not_found",
    errors.FailedPrecondition: "failed_precondition",
    errors.AlreadyExists: "already_exists",
    errors.SequenceMismatch: "out_of_range",
    errors.ResourceExhausted: "resource_exhausted",
    errors.Unavailable: "unavailable",
    errors.DeadlineExceeded: "deadline_exceeded",
    errors.Unauthenticated: "unauthenticated",
    errors.PermissionDenied: "permission_denied",
    errors.InternalError: "internal",
}
_ERRORS = {code: kind for kind, code in _CODES.items() if kind is not errors.SequenceMismatch}
_HTTP_STATUSES = {
    "canceled": 499,
    "invalid_argument": 400,
    "failed_precondition": 400,
    "out_of_range": 400,
    "unauthenticated": 401,
    "permission_denied": 403,
    "not_found": 404,
    "already_exists": 409,
    "resource_exhausted": 429,
    "unavailable": 503,
    "deadline_exceeded": 504,
}
# How a server says it, with the code of any other limit.
_TOO_LARGE = "message is larger than"
_MISMATCH_TYPE = pb.SequenceMismatch.DESCRIPTOR.full_name
_TOKEN_TYPE = pb.InvalidTaskToken.DESCRIPTOR.full_name
_RETRY_TYPE = "google.rpc.RetryInfo"
# No server makes us wait for longer, whatever it says.
_MAX_RETRY_MS = 300_000


@dataclass(frozen=True, slots=True)
class WireError:
    """An error as the wire carries it. A detail is the name of a message's type, and its bytes."""

    code: str
    message: str
    details: tuple[tuple[str, bytes], ...] = ()


def code_of(error: errors.AirunnerError) -> str:
    """Return the code of an error: that of its class, or of the nearest class above."""
    return next(_CODES[kind] for kind in type(error).__mro__ if kind in _CODES)


def to_wire(error: errors.AirunnerError) -> WireError:
    """Return an error as the wire carries it."""
    details = []
    if isinstance(error, errors.SequenceMismatch):
        mismatch = pb.SequenceMismatch(expected_sequence=error.expected)
        details.append((_MISMATCH_TYPE, mismatch.SerializeToString()))
    if isinstance(error, errors.InvalidTaskToken):
        details.append((_TOKEN_TYPE, b""))
    if isinstance(error, errors.Overloaded):
        details.append((_RETRY_TYPE, _retry_info(error).SerializeToString()))
    return WireError(code_of(error), error.text, tuple(details))


def from_wire(wire: WireError) -> errors.AirunnerError:
    """Return an error of ours for one that came over the wire; a code that we do not know is internal."""
    for kind, value in wire.details:
        if wire.code == "out_of_range" and kind == _MISMATCH_TYPE:
            return _mismatch(pb.SequenceMismatch.FromString(value).expected_sequence, wire.message)
        if wire.code == "invalid_argument" and kind == _TOKEN_TYPE:
            return errors.InvalidTaskToken(wire.message)
        if wire.code == "resource_exhausted" and kind == _RETRY_TYPE:
            return _overloaded(pb.RetryInfo.FromString(value), wire.message)
    if wire.code == "resource_exhausted" and wire.message.startswith(_TOO_LARGE):
        return errors.MessageTooLarge(wire.message)
    return _ERRORS.get(wire.code, errors.InternalError)(wire.message)


def to_entry(error: errors.AirunnerError) -> pb.EntryError:
    """Return the error of one entry of a batch."""
    return pb.EntryError(
        code=code_of(error),
        message=error.text,
        expected_sequence=error.expected if isinstance(error, errors.SequenceMismatch) else 0,
        retry_info=_retry_info(error) if isinstance(error, errors.Overloaded) else None,
        invalid_task_token=isinstance(error, errors.InvalidTaskToken),
    )


def from_entry(entry: pb.EntryError) -> errors.AirunnerError:
    """Return the error of one entry of a batch."""
    if entry.expected_sequence:
        return _mismatch(entry.expected_sequence, entry.message)
    if entry.HasField("retry_info"):
        return _overloaded(entry.retry_info, entry.message)
    if entry.invalid_task_token:
        return errors.InvalidTaskToken(entry.message)
    return _ERRORS.get(entry.code, errors.InternalError)(entry.message)


def to_http(error: errors.AirunnerError) -> tuple[int, dict[str, str]]:
    """Return an error as plain HTTP carries it: the status, and the body that Connect would send."""
    code = code_of(error)
    return status_of(code), {"code": code, "message": error.text}


def status_of(code: str) -> int:
    """Return the HTTP status of a code."""
    return _HTTP_STATUSES.get(code, 500)


def http_headers(error: errors.AirunnerError) -> dict[str, str]:
    """Return the headers that go with an error: when to come back, in whole seconds."""
    after = errors.retry_after_seconds(error)
    return {"retry-after": str(math.ceil(after))} if after else {}


def _retry_info(error: errors.Overloaded) -> pb.RetryInfo:
    detail = pb.RetryInfo()
    set_duration(detail.retry_delay, math.ceil(round(error.retry_after_seconds * 1000, 3)))
    return detail


def _overloaded(detail: pb.RetryInfo, message: str) -> errors.Overloaded:
    millis = min(max(0, duration_millis(detail.retry_delay)), _MAX_RETRY_MS)
    return errors.Overloaded(message, retry_after_seconds=millis / 1000)


def _mismatch(expected: int, message: str) -> errors.SequenceMismatch:
    error = errors.SequenceMismatch(expected, 0)
    error.args = (message,)
    return error
