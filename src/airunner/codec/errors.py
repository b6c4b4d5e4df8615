"""The one table between our errors and Connect codes, in both directions."""

from __future__ import annotations

from connectrpc.code import Code
from connectrpc.errors import ConnectError
from protobuf.wkt import Any as AnyMessage

from airunner.codec.gen.job.v1 import job_pb2 as pb
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
_DETAIL_URL = f"type.googleapis.com/{pb.SequenceMismatch.DESCRIPTOR.full_name}"


def code_of(error: errors.AirunnerError) -> Code:
    """Return the code of an error: that of its class, or of the nearest class above."""
    return next(_CODES[kind] for kind in type(error).__mro__ if kind in _CODES)


def to_connect(error: errors.AirunnerError) -> ConnectError:
    """Return an error as the wire carries it."""
    details = []
    if isinstance(error, errors.SequenceMismatch):
        detail = pb.SequenceMismatch(expected_sequence=error.expected)
        # The library packs details with another protobuf runtime than ours, so this one is packed by hand.
        details.append(AnyMessage(type_url=_DETAIL_URL, value=detail.SerializeToString()))
    return ConnectError(code_of(error), error.text, details)


def from_connect(error: ConnectError) -> errors.AirunnerError:
    """Return an error of ours for one that came over the wire."""
    if error.code is Code.OUT_OF_RANGE:
        for detail in error.details:
            if detail.type_name == pb.SequenceMismatch.DESCRIPTOR.full_name:
                mismatch = pb.SequenceMismatch.FromString(detail.message_bytes)
                return _mismatch(mismatch.expected_sequence, error.message)
    if error.code is Code.RESOURCE_EXHAUSTED and error.message.startswith(_TOO_LARGE):
        return errors.MessageTooLarge(error.message)
    return _ERRORS.get(error.code, errors.InternalError)(error.message)


def to_entry(error: errors.AirunnerError) -> pb.EntryError:
    """Return the error of one entry of a batch."""
    expected = error.expected if isinstance(error, errors.SequenceMismatch) else 0
    return pb.EntryError(code=code_of(error).value, message=error.text, expected_sequence=expected)


def from_entry(entry: pb.EntryError) -> errors.AirunnerError:
    """Return the error of one entry of a batch."""
    if entry.expected_sequence:
        return _mismatch(entry.expected_sequence, entry.message)
    return _ERRORS.get(Code(entry.code), errors.InternalError)(entry.message)


def to_http(error: errors.AirunnerError) -> tuple[int, dict[str, str]]:
    """Return an error as plain HTTP carries it: the status, and the body that Connect would send."""
    code = code_of(error)
    return _HTTP_STATUSES.get(code, 500), {"code": code.value, "message": error.text}


def is_cancellation(error: ConnectError) -> bool:
    """Return whether an error of the library stands for a cancelled task."""
    return error.code is Code.CANCELED


def _mismatch(expected: int, message: str) -> errors.SequenceMismatch:
    error = errors.SequenceMismatch(expected, 0)
    error.args = (message,)
    return error
