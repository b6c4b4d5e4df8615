"""The one table between our errors and Connect codes, in both directions."""

from __future__ import annotations

import math

from connectrpc.code import Code
from connectrpc.errors import ConnectError
from protobuf.wkt import Any as AnyMessage

from airunner.codec.gen.job.v1 import job_pb2 as pb
from airunner.codec.instants import duration_millis, set_duration
from airunner.domain import errors

_CODES: dict[type[errors.AirunnerError], Code] = {
    errors.InvalidArgument: Code.INVALID_ARGUMENT,
    errors.NotFound: Code.NOT_FOUND,
    errors.FailedPrecondition: Code.FAILED_PRECONDITION,
    errors.AlreadyExists: Code.ALREADY_EXISTS,
    errors.SequenceMismatch: Code.OUT_OF_RANGE,
    errors.ResourceExhausted: Code.RESOURCE_EXHAUSTED,
    errors.Unavailable: Code.UNAVAILABLE,
    errors.DeadlineExceeded: Code.DEADLINE_EXCEEDED,
    errors.Unauthenticated: Code.UNAUTHENTICATED,
    errors.PermissionDenied: Code.PERMISSION_DENIED,
    errors.InternalError: Code.INTERNAL,
}
_ERRORS = {code: kind for kind, code in _CODES.items() if kind is not errors.SequenceMismatch}
_HTTP_STATUSES = {
    Code.INVALID_ARGUMENT: 400,
    Code.FAILED_PRECONDITION: 400,
    Code.OUT_OF_RANGE: 400,
    Code.UNAUTHENTICATED: 401,
    Code.PERMISSION_DENIED: 403,
    Code.NOT_FOUND: 404,
    Code.ALREADY_EXISTS: 409,
    Code.RESOURCE_EXHAUSTED: 429,
    Code.UNAVAILABLE: 503,
    Code.DEADLINE_EXCEEDED: 504,
}
# How the library says it, whose code for it is that of any other limit.
_TOO_LARGE = "message is larger than"
_TYPE_PREFIX = "type.googleapis.com/"
_MISMATCH_TYPE = pb.SequenceMismatch.DESCRIPTOR.full_name
_TOKEN_TYPE = pb.InvalidTaskToken.DESCRIPTOR.full_name
_RETRY_TYPE = "google.rpc.RetryInfo"
# No server makes us wait for longer, whatever it says.
_MAX_RETRY_MS = 300_000


def code_of(error: errors.AirunnerError) -> Code:
    """Return the code of an error: that of its class, or of the nearest class above."""
    return next(_CODES[kind] for kind in type(error).__mro__ if kind in _CODES)


def to_connect(error: errors.AirunnerError) -> ConnectError:
    """Return an error as the wire carries it."""
    details = []
    # The library packs details with another protobuf runtime than ours, so these are packed by hand.
    if isinstance(error, errors.SequenceMismatch):
        detail = pb.SequenceMismatch(expected_sequence=error.expected).SerializeToString()
        details.append(AnyMessage(type_url=_TYPE_PREFIX + _MISMATCH_TYPE, value=detail))
    if isinstance(error, errors.InvalidTaskToken):
        details.append(AnyMessage(type_url=_TYPE_PREFIX + _TOKEN_TYPE, value=b""))
    if isinstance(error, errors.Overloaded):
        detail = _retry_info(error).SerializeToString()
        details.append(AnyMessage(type_url=_TYPE_PREFIX + _RETRY_TYPE, value=detail))
    return ConnectError(code_of(error), error.text, details)


def from_connect(error: ConnectError) -> errors.AirunnerError:
    """Return an error of ours for one that came over the wire."""
    for detail in error.details:
        if error.code is Code.OUT_OF_RANGE and detail.type_name == _MISMATCH_TYPE:
            mismatch = pb.SequenceMismatch.FromString(detail.message_bytes)
            return _mismatch(mismatch.expected_sequence, error.message)
        if error.code is Code.INVALID_ARGUMENT and detail.type_name == _TOKEN_TYPE:
            return errors.InvalidTaskToken(error.message)
        if error.code is Code.RESOURCE_EXHAUSTED and detail.type_name == _RETRY_TYPE:
            return _overloaded(pb.RetryInfo.FromString(detail.message_bytes), error.message)
    if error.code is Code.RESOURCE_EXHAUSTED and error.message.startswith(_TOO_LARGE):
        return errors.MessageTooLarge(error.message)
    return _ERRORS.get(error.code, errors.InternalError)(error.message)


def to_entry(error: errors.AirunnerError) -> pb.EntryError:
    """Return the error of one entry of a batch."""
    return pb.EntryError(
        code=code_of(error).value,
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
    return _ERRORS.get(Code(entry.code), errors.InternalError)(entry.message)


def to_http(error: errors.AirunnerError) -> tuple[int, dict[str, str]]:
    """Return an error as plain HTTP carries it: the status, and the body that Connect would send."""
    code = code_of(error)
    return _HTTP_STATUSES.get(code, 500), {"code": code.value, "message": error.text}


def http_headers(error: errors.AirunnerError) -> dict[str, str]:
    """Return the headers that go with an error: when to come back, in whole seconds."""
    after = errors.retry_after_seconds(error)
    return {"retry-after": str(math.ceil(after))} if after else {}


def is_cancellation(error: ConnectError) -> bool:
    """Return whether an error of the library stands for a cancelled task."""
    return error.code is Code.CANCELED


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
