"""Without API keys, only this machine may talk to us, and no web page may make it do so.

A page that rebinds its name to the loopback address could otherwise enqueue a job, which is to run code.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from airunner.domain.limits import is_loopback

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airunner.server.asgi import AsgiApp, Receive, Scope, Send

_REFUSAL = b'{"code":"permission_denied","message":"without authentication only loopback may call"}'


class LoopbackGuard:
    """Refuses requests whose Host is not loopback or whose Origin is foreign."""

    def __init__(self, app: AsgiApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not is_allowed(scope["headers"]):
            await send(
                {
                    "type": "http.response.start",
                    "status": 403,
                    "headers": [(b"content-type", b"application/json")],
                }
            )
            await send({"type": "http.response.body", "body": _REFUSAL})
            return
        await self._app(scope, receive, send)


def is_allowed(request_headers: Sequence[tuple[bytes, bytes]]) -> bool:
    """Return whether a request is of this machine, by its headers."""
    headers = dict(request_headers)
    host = headers.get(b"host", b"").decode("latin-1")
    origin = headers.get(b"origin")
    if not is_loopback(_hostname(f"//{host}")):
        return False
    return origin is None or is_loopback(_hostname(origin.decode("latin-1")))


@functools.lru_cache(maxsize=64)
def _hostname(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
