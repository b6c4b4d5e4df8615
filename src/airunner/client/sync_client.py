"""Client: AsyncClient for programs without an event loop."""

from __future__ import annotations

import functools
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterable
from contextlib import closing, suppress
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    Self,
    TypeAlias,
    TypeVar,
    overload,
)

from airunner.client.async_client import AsyncClient
from airunner.client.loop_thread import LoopThread

if TYPE_CHECKING:
    from airunner.domain.event import Event

    Batches: TypeAlias = AsyncGenerator[list[Event], None]
    Watch: TypeAlias = AsyncGenerator[Any, None]

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")


class Blocking(Generic[P, T]):
    """A method of AsyncClient as a blocking one with the same arguments."""

    def __init__(self, method: Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, client: None, owner: type[Client]) -> Self: ...
    @overload
    def __get__(self, client: Client, owner: type[Client]) -> Callable[P, T]: ...
    def __get__(self, client: Client | None, owner: type[Client]) -> Self | Callable[P, T]:
        if client is None:
            return self

        @functools.wraps(self._method)
        def blocking(*args: P.args, **kwargs: P.kwargs) -> T:
            return client.loop_thread.run(self._method(client.async_client, *args, **kwargs))

        return blocking


class BlockingStream(Generic[P, S, T]):
    """A method of AsyncClient that yields, as a plain generator of what `read` makes of it."""

    def __init__(
        self,
        method: Callable[Concatenate[AsyncClient, P], AsyncGenerator[S, None]],
        read: Callable[[Client, AsyncGenerator[S, None]], Generator[T, None, None]],
    ) -> None:
        self._method = method
        self._read = read
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, client: None, owner: type[Client]) -> Self: ...
    @overload
    def __get__(self, client: Client, owner: type[Client]) -> Callable[P, Generator[T, None, None]]: ...
    def __get__(
        self, client: Client | None, owner: type[Client]
    ) -> Self | Callable[P, Generator[T, None, None]]:
        if client is None:
            return self

        @functools.wraps(self._method)
        def items(*args: P.args, **kwargs: P.kwargs) -> Generator[T, None, None]:
            return self._read(client, self._method(client.async_client, *args, **kwargs))

        return items


def _same_arguments(
    _: Callable[Concatenate[AsyncClient, P], None],
) -> Callable[[Callable[..., None]], Callable[Concatenate[Client, P], None]]:
    return lambda initialise: initialise


def _events(client: Client, batches: Batches) -> Generator[Event, None, None]:
    # One change of threads for each stored batch, not for each event.
    with closing(_items(client, batches)) as lists:
        for events in lists:
            yield from events


def _items(client: Client, watch: AsyncGenerator[T, None]) -> Generator[T, None, None]:
    thread = client.loop_thread
    client.watches.add(watch)
    try:
        while item := thread.run(_next(watch)):
            yield item
    finally:
        client.watches.discard(watch)
        if not thread.closed:
            thread.run(_let_go([watch]))


class Client:
    """The methods of AsyncClient, each blocking until it is done; any thread may call them.

    Iterators of events and batches let go of their connection when they are closed or dropped;
    `contextlib.closing` makes that explicit. Use the client as a context, or call `close`.
    """

    @_same_arguments(AsyncClient.__init__)
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.async_client = AsyncClient(*args, **kwargs)
        self.loop_thread = LoopThread("airunner-client")
        self.watches: set[Watch] = set()
        # Also at the end of the program, while the thread can still answer.
        self._close = weakref.finalize(self, _close, self.loop_thread, self.async_client, self.watches)

    def __enter__(self) -> Self:
        """Return the client itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the client."""
        self.close()

    def close(self) -> None:
        """Let go of all connections; the client cannot be used afterwards."""
        self._close()

    enqueue = Blocking(AsyncClient.enqueue)
    enqueue_job = Blocking(AsyncClient.enqueue_job)
    enqueue_jobs = Blocking(AsyncClient.enqueue_jobs)
    dequeue = Blocking(AsyncClient.dequeue)
    dequeue_jobs = Blocking(AsyncClient.dequeue_jobs)
    update_job = Blocking(AsyncClient.update_job)
    complete = Blocking(AsyncClient.complete)
    complete_jobs = Blocking(AsyncClient.complete_jobs)
    release_job = Blocking(AsyncClient.release_job)
    get_job = Blocking(AsyncClient.get_job)
    wait_for_end = Blocking(AsyncClient.wait_for_end)
    run = Blocking(AsyncClient.run)
    list_jobs = Blocking(AsyncClient.list_jobs)
    cancel_job = Blocking(AsyncClient.cancel_job)
    retry_job = Blocking(AsyncClient.retry_job)
    page_queues = Blocking(AsyncClient.page_queues)
    list_queues = Blocking(AsyncClient.list_queues)
    set_paused = Blocking(AsyncClient.set_paused)
    page_workers = Blocking(AsyncClient.page_workers)
    list_workers = Blocking(AsyncClient.list_workers)
    list_dead_letters = Blocking(AsyncClient.list_dead_letters)
    redrive_dead_letters = Blocking(AsyncClient.redrive_dead_letters)
    purge_dead_letters = Blocking(AsyncClient.purge_dead_letters)
    list_settings = Blocking(AsyncClient.list_settings)
    set_setting = Blocking(AsyncClient.set_setting)
    unset_setting = Blocking(AsyncClient.unset_setting)
    list_housekeeping_runs = Blocking(AsyncClient.list_housekeeping_runs)
    get_pool_report = Blocking(AsyncClient.get_pool_report)
    run_housekeeping = Blocking(AsyncClient.run_housekeeping)
    publish_events = Blocking(AsyncClient.publish_events)
    monitor = BlockingStream(AsyncClient.monitor_batches, _events)
    stream_events = BlockingStream(AsyncClient.monitor_batches, _events)
    monitor_batches = BlockingStream(AsyncClient.monitor_batches, _items)
    stream_batches = BlockingStream(AsyncClient.stream_batches, _items)


async def _next(watch: AsyncGenerator[T, None]) -> T | None:
    return await anext(watch, None)


async def _let_go(watches: Iterable[Watch]) -> None:
    for watch in watches:
        # One that another thread waits for ends with the loop.
        with suppress(RuntimeError):
            await watch.aclose()


def _close(thread: LoopThread, client: AsyncClient, watches: set[Watch]) -> None:
    if not thread.closed:
        thread.run(_let_go(tuple(watches)))
        thread.run(client.aclose())
        thread.close()
