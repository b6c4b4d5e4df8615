"""Task tokens: what a worker shows to prove that an attempt is its own.

A token is opaque to clients and self-contained, so any replica can serve it. It is signed with the
first of a list of keys and accepted with any of them: a rotation breaks no running attempt.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import uuid
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airunner.domain.errors import InvalidTaskToken

if TYPE_CHECKING:
    from collections.abc import Sequence

_VERSION = "v1"
_SIGNATURE_BYTES = 16
_FIXED_BYTES = 16 + 4
_MAX_TEXT = 4096
_REMEMBERED = 4096
MIN_KEY_BYTES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskToken:
    """One attempt of one job, and on SQS the handle of its message."""

    job_id: str
    queue: str
    attempt: int
    receipt: str = ""


class TokenSigner:
    """Turns task tokens into text and back."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        if not keys or any(len(key) < MIN_KEY_BYTES for key in keys):
            raise ValueError(f"token keys must be given and have at least {MIN_KEY_BYTES} bytes")
        self._keys = tuple(keys)
        # A worker shows the token that it was given with every publish and heartbeat, mostly to us again.
        self._known: OrderedDict[str, TaskToken] = OrderedDict()

    def encode(self, token: TaskToken) -> str:
        """Return the signed text of a token."""
        payload = (
            bytes.fromhex(token.job_id.replace("-", ""))
            + token.attempt.to_bytes(4, "big")
            + token.queue.encode()
            + b"\0"
            + token.receipt.encode()
        )
        text = f"{_VERSION}.{_to_text(payload + _sign(self._keys[0], payload))}"
        self._remember(text, token)
        return text

    def decode(self, text: str) -> TaskToken:
        """Return the token of a signed text; whatever is not exactly what `encode` makes is refused."""
        known = self._known.get(text)
        if known is None:
            known = self._verify(text)
            self._remember(text, known)
        return known

    def _remember(self, text: str, token: TaskToken) -> None:
        self._known[text] = token
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)

    def _verify(self, text: str) -> TaskToken:
        version, _, body = text.partition(".")
        if version != _VERSION or len(text) > _MAX_TEXT:
            raise InvalidTaskToken
        raw = _from_text(body)
        payload, signature = raw[:-_SIGNATURE_BYTES], raw[-_SIGNATURE_BYTES:]
        if not any(hmac.compare_digest(signature, _sign(key, payload)) for key in self._keys):
            raise InvalidTaskToken
        queue, _, receipt = payload[_FIXED_BYTES:].partition(b"\0")
        return TaskToken(
            job_id=str(uuid.UUID(bytes=payload[:16])),
            attempt=int.from_bytes(payload[16:_FIXED_BYTES], "big"),
            queue=queue.decode(),
            receipt=receipt.decode(),
        )


def _sign(key: bytes, payload: bytes) -> bytes:
    return hmac.digest(key, payload, hashlib.sha256)[:_SIGNATURE_BYTES]


def _to_text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _from_text(text: str) -> bytes:
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (ValueError, binascii.Error):
        raise InvalidTaskToken from None
    # Several texts can decode to the same bytes; only the one we write counts.
    if _to_text(raw) != text or len(raw) < _FIXED_BYTES + _SIGNATURE_BYTES:
        raise InvalidTaskToken
    return raw
