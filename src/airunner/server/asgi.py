"""The ASGI application: its services, health, metrics, and the guard in front of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette

from airunner.domain import limits
from airunner.rpc.application import build_applications
from airunner.rpc.auth import Authenticator
from airunner.rpc.entrance import Entrance
from airunner.rpc.thin import ThinCalls
from airunner.server.bells import bell_route
from airunner.server.generations import generation_routes
from airunner.server.guard import LoopbackGuard, is_allowed
from airunner.server.pages import health_routes
from airunner.server.sse import event_stream_route

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping

    from airunner.generation.session_api.service import GenerationService
    from airunner.services.composition import Services

    Scope = dict[str, Any]
    Receive = Callable[[], Awaitable[dict[str, Any]]]
    Send = Callable[[dict[str, Any]], Awaitable[None]]
    AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]

SERVICES = ("jobs", "events")


@dataclass(frozen=True, slots=True, kw_only=True)
class AppOptions:
    """What the operator decides about the server."""

    services: Collection[str] = SERVICES
    no_auth: bool = False
    behind_proxy: bool = False
    max_message_bytes: int = limits.MESSAGE_BYTES


@dataclass(frozen=True, slots=True)
class HttpApplication:
    """An ASGI application, and the calls that a server may answer without it."""

    asgi: AsgiApp
    thin_calls: ThinCalls

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        await self.asgi(scope, receive, send)


def build_app(
    services: Services, options: AppOptions, generations: GenerationService | None = None
) -> HttpApplication:
    """Return the application of services that are open already."""
    authenticator = None if options.no_auth else Authenticator(services.store, services.clock)
    entrance = Entrance(
        authenticator,
        services.admission,
        max_message_bytes=options.max_message_bytes,
        behind_proxy=options.behind_proxy,
    )
    applications = build_applications(
        services, options.services, entrance, max_message_bytes=options.max_message_bytes
    )
    routes = health_routes(services)
    if "events" in options.services:
        routes.append(event_stream_route(services.events, entrance))
    if generations:
        routes += generation_routes(
            generations, entrance, services.admission, max_message_bytes=options.max_message_bytes
        )
    if services.bells:
        routes.append(bell_route(services.bells, services.notifier.ring, services.clock))
    pages: Any = Starlette(routes=routes)
    app: AsgiApp = _Router(applications.apps, pages)
    if not options.no_auth:
        return HttpApplication(app, ThinCalls(applications.thin, entrance, services.admission))
    thin_calls = ThinCalls(applications.thin, entrance, services.admission, allows=is_allowed)
    return HttpApplication(LoopbackGuard(app), thin_calls)


class _Router:
    """Sends a request to the service that its path names, and everything else to the pages.

    gRPC itself is refused like any content that is not understood: it needs trailers, which HTTP/1.1 lacks.
    """

    def __init__(self, applications: Mapping[str, AsgiApp], pages: AsgiApp) -> None:
        self._applications = applications
        self._pages = pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        prefix = path[: path.rfind("/")] if scope["type"] == "http" else ""
        service = self._applications.get(prefix)
        if service and _is_grpc(scope):
            await send({"type": "http.response.start", "status": 415, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return
        await (service or self._pages)(scope, receive, send)


def _is_grpc(scope: Scope) -> bool:
    kind: bytes = dict(scope["headers"]).get(b"content-type", b"").lower()
    return kind.startswith(b"application/grpc") and not kind.startswith(b"application/grpc-web")
