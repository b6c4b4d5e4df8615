"""Events of a job as server-sent events, for browsers and `curl -N`.

Each message has the resume cursor as its id, so that a browser that reconnects goes on where it was. The last
message is `end`: nothing follows it, and a reader should not come back.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route

from airunner.codec.errors import to_http
from airunner.codec.events import event_to_json
from airunner.domain.errors import AirunnerError, InvalidArgument
from airunner.domain.event import EventType
from airunner.domain.requests import StreamRequest
from airunner.rpc.auth import admit

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from starlette.requests import Request
    from starlette.responses import Response

    from airunner.domain.event import Event
    from airunner.rpc.auth import Authenticator
    from airunner.services.events import EventService

_METHOD = "StreamJobEvents"
_PARAMETERS = {"from_sequence", "from_timestamp", "attempt", "event_type", "no_follow"}


def event_stream_route(events: EventService, authenticator: Authenticator | None) -> Route:
    """Return the route of the streams; a caller needs what StreamJobEvents needs."""

    async def stream(request: Request) -> Response:
        try:
            await admit(authenticator, request.headers.get("authorization", ""), _METHOD)
            messages = _messages(events, _wanted(request))
            # What is wrong with the request shows with the first message, while a status can be set.
            first = await anext(messages)
        except AirunnerError as error:
            status, body = to_http(error)
            return JSONResponse(body, status)
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(_resumed(first, messages), media_type="text/event-stream", headers=headers)

    return Route("/v1/jobs/{job_id}/events", stream)


async def _messages(events: EventService, request: StreamRequest) -> AsyncGenerator[str, None]:
    """Yield the texts of a stream; one that the server cuts short ends without `end`."""
    async with aclosing(events.stream_or_idle(request)) as stream:
        async for event in stream:
            yield _message(event) if event else ": still here\n\n"
    yield "event: end\ndata: {}\n\n"


async def _resumed(first: str, messages: AsyncGenerator[str, None]) -> AsyncGenerator[str, None]:
    async with aclosing(messages):
        yield first
        try:
            async for message in messages:
                yield message
        except AirunnerError:
            # The reader comes back with its last id and learns the reason then.
            return


def _message(event: Event) -> str:
    return f"id: {event.cursor}\nevent: {event.event_type.name.lower()}\ndata: {event_to_json(event)}\n\n"


def _wanted(request: Request) -> StreamRequest:
    parameters = request.query_params
    unknown = set(parameters) - _PARAMETERS
    if unknown:
        raise InvalidArgument(
            f"{min(unknown)} is not a parameter; there are {', '.join(sorted(_PARAMETERS))}"
        )
    cursor = request.headers.get("last-event-id", "")
    from_sequence = _number(request, "from_sequence")
    return StreamRequest(
        job_id=request.path_params["job_id"],
        # It meant the attempt that was current when the reader first came; now there may be a later one.
        from_sequence=0 if cursor else from_sequence,
        from_timestamp=_number(request, "from_timestamp"),
        event_filter=frozenset(map(_event_type, parameters.getlist("event_type"))),
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
            f"event_type must be some of {', '.join(EventType.__members__).lower()}"
        ) from None
