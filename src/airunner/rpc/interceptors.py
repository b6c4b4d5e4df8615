"""What every call passes on its way to an endpoint, and every error on its way out."""

from __future__ import annotations

from contextlib import aclosing, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar, cast

from connectrpc.errors import ConnectError

from airunner.codec.errors import http_headers
from airunner.domain.errors import AirunnerError, InternalError
from airunner.rpc.errors import to_connect
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator

    from connectrpc.request import RequestContext

    from airunner.rpc.entrance import Entrance
    from airunner.services.admission import OpenStream

    CallContext = RequestContext[Any, Any]

Q = TypeVar("Q")
R = TypeVar("R")
_log = get_logger("airunner.rpc")


class EntranceInterceptor:
    """Lets a call in when its key has the scope of its method and there is room, before its body is read."""

    def __init__(self, entrance: Entrance) -> None:
        self._entrance = entrance

    async def on_start(self, ctx: Any) -> OpenStream | None:
        """Authenticate, authorise and count; from here on the caller is known."""
        headers = ctx.request_headers
        with _outward(ctx):
            return await self._entrance.enter(
                ctx.method.name,
                headers.get("authorization", ""),
                (ctx.client_address or "").rpartition(":")[0],
                _declared_bytes(headers.get("content-length", "")),
            )

    async def on_end(self, token: OpenStream | None, _ctx: Any, _error: Exception | None, /) -> None:
        """Count a stream no longer, however it ended."""
        if token:
            token.close()


class ErrorInterceptor:
    """Lets our errors out with their codes, and nothing else: no traceback, path or SQL reaches a client."""

    async def intercept_unary(
        self, call_next: Callable[[Q, CallContext], Awaitable[R]], request: Q, ctx: CallContext
    ) -> R:
        """Map the errors of a unary call."""
        with _outward(ctx):
            return await call_next(request, ctx)

    async def intercept_client_stream(
        self,
        call_next: Callable[[AsyncIterator[Q], CallContext], Awaitable[R]],
        request: AsyncIterator[Q],
        ctx: CallContext,
    ) -> R:
        """Map the errors of a client stream."""
        with _outward(ctx):
            return await call_next(request, ctx)

    async def intercept_server_stream(
        self, call_next: Callable[[Q, CallContext], AsyncIterator[R]], request: Q, ctx: CallContext
    ) -> AsyncIterator[R]:
        """Map the errors of a server stream; what its endpoint holds is let go as soon as it ends."""
        with _outward(ctx):
            async with aclosing(cast("AsyncGenerator[R, None]", call_next(request, ctx))) as stream:
                async for message in stream:
                    yield message


def _declared_bytes(text: str) -> int:
    """Return the size that a request declares; 0 if it tells none."""
    return int(text) if text.isascii() and text.isdigit() else 0


@contextmanager
def _outward(ctx: CallContext) -> Iterator[None]:
    """Raise each error as the wire carries it; one that is not ours is logged, and its text stays here."""
    try:
        yield
    except ConnectError:
        raise
    except AirunnerError as error:
        ctx.response_headers.update(http_headers(error))
        raise to_connect(error) from None
    except Exception as error:  # noqa: BLE001  whatever it is, the caller only learns that it happened
        _log.error("rpc.failed", method=ctx.method.name, exc_info=error)
        raise to_connect(InternalError()) from None
