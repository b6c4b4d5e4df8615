"""Commands that talk to a server: settings, a client, and an event loop around both."""

from __future__ import annotations

import asyncio
import signal
import threading
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

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

    return run_until_interrupted(session())


def with_clients(
    connection: ConnectionOptions, work: Callable[[AsyncClient, AsyncClient], Awaitable[T]]
) -> T:
    """Return what `work` does with two clients: one that gives up soon, and one that sits out an outage."""
    from airunner.app import build_client

    settings = connection.load()

    async def session() -> T:
        async with build_client(settings, retry=_soon()) as quick_client, build_client(settings) as client:
            return await work(quick_client, client)

    return run_until_interrupted(session())


def run_until_interrupted(work: Coroutine[object, object, T]) -> T:
    """Run something, and return its result; Ctrl-C cancels it, and is then raised as KeyboardInterrupt.

    The second one gives it a second to end. Were that left to asyncio, the second would be raised wherever
    the loop is at that moment, which may forget to wake up what the first has cancelled, and wait for ever.
    """
    from airunner.cli.signals import on_shutdown_signals

    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # No signal comes here, or it is not for us: a shell has it ignored by what runs in the background.
        return asyncio.run(work)

    async def interruptible() -> T:
        working = asyncio.ensure_future(work)
        undo = on_shutdown_signals(working.cancel, working.cancel, numbers=[signal.SIGINT])
        try:
            return await working
        finally:
            undo()

    try:
        return asyncio.run(interruptible())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


def _soon() -> RetryPolicy:
    from airunner.domain.retry import RetryPolicy

    return RetryPolicy(attempts=SOON_ROUNDS)
