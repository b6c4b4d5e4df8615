"""Bells as servers post them to each other: names of bells and an instant, signed, and nothing else.

A bell that is repeated by somebody makes listeners look once more, which is all that it can do.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from airunner.domain.errors import PermissionDenied

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from airunner.domain.clock import Clock
    from airunner.domain.token import TokenSigner

MAX_NAMES: Final = 500
"""Of bells that are posted together."""
MAX_BYTES: Final = 32 * 1024
_LABEL: Final = "airunner bell v1"
# More than clocks of servers differ, and less than anybody needs to make something of an old one.
_VALID_MS: Final = 15_000
_INSTANT: Final = re.compile(r"[0-9]{1,15}")


class SignedBells:
    """Seals and opens bells, with the keys that also sign task tokens."""

    def __init__(self, signer: TokenSigner, clock: Clock) -> None:
        self._signer = signer.labelled(_LABEL)
        self._clock = clock

    def seal(self, names: Collection[str]) -> tuple[bytes, str]:
        """Return what to post, and its signature."""
        body = "\n".join((str(self._clock.now()), *names)).encode()
        return body, self._signer.sign(body)

    def open(self, body: bytes, signature: str) -> Sequence[str]:
        """Return the names of the bells to ring; whatever is forged or old is PermissionDenied."""
        if not self._signer.verifies(body, signature):
            raise PermissionDenied
        instant, *names = body.decode(errors="replace").split("\n")
        if not _INSTANT.fullmatch(instant) or abs(self._clock.now() - int(instant)) > _VALID_MS:
            raise PermissionDenied
        return names
