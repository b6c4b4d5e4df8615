"""Errors as Connect writes them in JSON: the body of an answer, and the last message of a stream."""

from __future__ import annotations

import binascii
import json
from base64 import b64decode, b64encode
from typing import Final

from airunner.codec.errors import WireError

_JSON_TYPE: Final = "application/json"
# What a status means that comes without an error of ours: from a proxy, or from something else altogether.
_CODES_OF_STATUSES: Final = {
    400: "internal",
    401: "unauthenticated",
    403: "permission_denied",
    404: "unimplemented",
    429: "unavailable",
    502: "unavailable",
    503: "unavailable",
    504: "unavailable",
}
_UNKNOWN: Final = "unknown"


def error_of_answer(status: int, content_type: str, body: bytes) -> WireError:
    """Return the error that an answer tells: by its body, or by its status where that is no error of ours."""
    parsed = _parse(body) if content_type.partition(";")[0].strip().lower() == _JSON_TYPE else None
    if parsed is None:
        return WireError(_code_of(status), _phrase(status))
    return _read(parsed, _code_of(status), "unavailable")


def error_to_json(wire: WireError) -> bytes:
    """Return an error as the body of an answer."""
    return json.dumps(_write(wire), ensure_ascii=False).encode()


def error_to_end(wire: WireError | None) -> bytes:
    """Return the last message of a stream that ends with an error, or without one."""
    return json.dumps({"error": _write(wire)} if wire else {}, ensure_ascii=False).encode()


def error_of_end(body: bytes) -> WireError | None:
    """Return the error that the last message of a stream tells, if it tells one."""
    parsed = _parse(body)
    if parsed is None:
        return WireError("internal", "protocol error: the end of the stream cannot be read")
    error = parsed.get("error")
    if not error:
        return None
    return _read(error if isinstance(error, dict) else {}, _UNKNOWN, _UNKNOWN)


def _write(wire: WireError) -> dict[str, object]:
    written: dict[str, object] = {"code": wire.code, "message": wire.message}
    if wire.details:
        written["details"] = [
            {"type": kind, "value": b64encode(value).decode().rstrip("=")} for kind, value in wire.details
        ]
    return written


def _parse(body: bytes) -> dict[str, object] | None:
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) else None


def _read(parsed: dict[str, object], code_if_none: str, code_if_unknown: str) -> WireError:
    code, message = parsed.get("code"), parsed.get("message", "")
    if not code:
        code = code_if_none
    elif code not in _KNOWN_CODES:
        code = code_if_unknown
    details = parsed.get("details")
    read = [_read_detail(detail) for detail in details] if isinstance(details, list) else []
    return WireError(str(code), str(message), tuple(detail for detail in read if detail))


def _read_detail(detail: object) -> tuple[str, bytes] | None:
    """Return a detail; None for one that cannot be read, since the error is true without it."""
    if not isinstance(detail, dict):
        return None
    kind, value = detail.get("type"), detail.get("value")
    if not isinstance(kind, str) or not isinstance(value, str):
        return None
    try:
        return kind, b64decode(value + "===")
    except binascii.Error:
        return None


def _code_of(status: int) -> str:
    return _CODES_OF_STATUSES.get(status, _UNKNOWN)


def _phrase(status: int) -> str:
    from http import HTTPStatus  # late: few answers are without an error of ours

    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return f"HTTP status {status}"


_KNOWN_CODES: Final = frozenset({
    "canceled",
    "unknown",
    "invalid_argument",
    "deadline_exceeded",
    "not_found",
    "already_exists",
    "permission_denied",
    "resource_exhausted",
    "failed_precondition",
    "aborted",
    "out_of_range",
    "unimplemented",
    "internal",
    "unavailable",
    "data_loss",
    "unauthenticated",
})  # fmt: skip
