"""Tokens: what a worker shows to prove that an attempt is its own, and a runner that it was.

A task token is opaque to clients and self-contained, so any replica can serve it. It is signed with the
first of a list of keys and accepted with any of them: a rotation breaks no running attempt.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import uuid
from typing import TYPE_CHECKING

from airunner.domain.errors import InvalidTaskToken
from airunner.domain.record import record

if TYPE_CHECKING:
    from collections.abc import Sequence

_VERSION = "v1"
_SIGNATURE_BYTES = 16
_BLOCK_BYTES = 64
_FIXED_BYTES = 16 + 4
_MAX_TEXT = 4096
_URL_SAFE = bytes.maketrans(b"+/", b"-_")
_REMEMBERED = 2048
MIN_KEY_BYTES = 16
_TERMINATION_VERSION = "t1"
_TERMINATION_LABEL = "airunner termination v1"


@record
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
        self._signatures = tuple(map(_Signature, keys))
        # A worker shows the token that it was given with every publish and heartbeat, mostly to us again.
        self._known: dict[str, TaskToken] = {}
        self._known_before: dict[str, TaskToken] = {}

    def encode(self, token: TaskToken) -> str:
        """Return the signed text of a token."""
        place = f"{token.queue}\0{token.receipt}".encode()
        payload = bytes.fromhex(token.job_id.replace("-", "")) + token.attempt.to_bytes(4, "big") + place
        text = f"{_VERSION}.{_to_text(payload + self._signatures[0].of(payload))}"
        self._remember(text, token)
        return text

    def decode(self, text: str) -> TaskToken:
        """Return the token of a signed text; whatever is not exactly what `encode` makes is refused."""
        known = self._known.get(text) or self._known_before.get(text)
        if known is None:
            known = self._verify(text)
            self._remember(text, known)
        return known

    def terminations(self) -> TerminationSigner:
        """Return the signer of termination tokens."""
        return TerminationSigner(self.labelled(_TERMINATION_LABEL))

    def labelled(self, label: str) -> LabelledSigner:
        """Return a signer of something else than task tokens, by keys that are derived from the same ones."""
        return LabelledSigner([hmac.digest(key, label.encode(), "sha256") for key in self._keys])

    def _remember(self, text: str, token: TaskToken) -> None:
        if len(self._known) >= _REMEMBERED:
            # All at once: to forget the oldest with each new one costs more than to sign.
            self._known_before, self._known = self._known, {}
        self._known[text] = token

    def _verify(self, text: str) -> TaskToken:
        version, _, body = text.partition(".")
        if version != _VERSION or len(text) > _MAX_TEXT:
            raise InvalidTaskToken
        raw = _from_text(body)
        payload, signature = raw[:-_SIGNATURE_BYTES], raw[-_SIGNATURE_BYTES:]
        if not any(hmac.compare_digest(signature, known.of(payload)) for known in self._signatures):
            raise InvalidTaskToken
        queue, _, receipt = payload[_FIXED_BYTES:].partition(b"\0")
        return TaskToken(
            job_id=str(uuid.UUID(bytes=payload[:16])),
            attempt=int.from_bytes(payload[16:_FIXED_BYTES], "big"),
            queue=queue.decode(),
            receipt=receipt.decode(),
        )


class LabelledSigner:
    """Signs messages of one kind: what is signed under another label is refused, and so is a task token."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        self._keys = tuple(keys)

    def sign(self, message: bytes) -> str:
        """Return the signature of a message, as text."""
        return hmac.digest(self._keys[0], message, "sha256").hex()

    def verifies(self, message: bytes, signature: str) -> bool:
        """Return whether a message was signed with one of the keys."""
        given = signature.encode()
        known = (hmac.digest(key, message, "sha256").hex().encode() for key in self._keys)
        return any(hmac.compare_digest(given, expected) for expected in known)


class TerminationSigner:
    """Signs which attempt of which job was given to which instance.

    A token holds the signature alone: whoever reports an end says the rest beside it. So it is verified
    without the job, also long after the attempt was superseded, as long as its key is known. It is good for
    nothing else: messages that carry it lie readable in queues and logs.
    """

    def __init__(self, signer: LabelledSigner) -> None:
        self._signer = signer

    def encode(self, job_id: str, attempt: int, instance_id: str) -> str:
        """Return the token of an attempt on an instance."""
        signed = self._signer.sign(_attempt_on_instance(job_id, attempt, instance_id))
        return f"{_TERMINATION_VERSION}.{signed}"

    def verifies(self, text: str, job_id: str, attempt: int, instance_id: str) -> bool:
        """Return whether a text is the token of this attempt on this instance."""
        version, _, signature = text.partition(".")
        payload = _attempt_on_instance(job_id, attempt, instance_id)
        return version == _TERMINATION_VERSION and self._signer.verifies(payload, signature)


class _Signature:
    """HMAC-SHA256 with one key, cut short. What depends on the key alone is hashed once: half of the work."""

    def __init__(self, key: bytes) -> None:
        block = (key if len(key) <= _BLOCK_BYTES else hashlib.sha256(key).digest()).ljust(_BLOCK_BYTES, b"\0")
        self._inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in block))
        self._outer = hashlib.sha256(bytes(byte ^ 0x5C for byte in block))

    def of(self, payload: bytes) -> bytes:
        """Return the signature of a payload."""
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(payload)
        outer.update(inner.digest())
        return outer.digest()[:_SIGNATURE_BYTES]


def _attempt_on_instance(job_id: str, attempt: int, instance_id: str) -> bytes:
    # Lengths first, so that no two triples have the same bytes.
    parts = (job_id.encode(), str(attempt).encode(), instance_id.encode())
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def _to_text(raw: bytes) -> str:
    return binascii.b2a_base64(raw, newline=False).translate(_URL_SAFE).rstrip(b"=").decode()


def _from_text(text: str) -> bytes:
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (ValueError, binascii.Error):
        raise InvalidTaskToken from None
    # Several texts can decode to the same bytes; only the one we write counts.
    if _to_text(raw) != text or len(raw) < _FIXED_BYTES + _SIGNATURE_BYTES:
        raise InvalidTaskToken
    return raw
