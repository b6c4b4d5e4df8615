"""What works beside a server: begun anew when it ends, named when it keeps ending, drained at the end."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest

from airunner.config import load_settings
from airunner.handlers.capture import captured
from airunner.outbox.start import OutboxRelay
from airunner.server.asgi import AppOptions
from airunner.server.companions import CompanionKind, Companions
from airunner.server.run import ServeOptions, Server
from airunner.stores.memory import MemoryStore
from airunner.testing.clock import ManualClock
from airunner.testing.conditions import until
from airunner.testing.factories import make_services
from tests.support.consumers import turns
from tests.support.http_client import HttpClient

OPTIONS = ServeOptions(host="127.0.0.1", port=0, app=AppOptions(no_auth=True))


class Fake:
    """Runs until it is told to end, and notes what it is told."""

    def __init__(self, *, deaf: bool = False) -> None:
        self.told: list[str] = []
        self.sound = True
        self.word = "ok"
        self.deaf = deaf
        self.end: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        self.told.append("run")
        try:
            await self.end
        except asyncio.CancelledError:
            self.told.append("cancelled")
            raise
        self.told.append("ended")

    async def drain(self) -> None:
        self.told.append("drain")
        if not self.deaf and not self.end.done():
            self.end.set_result(None)

    @property
    def healthy(self) -> bool:
        return self.sound

    @property
    def state(self) -> str:
        return self.word


class Nursery:
    """Builds them, and keeps all that it has built."""

    def __init__(self, build: Callable[[], Fake] = Fake) -> None:
        self.built: list[Fake] = []
        self._build = build

    @property
    def kind(self) -> CompanionKind:
        return CompanionKind(name="relay", build=self.build)

    def build(self) -> Fake:
        self.built.append(self._build())
        return self.built[-1]

    def running(self, number: int) -> bool:
        return len(self.built) == number and self.built[-1].told == ["run"]


@asynccontextmanager
async def started(*kinds: CompanionKind) -> AsyncIterator[tuple[Companions, ManualClock]]:
    clock = ManualClock()
    companions = Companions(kinds, clock)
    companions.start()
    await turns()
    yield companions, clock
    await companions.drain()


async def test_it_is_stopped_and_waited_for() -> None:
    nursery = Nursery()
    async with started(nursery.kind) as (companions, _):
        assert nursery.running(1)
        await companions.drain()
        assert nursery.built[0].told == ["run", "drain", "ended"]
    assert companions.unwell == []


@pytest.mark.parametrize("how", ["error", "return", "cancelled"])
async def test_one_that_ends_by_itself_is_begun_anew_after_a_pause(how: str) -> None:
    nursery = Nursery()
    async with started(nursery.kind) as (_, clock):
        end = nursery.built[0].end
        match how:
            case "error":
                end.set_exception(ValueError("a surprise"))
            case "return":
                end.set_result(None)
            case _:
                end.cancel()
        await turns()
        assert len(nursery.built) == 1
        clock.advance(1)
        await until(lambda: nursery.running(2))


async def test_one_that_cannot_be_built_harms_no_other() -> None:
    def broken() -> Fake:
        raise ValueError("no such queue")

    nursery = Nursery()
    worse = CompanionKind(name="worse", build=broken)
    async with started(worse, nursery.kind) as (companions, clock):
        assert nursery.running(1)
        assert companions.unwell == []
        for _ in range(130):
            clock.advance(1)
            await turns()
        assert companions.unwell == ["worse"]
    assert nursery.built[0].told == ["run", "drain", "ended"]


async def test_former_ends_are_forgotten_once_it_has_run_for_a_minute() -> None:
    nursery = Nursery()
    async with started(nursery.kind) as (companions, clock):
        nursery.built[0].end.set_exception(ValueError("a surprise"))
        await turns()
        clock.advance(1)
        await until(lambda: nursery.running(2))
        clock.advance(150)
        assert companions.unwell == []
        nursery.built[1].end.set_exception(ValueError("much later"))
        await until(lambda: nursery.running(3))
        clock.advance(59)
        assert companions.unwell == []


async def test_one_that_makes_no_progress_is_named() -> None:
    nursery = Nursery()
    async with started(nursery.kind) as (companions, _):
        nursery.built[0].sound = False
        assert companions.unwell == ["relay"]


async def test_who_does_not_end_is_cancelled() -> None:
    nursery = Nursery(lambda: Fake(deaf=True))
    async with started(nursery.kind) as (companions, clock):
        draining = asyncio.create_task(companions.drain())
        await turns()
        assert not draining.done()
        clock.advance(90)
        await until(draining.done)
        assert nursery.built[0].told == ["run", "drain", "cancelled"]


async def test_who_ignores_that_too_is_left_to_itself() -> None:
    class Deaf(Fake):
        async def run(self) -> None:
            while not self.end.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.wait({self.end})

    nursery = Nursery(lambda: Deaf(deaf=True))
    async with started(nursery.kind) as (companions, clock):
        draining = asyncio.create_task(companions.drain())
        for seconds in (90, 5):
            await turns()
            assert not draining.done()
            clock.advance(seconds)
        await until(draining.done)
        nursery.built[0].end.set_result(None)


async def test_one_that_cannot_be_told_is_cancelled() -> None:
    class Rude(Fake):
        async def drain(self) -> None:
            raise RuntimeError("never")

    nursery = Nursery(Rude)
    async with started(nursery.kind) as (companions, _):
        await companions.drain()
        assert nursery.built[0].told == ["run", "cancelled"]


async def test_a_server_answers_until_its_companions_are_drained() -> None:
    nursery = Nursery(lambda: Fake(deaf=True))
    clock = ManualClock()
    services = make_services(MemoryStore(clock), clock)
    server = Server(services, OPTIONS, companions=[nursery.kind])
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    running = asyncio.create_task(server.run(on_ready=ready.set_result))
    url = await ready
    await until(lambda: nursery.running(1))
    answer = await HttpClient().get(f"{url}/healthz")
    assert (answer.status, answer.json()) == (200, {"status": "ok"})
    nursery.built[0].word = "waiting"
    answer = await HttpClient().get(f"{url}/healthz")
    assert (answer.status, answer.json()) == (200, {"status": "ok", "waiting": ["relay"]})
    nursery.built[0].word, nursery.built[0].sound = "stuck", False
    answer = await HttpClient().get(f"{url}/healthz")
    assert (answer.status, answer.json()) == (503, {"status": "stuck", "loops": ["relay"]})
    server.stop()
    await until(lambda: nursery.built[0].told == ["run", "drain"])
    assert (await HttpClient().get(f"{url}/readyz")).status == 503
    assert (await HttpClient().get(f"{url}/healthz")).status == 200
    nursery.built[0].end.set_result(None)
    await running


async def test_the_second_stop_of_a_server_waits_for_none_of_them() -> None:
    nursery = Nursery(lambda: Fake(deaf=True))
    clock = ManualClock()
    server = Server(make_services(MemoryStore(clock), clock), OPTIONS, companions=[nursery.kind])
    running = asyncio.create_task(server.run())
    await until(lambda: nursery.running(1))
    server.stop()
    await until(lambda: nursery.built[0].told == ["run", "drain"])
    server.stop()
    await running
    assert nursery.built[0].told == ["run", "drain", "cancelled"]


def test_a_relay_is_one(tmp_path: Path) -> None:
    flags = {"postgres.dsn": "postgresql://db/shop"}
    settings = load_settings(flags=flags, environ={}, cwd=tmp_path).settings
    kind = CompanionKind(name="relay", build=lambda: OutboxRelay(settings, ManualClock()))
    assert kind.build().healthy


def test_the_capture_of_output_is_shared_and_ends_with_the_last() -> None:
    before = sys.stdout
    first, second = ExitStack(), ExitStack()
    first.enter_context(captured())
    replaced = sys.stdout
    assert replaced is not before
    second.enter_context(captured())
    assert sys.stdout is replaced
    first.close()
    assert sys.stdout is replaced
    second.close()
    assert sys.stdout is before
