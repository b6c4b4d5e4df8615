"""The services as ASGI applications, each under its own path."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from connectrpc.compat import google_protobuf_binary_codec, google_protobuf_json_codec

from airunner.codec.gen.job.v1.job_connect import (
    JobEventsServiceASGIApplication,
    JobServiceASGIApplication,
)
from airunner.rpc.auth import Authenticator, AuthInterceptor
from airunner.rpc.errors import ErrorInterceptor
from airunner.rpc.events import JobEventsServiceHandler
from airunner.rpc.jobs import JobServiceHandler

if TYPE_CHECKING:
    from collections.abc import Collection

    from airunner.services.platform import Platform

# A misspelt field or enum name in JSON is an error, not a request that means something else.
_CODECS = (google_protobuf_binary_codec(), google_protobuf_json_codec(ignore_unknown_fields=False))


def build_services(
    platform: Platform, services: Collection[str], *, no_auth: bool, max_message_bytes: int
) -> dict[str, Any]:
    """Return the applications of the named services ("jobs", "events"), by path."""
    authenticator = None if no_auth else Authenticator(platform.store, platform.clock)
    common: dict[str, Any] = {
        "interceptors": (AuthInterceptor(authenticator), ErrorInterceptor()),
        "read_max_bytes": max_message_bytes,
        "codecs": _CODECS,
    }
    apps: dict[str, Any] = {}
    if "jobs" in services:
        jobs = JobServiceASGIApplication(JobServiceHandler(platform.jobs, platform.clock), **common)
        apps[jobs.path] = jobs
    if "events" in services:
        handler = JobEventsServiceHandler(platform.events, platform.clock)
        events = JobEventsServiceASGIApplication(handler, **common)
        apps[events.path] = events
    return apps
