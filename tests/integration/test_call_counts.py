"""What a call costs in things that can be counted: writes, tasks, threads."""

from __future__ import annotations

import asyncio
from asyncio import selector_events
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from airunner import (
    AsyncClient,
    Client,
    CompleteRequest,
    JobParams,
    ReleaseRequest,
    UpdateRequest,
)
from airunner.domain.clock import SystemClock
from airunner.domain.requests import OverviewQuery
from airunner.stores.memory import MemoryStore
from airunner.stores.records import EventPage, EventQuery
from airunner.testing.factories import make_line, make_request, make_services, make_success
from tests.support.serving import serve, serve_in_thread

SERVER, CLIENT, TASKS = "writes of the server", "writes of the client", "tasks"


class PagingStore(MemoryStore):
    """Counts the pages of events that it gave."""

    pages = 0

    async def read_events(self, query: EventQuery) -> EventPage:
        page = await super().read_events(query)
        self.pages += bool(page.events)
        return page


class Counts(Counter[str]):
    """What happened since the last time, on both sides of a server on loopback."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._port = urlsplit(url).port

    def note_write(self, transport: asyncio.Transport) -> None:
        at_server = transport.get_extra_info("sockname")[1] == self._port
        self[SERVER if at_server else CLIENT] += 1

    def make_task(self, loop: asyncio.AbstractEventLoop, work: Any, **more: Any) -> asyncio.Task[Any]:
        self[TASKS] += 1
        return asyncio.Task(work, loop=loop, **more)

    def taken(self) -> dict[str, int]:
        """Return the counts, and begin anew."""
        counted = dict(self)
        self.clear()
        return counted


@pytest.fixture
def store() -> PagingStore:
    return PagingStore(SystemClock())


@pytest.fixture
async def url(store: PagingStore) -> AsyncIterator[str]:
    async with make_services(store, SystemClock()) as services, serve(services) as url:
        yield url


@pytest.fixture
async def counts(url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Counts]:
    counts = Counts(url)
    kind = selector_events._SelectorSocketTransport  # type: ignore[attr-defined]  # what every socket has
    for name in ("write", "writelines"):
        monkeypatch.setattr(kind, name, _noted(getattr(kind, name), counts))
    loop = asyncio.get_running_loop()
    loop.set_task_factory(counts.make_task)
    yield counts
    loop.set_task_factory(None)


@pytest.fixture
async def client(url: str) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(url) as client:
        # The connection is there before anything is counted.
        await client.page_workers(OverviewQuery())
        yield client


async def test_a_call_is_a_write_at_each_side_and_one_task(client: AsyncClient, counts: Counts) -> None:
    """The task is the server's; it is what a call can be cancelled by."""
    counted = {}
    for name, call in (await _calls(client)).items():
        counts.taken()
        await call()
        counted[name] = counts.taken()
    # A claim is made for all calls that wait at a queue together, by whoever is there for them.
    assert counted["dequeue"].pop(TASKS) <= 2
    counted["dequeue"][TASKS] = 1
    assert counted == {name: {SERVER: 1, CLIENT: 1, TASKS: 1} for name in counted}


async def test_enqueues_of_one_turn_are_two_calls(client: AsyncClient, counts: Counts) -> None:
    """The first one goes at once, and the rest together."""
    enqueues = [client.enqueue(JobParams(command="true"), queue="q") for _ in range(20)]
    counts.taken()
    jobs = await asyncio.gather(*enqueues)
    counted = counts.taken()
    assert len({job.job_id for job in jobs}) == 20
    assert (counted[CLIENT], counted[SERVER]) == (2, 2)


@pytest.mark.parametrize("events", [1, 60, 3_000])
async def test_a_page_of_stored_events_is_one_write(
    client: AsyncClient, counts: Counts, store: PagingStore, events: int
) -> None:
    job_id, token = await _hold(client)
    for sequence in range(1, events + 1, 50):
        upto = min(sequence + 50, events + 1)
        await client.publish_events(token, [make_line(number) for number in range(sequence, upto)])
    store.pages = 0
    counts.taken()
    async with aclosing(client.monitor(job_id, follow=False, attempt=1)) as replayed:
        assert len([event async for event in replayed]) == events
    counted = counts.taken()
    # Beside the pages there is the head of the answer, and how it ended; and what is asked of the job.
    assert store.pages < events / 50 or store.pages == 1
    assert counted[SERVER] - counted[CLIENT] == store.pages + 1


async def test_a_client_has_no_threads(client: AsyncClient) -> None:
    before = _threads()
    job_id, token = await _hold(client)
    await asyncio.gather(*(client.page_workers(OverviewQuery()) for _ in range(20)))
    await client.publish_events(token, [make_line(1)])
    assert [event.sequence async for event in client.monitor(job_id, follow=False)] == [1]
    assert _threads() == before


def test_a_client_for_programs_without_a_loop_has_one() -> None:
    with serve_in_thread() as (url, _):
        before = _threads()
        with Client(url) as client:
            job_id = client.enqueue(JobParams(command="true")).job_id
            assert list(client.monitor(job_id, follow=False)) == []
            assert len(_threads() - before) == 1


async def _calls(client: AsyncClient) -> dict[str, Callable[[], Awaitable[object]]]:
    """Return each call that goes the short way, as the client makes it."""
    job_id, token = await _hold(client)
    held = [(await _hold(client))[1] for _ in range(5)]
    await client.enqueue(JobParams(command="true"), queue="waiting")
    ends = [CompleteRequest(task_token=token, result=make_success()) for token in held]
    return {
        "no-op": lambda: client.page_workers(OverviewQuery()),
        "enqueue": lambda: client.enqueue(JobParams(command="true"), queue="q"),
        "enqueue two": lambda: client.enqueue_jobs([make_request("q"), make_request("q")]),
        "dequeue": lambda: client.dequeue("waiting", wait_seconds=0),
        "get": lambda: client.get_job(job_id),
        "update": lambda: client.update_job(UpdateRequest(task_token=token, queue="held")),
        "publish": lambda: client.publish_events(token, [make_line(1)]),
        "complete": lambda: client.complete(ends[0]),
        "complete two": lambda: client.complete_jobs(ends[1:3]),
        "release": lambda: client.release_job(ReleaseRequest(task_token=held[3])),
    }


async def _hold(client: AsyncClient) -> tuple[str, str]:
    (job,) = await client.enqueue_jobs([make_request("held")])
    assert not isinstance(job, Exception)
    (held,) = await client.dequeue("held")
    return held.job.job_id, held.task_token


def _noted(write: Callable[..., None], counts: Counts) -> Callable[..., None]:
    def noting(transport: asyncio.Transport, data: Any) -> None:
        counts.note_write(transport)
        write(transport, data)

    return noting


def _threads() -> set[str]:
    """Return the threads of this process, those too that Python knows nothing of."""
    return {thread.name for thread in Path("/proc/self/task").iterdir()}
