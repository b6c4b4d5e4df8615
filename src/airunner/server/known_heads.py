"""Heads of requests that were parsed before: what begins with the same bytes means the same.

A client says the same before each of its calls, but for how long the body is. To parse that again costs as
much as all else that HTTP does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from airunner.rpc.thin import ThinRequest

_LENGTH: Final = b"\r\ncontent-length: "
_END: Final = b"\r\n\r\n"
_MAX_HEADS: Final = 1_000
_MAX_HEAD_BYTES: Final = 2_048
_MAX_DIGITS: Final = 10


class KnownHeads:
    """Remembers what requests say whose last header is their length, and finds those that say it again.

    It only knows what a parser made of the very same bytes, from the beginning of a request on. One for each
    server; what it keeps is bounded.
    """

    def __init__(self) -> None:
        self._requests: dict[bytes, ThinRequest] = {}

    def note(self, data: bytes, body_bytes: int, request: ThinRequest) -> None:
        """Remember a request that was parsed, with which `data` begins; not if anything is behind it."""
        head, _, length = data[: len(data) - body_bytes].rpartition(_LENGTH)
        is_whole = length == b"%d%b" % (body_bytes, _END) and _END not in head
        if not is_whole or not 0 < len(head) <= _MAX_HEAD_BYTES:
            return
        if len(self._requests) >= _MAX_HEADS:
            # All at once: those that are in use are back with their next request.
            self._requests.clear()
        self._requests[head] = request

    def find(self, data: bytes) -> tuple[ThinRequest, bytes] | None:
        """Return the request and the body that are these bytes; None if they are unknown, more or less."""
        end = data.find(_END)
        head, _, digits = data[: max(end, 0)].rpartition(_LENGTH)
        request = self._requests.get(head)
        if request is None or not digits.isdigit() or len(digits) > _MAX_DIGITS:
            return None
        body = data[end + len(_END) :]
        return (request, body) if len(body) == int(digits) else None
