"""What every call passes on its way to an endpoint, and every error on its way out."""

from __future__ import annotations

from contextlib import aclosing, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar, cast

from connectrpc.errors import ConnectError

from airunner.codec.errors import to_connect
from airunner.domain.errors import AirunnerError, InternalError
from airunner.rpc.auth import admit
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator

    from connectrpc.request import RequestContext

    from airunner.rpc.auth import Authenticator

    CallContext = RequestContext[Any, Any]

Q = TypeVar("Q")
R = TypeVar("R")
_log = get_logger("airunner.rpc")


class AuthInterceptor:
    """Lets a call in when its key has the scope of its method, before its body is read."""

    def __init__(self, authenticator: Authenticator | None) -> None:
        # None: everybody is anonymous, which the server allows on loopback only.
        self._authenticator = authenticator

    async def on_start(self, ctx: Any) -> None:
        """Authenticate and authorise; from here on the caller is known."""
        with _outward(ctx):
            await admit(self._authenticator, ctx.request_headers.get("authorization", ""), ctx.method.name)

    async def on_end(self, token: None, ctx: Any, error: Exception | None, /) -> None:
        """Nothing is left to do."""


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


@contextmanager
def _outward(ctx: CallContext) -> Iterator[None]:
    """Raise each error as the wire carries it; one that is not ours is logged, and its text stays here."""
    try:
        yield
    except ConnectError:
        raise
    except AirunnerError as error:
        raise to_connect(error) from None
    except Exception as error:  # noqa: BLE001  whatever it is, the caller only learns that it happened
        _log.error("rpc.failed", method=ctx.method.name, exc_info=error)
        raise to_connect(InternalError()) from None
