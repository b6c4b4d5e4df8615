"""The services as ASGI applications, each under its own path."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from connectrpc.compat import google_protobuf_binary_codec, google_protobuf_json_codec

from airunner.codec.gen.job.v1.job_connect import (
    AdminServiceASGIApplication,
    JobEventsServiceASGIApplication,
    JobServiceASGIApplication,
)
from airunner.rpc.admin import AdminServiceEndpoint
from airunner.rpc.bodies import CountedBodies, CountedGzip
from airunner.rpc.events import JobEventsServiceEndpoint
from airunner.rpc.interceptors import EntranceInterceptor, ErrorInterceptor
from airunner.rpc.jobs import JobServiceEndpoint
from airunner.rpc.joined_stream import JoinedStreams
from airunner.rpc.thin import WAITING, thin_event_calls, thin_job_calls

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from airunner.rpc.entrance import Entrance
    from airunner.rpc.thin import Endpoints
    from airunner.services.composition import Services

# A misspelt field or enum name in JSON is an error, not a request that means something else.
_CODECS = (google_protobuf_binary_codec(), google_protobuf_json_codec(ignore_unknown_fields=False))


@dataclass(frozen=True, slots=True)
class Applications:
    """The services on the wire: the applications by path, and the endpoints of calls that need none."""

    apps: Mapping[str, Any]
    thin: Endpoints


def build_applications(
    services: Services,
    service_names: Collection[str],
    entrance: Entrance,
    *,
    max_message_bytes: int,
) -> Applications:
    """Return the named services ("jobs", "events") on the wire. Jobs bring AdminService."""
    common: dict[str, Any] = {
        "interceptors": (EntranceInterceptor(entrance), ErrorInterceptor()),
        "read_max_bytes": max_message_bytes,
        "codecs": _CODECS,
        "compressions": (CountedGzip(),),
    }
    apps: dict[str, Any] = {}
    thin: dict[Any, Any] = {}
    if "jobs" in service_names:
        jobs_endpoint = JobServiceEndpoint(services.jobs, services.clock)
        jobs = _JobServiceApplication(jobs_endpoint, **common)
        admin = _AdminServiceApplication(
            AdminServiceEndpoint(services.admin, services.settings, services.fleet), **common
        )
        jobs.admission = admin.admission = services.admission
        apps |= {jobs.path: jobs, admin.path: admin}
        thin |= thin_job_calls(jobs_endpoint)
    if "events" in service_names:
        endpoint = JobEventsServiceEndpoint(services.events, services.clock)
        events = _JobEventsServiceApplication(endpoint, **common)
        events.admission = services.admission
        apps[events.path] = JoinedStreams(services.events, entrance, services.admission, events)
        thin |= thin_event_calls(endpoint)
    return Applications(apps, thin)


class _QuickCalls:
    """Calls a method that does not wait without watching for its client to vanish.

    The library starts a task for the watch, which costs as much as the rest of a small call; and a write
    that was begun is better finished. The library is pinned to the version that has this method.
    """

    async def _call_unary(self, endpoint: Any, http_method: str, headers: Any, codec: Any, *rest: Any) -> Any:
        _, receive, *_, ctx = rest
        if http_method == "GET" or endpoint.method.name in WAITING:
            watched: Any = super()
            return await watched._call_unary(endpoint, http_method, headers, codec, *rest)  # noqa: SLF001  as above
        application: Any = self
        request = await application._read_post_request(endpoint, receive, codec, headers)  # noqa: SLF001  as above
        return await endpoint.function(request, ctx)


class _JobServiceApplication(_QuickCalls, CountedBodies, JobServiceASGIApplication):
    """JobService, quick."""


class _JobEventsServiceApplication(_QuickCalls, CountedBodies, JobEventsServiceASGIApplication):
    """JobEventsService, quick."""


class _AdminServiceApplication(CountedBodies, AdminServiceASGIApplication):
    """AdminService."""
