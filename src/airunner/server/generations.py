"""The routes of generations: start, read, list, and follow sessions."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Final

from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.routing import Route

from airunner.domain.errors import InvalidArgument, MessageTooLarge
from airunner.generation.session_api.forms import news_to_json, page_to_json, read_start, whole_to_json
from airunner.server.event_stream import (
    END,
    EventStreams,
    check_parameters,
    enter,
    last_event_id,
    message,
    refusal,
    still_here,
)
from airunner.services.admission import RequestBody

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from starlette.requests import Request
    from starlette.responses import Response

    from airunner.generation.session_api.records import SessionNews
    from airunner.generation.session_api.service import GenerationService
    from airunner.rpc.entrance import Entrance
    from airunner.services.admission import Admission

PATH: Final = "/v1/generations"
_WRONG_TYPE: Final = {"code": "invalid_argument", "message": "the body must be application/json"}


def generation_routes(
    service: GenerationService, entrance: Entrance, admission: Admission, *, max_message_bytes: int
) -> list[Route]:
    """Return the routes; each is a method of the table of scopes."""

    def one(request: Request) -> AsyncGenerator[str, None]:
        check_parameters(request, ())
        return _messages(service.stream_one(request.path_params["id"], last_event_id(request)))

    def all_of_caller(request: Request) -> AsyncGenerator[str, None]:
        check_parameters(request, ())
        return _messages(service.stream_all(last_event_id(request)))

    calls = _Calls(service, admission, max_message_bytes)
    return [
        Route(PATH, _let_in(entrance, "StartGeneration", calls.start), methods=["POST"]),
        Route(PATH, _let_in(entrance, "ListGenerations", calls.list_page), methods=["GET"]),
        Route(f"{PATH}/events", EventStreams(entrance, "StreamGenerations", all_of_caller), methods=["GET"]),
        Route(f"{PATH}/{{id}}", _let_in(entrance, "GetGeneration", calls.get), methods=["GET"]),
        Route(f"{PATH}/{{id}}/events", EventStreams(entrance, "StreamGeneration", one), methods=["GET"]),
    ]


class _Calls:
    """The calls that are answered at once."""

    def __init__(self, service: GenerationService, admission: Admission, max_bytes: int) -> None:
        self._service = service
        self._admission = admission
        self._max_bytes = max_bytes

    async def start(self, request: Request) -> Response:
        # A page of somebody else can make a browser send other types without asking first.
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            return JSONResponse(_WRONG_TYPE, 415)
        check_parameters(request, ())
        counted = RequestBody(self._admission, "StartGeneration")
        try:
            body = await self._read(request, counted)
            session_id = await self._service.start(read_start(body))
        finally:
            counted.forget()
        return JSONResponse({"id": session_id}, 202, headers={"location": f"{PATH}/{session_id}"})

    async def get(self, request: Request) -> Response:
        check_parameters(request, ())
        whole = await self._service.get(request.path_params["id"])
        return JSONResponse(whole_to_json(whole), headers={"cache-control": "no-store"})

    async def list_page(self, request: Request) -> Response:
        check_parameters(request, {"page_size", "page_token"})
        page_size = request.query_params.get("page_size", "0")
        if not page_size.isascii() or not page_size.isdecimal() or len(page_size) > 9:
            raise InvalidArgument("page_size must be a whole number")
        page = await self._service.list_page(
            page_size=int(page_size), page_token=request.query_params.get("page_token", "")
        )
        return JSONResponse(page_to_json(page), headers={"cache-control": "no-store"})

    async def _read(self, request: Request, counted: RequestBody) -> bytes:
        """Return the body, counted as it comes in."""
        body = bytearray()
        try:
            async for chunk in request.stream():
                counted.add(len(chunk))
                body += chunk
                if len(body) > self._max_bytes:
                    raise MessageTooLarge(f"message is larger than configured max {self._max_bytes}")
        except ClientDisconnect:
            raise InvalidArgument("the body is incomplete") from None
        return bytes(body)


def _let_in(
    entrance: Entrance, method: str, call: Callable[[Request], Awaitable[Response]]
) -> Callable[[Request], Awaitable[Response]]:
    """Return a call behind the entrance; what it raises is its answer."""

    async def answer(request: Request) -> Response:
        try:
            await enter(entrance, method, request, _announced_bytes(request))
            return await call(request)
        except Exception as error:  # noqa: BLE001  the caller only learns that it happened
            return refusal(error, method)

    return answer


def _announced_bytes(request: Request) -> int:
    text = request.headers.get("content-length", "")
    return int(text) if text.isascii() and text.isdecimal() else 0


async def _messages(stream: AsyncGenerator[SessionNews | str, None]) -> AsyncGenerator[str, None]:
    """Yield the texts of a stream; one that the server cuts short ends without `end`."""
    async with aclosing(stream):
        async for news in stream:
            if isinstance(news, str):
                yield still_here(news)
            else:
                yield message(news.cursor, news.state.value, news_to_json(news))
    yield END
