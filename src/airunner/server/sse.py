"""Events of a job as server-sent events, for browsers and `curl -N`.

Each message has the resume cursor as its id, so that a browser that reconnects goes on where it was. The last
message is `end`: nothing follows it, and a reader should not come back.
"""

from __future__ import annotations

from contextlib import aclosing, closing, nullcontext
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route

from airunner.codec.errors import http_headers, to_http
from airunner.codec.events import event_to_json
from airunner.domain.errors import AirunnerError, InvalidArgument
from airunner.domain.event import EventType
from airunner.domain.requests import StreamRequest

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from starlette.responses import Response
    from starlette.types import Receive, Scope, Send

    from airunner.domain.event import Event
    from airunner.rpc.entrance import Entrance
    from airunner.services.events import EventService

_METHOD = "StreamJobEvents"
_PARAMETERS = {"from_sequence", "from_timestamp", "attempt", "event_type", "no_follow"}


def event_stream_route(events: EventService, entrance: Entrance) -> Route:
    """Return the route of the streams; a caller needs what StreamJobEvents needs."""
    return Route("/v1/jobs/{job_id}/events", _EventStreams(events, entrance), methods=["GET"])


class _EventStreams:
    """Answers with a stream; it is counted until the last byte is sent or the reader is gone."""

    def __init__(self, events: EventService, entrance: Entrance) -> None:
        self._events = events
        self._entrance = entrance

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        authorization = request.headers.get("authorization", "")
        address = request.client.host if request.client else ""
        try:
            stream = await self._entrance.enter(_METHOD, authorization, address)
        except AirunnerError as error:
            await _refusal(error)(scope, receive, send)
            return
        with closing(stream) if stream else nullcontext():
            response = await self._begin(request)
            await response(scope, receive, send)

    async def _begin(self, request: Request) -> Response:
        try:
            messages = _messages(self._events, _wanted(request))
            # What is wrong with the request shows with the first message, while a status can be set.
            first = await anext(messages)
        except AirunnerError as error:
            return _refusal(error)
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(_resumed(first, messages), media_type="text/event-stream", headers=headers)


def _refusal(error: AirunnerError) -> Response:
    status, body = to_http(error)
    return JSONResponse(body, status, headers=http_headers(error))


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
