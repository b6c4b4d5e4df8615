"""Server-sent events: the text of messages, and the route that sends them while its reader stays.

A message has a cursor as its id, so that a browser that reconnects goes on where it was. The last message is
`end`: nothing follows it, and a reader should not come back.
"""

from __future__ import annotations

from contextlib import aclosing, closing, nullcontext
from typing import TYPE_CHECKING, Final, TypeAlias

from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse

from airunner.codec.errors import http_headers, to_http
from airunner.domain.errors import AirunnerError, InternalError, InvalidArgument
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Collection

    from starlette.responses import Response
    from starlette.types import Receive, Scope, Send

    from airunner.rpc.entrance import Entrance
    from airunner.services.admission import OpenStream

    Messages: TypeAlias = Callable[[Request], AsyncGenerator[str, None]]

STILL_HERE: Final = ": still here\n\n"
END: Final = "event: end\ndata: {}\n\n"
_log = get_logger("airunner.server")


def message(cursor: str, event: str, data: str) -> str:
    """Return one message; its data is a single line."""
    return f"id: {cursor}\nevent: {event}\ndata: {data}\n\n"


def still_here(cursor: str = "") -> str:
    """Return what says that a stream goes on; with a cursor, a reader that comes back begins there."""
    return f"id: {cursor}\n{STILL_HERE}" if cursor else STILL_HERE


def last_event_id(request: Request) -> str:
    """Return the cursor that a reader comes back with; empty if it has none."""
    return request.headers.get("last-event-id", "")


def check_parameters(request: Request, known: Collection[str]) -> None:
    """Refuse a parameter that nobody reads."""
    unknown = set(request.query_params) - set(known)
    if unknown:
        there_are = f"the parameters are {', '.join(sorted(known))}" if known else "there are none"
        raise InvalidArgument(f"{min(unknown)} is not a parameter; {there_are}")


def refusal(error: Exception, method: str) -> Response:
    """Return an error of a method as an answer."""
    told = outward(error, method)
    status, body = to_http(told)
    return JSONResponse(body, status, headers=http_headers(told))


def outward(error: Exception, method: str) -> AirunnerError:
    """Return an error as callers learn of it; one that is not ours is logged, and its text stays here."""
    if isinstance(error, AirunnerError):
        return error
    _log.error("rpc.failed", method=method, exc_info=error)
    return InternalError()


async def enter(entrance: Entrance, method: str, request: Request, size_bytes: int = 0) -> OpenStream | None:
    """Let a plain request in as a call of a method, or raise; see Entrance."""
    authorization = request.headers.get("authorization", "")
    address = request.client.host if request.client else ""
    return await entrance.enter(method, authorization, address, size_bytes)


class EventStreams:
    """Answers with a stream; it is counted until the last byte is sent or the reader is gone.

    A caller needs what `method` needs. `messages` gives the texts of a stream, the first of them soon.
    """

    def __init__(self, entrance: Entrance, method: str, messages: Messages) -> None:
        self._entrance = entrance
        self._method = method
        self._messages = messages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            stream = await enter(self._entrance, self._method, request)
        except Exception as error:  # noqa: BLE001  the caller only learns that it happened
            await refusal(error, self._method)(scope, receive, send)
            return
        with closing(stream) if stream else nullcontext():
            response = await self._begin(request)
            await response(scope, receive, send)

    async def _begin(self, request: Request) -> Response:
        try:
            messages = self._messages(request)
            # What is wrong with the request shows with the first message, while a status can be set.
            first = await anext(messages)
        except Exception as error:  # noqa: BLE001  as above
            return refusal(error, self._method)
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        resumed = self._resumed(first, messages)
        return StreamingResponse(resumed, media_type="text/event-stream", headers=headers)

    async def _resumed(self, first: str, messages: AsyncGenerator[str, None]) -> AsyncGenerator[str, None]:
        async with aclosing(messages):
            yield first
            try:
                async for text in messages:
                    yield text
            except Exception as error:  # noqa: BLE001  as above
                # The reader comes back with its last id and learns the reason then.
                outward(error, self._method)
