"""One look for all who wait for sessions, with and without notifications, and without a database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing
from typing import Any

import asyncpg
import pytest

from airunner.domain.errors import Unavailable
from airunner.generation.session_api.feed import LOOK_SECONDS, session_bell
from airunner.generation.session_api.records import SessionNews, StartRequest
from airunner.generation.session_api.service import STILL_HERE_SECONDS, GenerationService
from airunner.generation.statements import LISTENING_LOCK
from airunner.local.postgres import LocalPostgres
from airunner.postgres.pool import Database
from airunner.stores.memory import MemoryStore
from airunner.testing.clock import ManualClock
from airunner.testing.conditions import until
from airunner.testing.factories import make_services
from tests.support.generation import enqueue
from tests.support.generations import begin, finish, opened

PAINT = StartRequest(name="paint", payload={})


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def generations(clock: ManualClock, dsn: str) -> AsyncIterator[GenerationService]:
    services = make_services(MemoryStore(clock), clock)
    async with opened(services, dsn) as service:
        yield service


async def test_idle_streams_cost_one_query_a_look(
    generations: GenerationService, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AsyncExitStack() as stack:
        for _ in range(20):
            session_id = await generations.start(PAINT)
            for stream in (generations.stream_one(session_id), generations.stream_all()):
                await stack.enter_async_context(aclosing(stream))
                await anext(stream)
        asked = _counted(monkeypatch)
        before = clock.now()
        await _advance_until(clock, lambda: len(asked) == 3)
        # Each look is five seconds after the one before it at least, and is one query.
        assert clock.now() - before > 2 * LOOK_SECONDS * 1000


async def test_without_readers_nothing_is_asked(
    generations: GenerationService, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = _counted(monkeypatch)
    waiting = clock.waiting
    clock.advance(LOOK_SECONDS)
    await until(lambda: clock.waiting >= waiting)
    assert asked == []


async def test_the_start_of_work_is_told_at_once(generations: GenerationService, database: Database) -> None:
    session_id = await generations.start(PAINT)
    await until(lambda: generations.listener is not None and generations.listener.is_connected)
    async with (
        aclosing(generations.stream_one(session_id)) as one,
        aclosing(generations.stream_all()) as all_,
    ):
        await anext(one)
        await anext(all_)
        await begin(database, session_id)
        # The clock of the looks stands still.
        for stream in (one, all_):
            found = await asyncio.wait_for(anext(stream), 20)
            assert not isinstance(found, str)
            assert found.state == "running"


async def test_nobody_is_notified_of_starts_unless_somebody_listens(database: Database, dsn: str) -> None:
    heard: list[str] = []
    listener = await asyncpg.connect(dsn)
    await listener.add_listener("session_started", lambda *event: heard.append(str(event[3])))

    async def start(session_id: str) -> None:
        await begin(database, session_id)
        # What was notified before is there with the next answer.
        await listener.execute("SELECT 1")

    unheard, told = [await enqueue(database, "paint") for _ in range(2)]
    await start(unheard)
    assert heard == []
    await listener.execute("SELECT pg_advisory_lock_shared($1)", LISTENING_LOCK)
    # Only the first try is news, and nothing of a session that has ended.
    await start(told)
    await start(told)
    await start(unheard)
    await finish(database, told)
    await start(told)
    assert heard == [told]
    await listener.close()


async def test_a_lost_notification_delays_by_five_seconds_at_most(
    generations: GenerationService, clock: ManualClock, database: Database
) -> None:
    session_id = await generations.start(PAINT)
    async with (
        aclosing(generations.stream_one(session_id)) as one,
        aclosing(generations.stream_all()) as all_,
    ):
        await anext(one)
        await anext(all_)
        await begin(database, session_id, notify=False)
        await finish(database, session_id, notify=False)
        for stream in (one, all_):
            found = await _next_news(stream, clock)
            assert found.state == "running"
            assert (await _next_news(stream, clock)).state == "done"


async def test_a_cut_listener_is_made_up_for(
    generations: GenerationService, clock: ManualClock, database: Database, dsn: str
) -> None:
    session_id = await generations.start(PAINT)
    listener = generations.listener
    assert listener
    await until(lambda: listener.is_connected)
    async with aclosing(generations.stream_one(session_id)) as stream:
        await anext(stream)
        await _cut(dsn, "%listener")
        await until(lambda: not listener.is_connected)
        await finish(database, session_id)
        assert (await _next_news(stream, clock)).state == "done"
        with pytest.raises(StopAsyncIteration):
            await anext(stream)


async def test_a_stream_outlives_its_database(
    clock: ManualClock, postgres: LocalPostgres, unshared_dsn: str
) -> None:
    """All connections are refused for a while: readers are kept, newcomers are told to come later."""
    name = unshared_dsn.partition("?")[0].rpartition("/")[2]
    admin = await asyncpg.connect(postgres.dsn())
    async with opened(make_services(MemoryStore(clock), clock), unshared_dsn) as generations:
        session_id = await generations.start(PAINT)
        streams = [generations.stream_one(session_id), generations.stream_all()]
        for stream in streams:
            await anext(stream)
        await admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        await _cut(postgres.dsn(), "airunner generations%", name)
        with pytest.raises(Unavailable):
            await generations.get(session_id)
        generations.feed._notifier.ring_all()
        for stream in streams:
            assert isinstance(await anext(stream), str)
        await admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
        async with Database(generations._database._options) as database:
            await finish(database, session_id, notify=False)
        for stream in streams:
            assert (await _next_news(stream, clock)).state == "done"
            await stream.aclose()
    await admin.close()


async def test_a_database_that_is_away_at_the_start_is_waited_for(
    clock: ManualClock, postgres: LocalPostgres, unshared_dsn: str
) -> None:
    name = unshared_dsn.partition("?")[0].rpartition("/")[2]
    admin = await asyncpg.connect(postgres.dsn())
    await admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
    async with opened(make_services(MemoryStore(clock), clock), unshared_dsn) as generations:
        with pytest.raises(Unavailable):
            await generations.start(PAINT)
        await admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
        await _advance_until(clock, lambda: generations._is_open)
        assert await generations.start(PAINT)
    await admin.close()


@pytest.mark.parametrize("rings", [0, 1], ids=["nothing rings", "a first look rings"])
async def test_quiet_streams_say_that_they_are_there(
    generations: GenerationService, clock: ManualClock, rings: int
) -> None:
    session_id = await generations.start(PAINT)
    async with aclosing(generations.stream_one(session_id)) as stream:
        assert await anext(stream) == ""
        for _ in range(rings):
            generations.feed._notifier.ring(session_bell(session_id))
        waiting = await _waiting_for_time(generations, session_id, stream)
        clock.advance(STILL_HERE_SECONDS)
        assert await waiting == ""


async def test_bells_of_sessions_are_not_those_of_jobs(generations: GenerationService) -> None:
    session_id = await generations.start(PAINT)
    async with aclosing(generations.stream_one(session_id)) as stream:
        await anext(stream)
        assert generations.feed._notifier.heard
        assert generations.feed._notifier.jobs == {}


async def _waiting_for_time(
    generations: GenerationService, session_id: str, stream: AsyncGenerator[SessionNews | str, None]
) -> asyncio.Future[SessionNews | str]:
    """Return what a stream says next, once only time can bring it about: what has rung is over."""
    with generations.feed.listen(session_bell(session_id)) as bell:
        while True:
            pending = asyncio.ensure_future(anext(stream))
            await until(lambda pending=pending: pending.done() or bool(bell._wake_up._waiting))  # type: ignore[misc]
            if not pending.done():
                return pending
            assert await pending == ""


def _counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that gets every statement from now on."""
    asked: list[str] = []
    fetch = Database.fetch

    async def counted(self: Database, statement: str, *values: object) -> Any:
        asked.append(statement)
        return await fetch(self, statement, *values)

    monkeypatch.setattr(Database, "fetch", counted)
    return asked


async def _next_news(stream: AsyncGenerator[SessionNews | str, None], clock: ManualClock) -> SessionNews:
    """Let time pass until a stream has news."""
    while True:
        following = asyncio.ensure_future(anext(stream))
        await _advance_until(clock, following.done)
        found = following.result()
        if not isinstance(found, str):
            return found


async def _advance_until(clock: ManualClock, condition: Callable[[], bool]) -> None:
    passed = 0.0
    while not condition():
        clock.advance(0.5)
        passed += 0.5
        await asyncio.sleep(0.005)
        assert passed < 600


async def _cut(dsn: str, application: str, database: str = "%") -> None:
    connection = await asyncpg.connect(dsn)
    await connection.execute(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
        "WHERE application_name LIKE $1 AND datname LIKE $2",
        application,
        database,
    )
    await connection.close()
