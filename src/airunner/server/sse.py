"""Events of a job as server-sent events, for browsers and `curl -N`."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

from starlette.routing import Route

from airunner.codec.events import event_to_json
from airunner.domain.errors import InvalidArgument
from airunner.domain.event import EventType
from airunner.domain.requests import StreamRequest
from airunner.server.event_stream import (
    END,
    EventStreams,
    check_parameters,
    last_event_id,
    message,
    still_here,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from starlette.requests import Request

    from airunner.domain.event import Event
    from airunner.rpc.entrance import Entrance
    from airunner.services.events import EventService

_METHOD = "StreamJobEvents"
_PARAMETERS = {"from_sequence", "from_timestamp", "attempt", "event_type", "no_follow"}


def event_stream_route(events: EventService, entrance: Entrance) -> Route:
    """Return the route of the streams; a caller needs what StreamJobEvents needs."""
    streams = EventStreams(entrance, _METHOD, lambda request: _messages(events, _wanted(request)))
    return Route("/v1/jobs/{job_id}/events", streams, methods=["GET"])


async def _messages(events: EventService, request: StreamRequest) -> AsyncGenerator[str, None]:
    """Yield the texts of a stream; one that the server cuts short ends without `end`."""
    async with aclosing(events.stream_or_idle(request)) as stream:
        async for event in stream:
            yield _message(event) if event else still_here()
    yield END


def _message(event: Event) -> str:
    return message(event.cursor, event.event_type.name.lower(), event_to_json(event))


def _wanted(request: Request) -> StreamRequest:
    check_parameters(request, _PARAMETERS)
    cursor = last_event_id(request)
    from_sequence = _number(request, "from_sequence")
    return StreamRequest(
        job_id=request.path_params["job_id"],
        # It meant the attempt that was current when the reader first came; now there may be a later one.
        from_sequence=0 if cursor else from_sequence,
        from_timestamp=_number(request, "from_timestamp"),
        event_filter=frozenset(map(_event_type, request.query_params.getlist("event_type"))),
        attempt=_number(request, "attempt"),
        cursor=cursor,
        follow=not _number(request, "no_follow"),
    )


def _number(request: Request, name: str) -> int:
    try:
        return int(request.query_params.get(name, "0"))
    except ValueError:
        raise InvalidArgument(f"{name} must be a whole number") from None


def _event_type(name: str) -> EventType:
    try:
        return EventType[name.upper()]
    except KeyError:
        raise InvalidArgument(
            f"event_type must be one or more of {', '.join(EventType.__members__).lower()}"
        ) from None
