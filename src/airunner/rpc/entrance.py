"""The way in for every call, over the wire or as server-sent events: who it is, and whether there is room."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

from airunner.domain.errors import Unauthenticated
from airunner.rpc.auth import admit
from airunner.services.caller import current_caller

if TYPE_CHECKING:
    from airunner.rpc.auth import Authenticator
    from airunner.services.admission import Admission, OpenStream, RequestBody

STREAMING_CALLS: Final = frozenset(
    {"StreamJobEvents", "StreamJobEventBatches", "PublishJobEvents", "DequeueJob"}
)

current_body: ContextVar[RequestBody] = ContextVar("current_body")


class Entrance:
    """Lets calls in. Without an authenticator everybody is anonymous, and nobody's calls are counted."""

    def __init__(
        self, authenticator: Authenticator | None, admission: Admission, *, behind_proxy: bool = False
    ) -> None:
        self._authenticator = authenticator
        self._admission = admission
        # There all calls come from the address of the proxy.
        self._behind_proxy = behind_proxy

    async def enter(
        self, method: str, authorization: str, address: str, size_bytes: int = 0
    ) -> OpenStream | None:
        """Let a call in, or refuse it; its caller is known from here on.

        Of a call that streams, return what has to be closed when it ends. Nothing is awaited after that was
        counted, so whoever is cancelled in here has taken nothing.
        """
        await self._recognize(method, authorization, "" if self._behind_proxy else address)
        if self._authenticator:
            self._admission.check_rate(current_caller.get().principal, method)
        if size_bytes:
            self._admission.check_body(size_bytes, method)
        if method not in STREAMING_CALLS:
            return None
        return self._admission.open_stream(current_caller.get().principal)

    async def _recognize(self, method: str, authorization: str, address: str) -> None:
        """Find out who calls; an address that guesses is refused unless its key was good lately."""
        authenticator = self._authenticator
        if authenticator:
            self._admission.check_address(address, unless=lambda: authenticator.recognizes(authorization))
        try:
            await admit(authenticator, authorization, method)
        except Unauthenticated:
            if authorization:
                self._admission.count_failed_key(address)
            raise
