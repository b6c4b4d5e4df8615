"""Commands that talk to a server: settings, a client, and an event loop around both."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from airunner.cli.options import ConnectionOptions
    from airunner.client import AsyncClient
    from airunner.domain.retry import RetryPolicy

T = TypeVar("T")
# Somebody at a terminal would rather hear soon that there is no server; this is about a second.
SOON_ROUNDS: Final = 5


def with_client(connection: ConnectionOptions, work: Callable[[AsyncClient], Awaitable[T]]) -> T:
    """Return what `work` does with a client that gives up soon when no server answers."""
    from airunner.app import build_client

    settings = connection.load()

    async def session() -> T:
        async with build_client(settings, retry=_soon()) as quick_client:
            return await work(quick_client)

    return asyncio.run(session())


def with_clients(
    connection: ConnectionOptions, work: Callable[[AsyncClient, AsyncClient], Awaitable[T]]
) -> T:
    """Return what `work` does with two clients: one that gives up soon, and one that sits out an outage."""
    from airunner.app import build_client

    settings = connection.load()

    async def session() -> T:
        async with build_client(settings, retry=_soon()) as quick_client, build_client(settings) as client:
            return await work(quick_client, client)

    return asyncio.run(session())


def _soon() -> RetryPolicy:
    from airunner.domain.retry import RetryPolicy

    return RetryPolicy(attempts=SOON_ROUNDS)
