"""The way in for every call, over the wire or as server-sent events: who it is, and whether there is room."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from airunner.domain.errors import MessageTooLarge, Unauthenticated
from airunner.rpc.auth import admit
from airunner.services.caller import ANYBODY, current_caller

if TYPE_CHECKING:
    from airunner.rpc.auth import Authenticator
    from airunner.services.admission import Admission, OpenStream

STREAMING_CALLS: Final = frozenset(
    {
        "StreamJobEvents",
        "StreamJobEventBatches",
        "StreamGeneration",
        "StreamGenerations",
        "PublishJobEvents",
        "DequeueJob",
    }
)
# What gRPC-Web puts before a message.
_ENVELOPE_BYTES: Final = 5


class Entrance:
    """Lets calls in. Without an authenticator everybody is anonymous, and nobody's calls are counted."""

    def __init__(
        self,
        authenticator: Authenticator | None,
        admission: Admission,
        *,
        max_message_bytes: int,
        behind_proxy: bool = False,
    ) -> None:
        self._authenticator = authenticator
        self._admission = admission
        self._max_message_bytes = max_message_bytes
        # There all calls come from the address of the proxy.
        self._behind_proxy = behind_proxy

    async def enter(
        self, method: str, authorization: str, address: str, size_bytes: int = 0
    ) -> OpenStream | None:
        """Let a call in, or refuse it before its body is read; its caller is known from here on.

        Of a call that streams, return what has to be closed when it ends. Nothing is awaited after that was
        counted, so whoever is cancelled in here has taken nothing.
        """
        if self._authenticator is None:
            current_caller.set(ANYBODY)
        else:
            await self._recognize(self._authenticator, method, authorization, address)
        if size_bytes:
            self._check_size(method, size_bytes)
        if method in STREAMING_CALLS:
            return self._admission.open_stream(current_caller.get().principal)
        return None

    async def _recognize(
        self, authenticator: Authenticator, method: str, authorization: str, address: str
    ) -> None:
        """Find out who calls; an address that guesses is refused unless its key was good lately."""
        if self._behind_proxy:
            address = ""
        self._admission.check_address(address, unless=lambda: authenticator.recognizes(authorization))
        try:
            await admit(authenticator, authorization, method)
        except Unauthenticated:
            if authorization:
                self._admission.count_failed_key(address)
            raise
        self._admission.check_rate(current_caller.get().principal, method)

    def _check_size(self, method: str, size_bytes: int) -> None:
        limit = self._max_message_bytes
        if size_bytes > limit + _ENVELOPE_BYTES and method not in STREAMING_CALLS:
            raise MessageTooLarge(f"message is larger than configured max {limit}")
        self._admission.check_body(size_bytes, method)
