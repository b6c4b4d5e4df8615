"""The services as ASGI applications, each under its own path."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from connectrpc.compat import google_protobuf_binary_codec, google_protobuf_json_codec

from airunner.codec.errors import to_connect
from airunner.codec.gen.job.v1.job_connect import (
    AdminServiceASGIApplication,
    JobEventsServiceASGIApplication,
    JobServiceASGIApplication,
)
from airunner.domain.errors import AirunnerError, MessageTooLarge
from airunner.rpc.admin import AdminServiceEndpoint
from airunner.rpc.entrance import current_body
from airunner.rpc.events import JobEventsServiceEndpoint
from airunner.rpc.interceptors import EntranceInterceptor, ErrorInterceptor, declared_length
from airunner.rpc.jobs import JobServiceEndpoint
from airunner.services.admission import RequestBody

if TYPE_CHECKING:
    from collections.abc import Collection

    from airunner.rpc.entrance import Entrance
    from airunner.services.admission import Admission
    from airunner.services.composition import Services

# A misspelt field or enum name in JSON is an error, not a request that means something else.
_CODECS = (google_protobuf_binary_codec(), google_protobuf_json_codec(ignore_unknown_fields=False))


# The calls that wait, and so must notice that nobody waits for them any more.
_WAITING = {"DequeueJobs", "UpdateJob", "GetJob"}


def build_applications(
    services: Services,
    service_names: Collection[str],
    entrance: Entrance,
    *,
    max_message_bytes: int,
) -> dict[str, Any]:
    """Return the applications of the named services ("jobs", "events"), by path. Jobs bring AdminService."""
    common: dict[str, Any] = {
        "interceptors": (EntranceInterceptor(entrance), ErrorInterceptor()),
        "read_max_bytes": max_message_bytes,
        "codecs": _CODECS,
    }
    apps: dict[str, Any] = {}
    if "jobs" in service_names:
        jobs = _JobServiceApplication(JobServiceEndpoint(services.jobs, services.clock), **common)
        admin = _AdminServiceApplication(AdminServiceEndpoint(services.admin), **common)
        apps |= {jobs.path: jobs, admin.path: admin}
    if "events" in service_names:
        endpoint = JobEventsServiceEndpoint(services.events, services.clock)
        events = _JobEventsServiceApplication(endpoint, **common)
        apps[events.path] = events
    for app in apps.values():
        app.admission = services.admission
    return apps


class _CountedBodies:
    """Counts the bytes of each request from when they come in until the call has ended, however it ends."""

    admission: Admission
    _read_max_bytes: int | None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = RequestBody(self.admission, scope["path"].rpartition("/")[2])
        current_body.set(body)

        async def receive_counted() -> Any:
            message = await receive()
            if size := len(message.get("body", b"")):
                _count(body, size)
            return message

        application: Any = super()
        try:
            await application.__call__(scope, receive_counted, send)
        finally:
            body.forget()

    async def _read_post_request(self, endpoint: Any, receive: Any, codec: Any, headers: Any) -> Any:
        """Read a request; one that says that it is too large is not, and a compressed one counts decoded."""
        limit = self._read_max_bytes
        if limit is not None and declared_length(headers) > limit:
            raise to_connect(MessageTooLarge(f"message is larger than configured max {limit}"))
        application: Any = super()
        request = await application._read_post_request(endpoint, receive, codec, headers)  # noqa: SLF001  as below
        if headers.get("content-encoding", "identity") != "identity":
            _count(current_body.get(), request.ByteSize())
        return request


def _count(body: RequestBody, size_bytes: int) -> None:
    """Count bytes; no interceptor sees what is refused while a request is read, so it is mapped here."""
    try:
        body.add(size_bytes)
    except AirunnerError as error:
        raise to_connect(error) from None


class _QuickCalls:
    """Calls a method that does not wait without watching for its client to vanish.

    The library starts a task for the watch, which costs as much as the rest of a small call; and a write
    that was begun is better finished. The library is pinned to the version that has this method.
    """

    async def _call_unary(self, endpoint: Any, http_method: str, headers: Any, codec: Any, *rest: Any) -> Any:
        _, receive, *_, ctx = rest
        if http_method == "GET" or endpoint.method.name in _WAITING:
            watched: Any = super()
            return await watched._call_unary(endpoint, http_method, headers, codec, *rest)  # noqa: SLF001  as above
        application: Any = self
        request = await application._read_post_request(endpoint, receive, codec, headers)  # noqa: SLF001  as above
        return await endpoint.function(request, ctx)


class _JobServiceApplication(_QuickCalls, _CountedBodies, JobServiceASGIApplication):
    """JobService, quick."""


class _JobEventsServiceApplication(_QuickCalls, _CountedBodies, JobEventsServiceASGIApplication):
    """JobEventsService, quick."""


class _AdminServiceApplication(_CountedBodies, AdminServiceASGIApplication):
    """AdminService."""
