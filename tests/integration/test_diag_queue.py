"""`airunner diag queue`: green through all that is real, and red with the name of the hop that is broken."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import asyncpg
import pytest

from airunner.aws.calls import Aws
from airunner.aws.clients import OF_A_QUEUE
from airunner.cli.main import execute
from airunner.config import ConfigError, Settings, load_settings
from airunner.domain.clock import SystemClock
from airunner.domain.errors import InvalidArgument, PermanentFailure
from airunner.generation.diagnosis import hops
from airunner.generation.diagnosis.hops import Diagnosis, HopName
from airunner.generation.diagnosis.run import diagnose_queue
from airunner.generation.gate import DatabaseGate
from airunner.generation.job_verdicts import JobVerdicts
from airunner.generation.session_api.service import GenerationService
from airunner.generation.sessions import SessionTable
from airunner.generation.start import GenerationWorker
from airunner.generation.work import GenerationWork, WorkOptions
from airunner.handlers.images import Image, Images
from airunner.outbox.schema import outbox_sql
from airunner.outbox.start import OutboxRelay
from airunner.postgres.pool import Database
from airunner.rpc.auth import Scope, mint_key
from airunner.server.asgi import AppOptions
from airunner.services.composition import Services
from airunner.stores.memory import MemoryStore
from airunner.testing.clock import ManualClock
from airunner.testing.conditions import until
from airunner.testing.factories import make_services
from airunner.worker.worker import Worker, WorkerOptions
from tests.doubles.aws.emulator import ACCESS_KEY, REGION, SECRET_KEY
from tests.doubles.aws.strict import StrictProxy
from tests.support.aws_queues import make_queues
from tests.support.aws_stores import options_of
from tests.support.faulty_proxy import faulty_proxy
from tests.support.generation import AT_ONCE, registry
from tests.support.generations import opened
from tests.support.processes import unused_port
from tests.support.serving import serve

ALL = [name.value for name in HopName]
LIMIT_SECONDS = 20
PATIENCE_SECONDS = 60
IS_SENT = "o.state = 'dispatched'"
IS_WAITED_FOR = "EXISTS (SELECT FROM airunner.outbox_relays)"


@dataclass(slots=True)
class Site:
    """An application's database and queue, and whatever a test lets run around them."""

    dsn: str
    flags: dict[str, object]
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)
    services: Services | None = None

    def settings(self, **more: object) -> Settings:
        flags = {**self.flags, **{name.replace("__", "."): value for name, value in more.items()}}
        return load_settings(environ={}, flags=flags).settings

    async def diagnose(self, **more: object) -> Diagnosis:
        """Return what is found when all goes well, or something is broken for good."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await diagnose_queue(
                self.settings(**more), SystemClock(), timeout_seconds=PATIENCE_SECONDS
            )

    async def diagnose_late(self, when: str, **more: object) -> Diagnosis:
        """Return what is found when the time is over, which does not pass before this is true of the item."""
        connection = await asyncpg.connect(self.dsn)
        await connection.execute("DELETE FROM airunner.outbox; DELETE FROM airunner.generation_sessions")
        clock = ManualClock()
        diagnosing = asyncio.create_task(
            diagnose_queue(self.settings(**more), clock, timeout_seconds=LIMIT_SECONDS)
        )
        items = "airunner.outbox AS o JOIN airunner.generation_sessions AS s USING (id)"
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not await connection.fetchval(f"SELECT true FROM {items} WHERE {when}"):  # noqa: S608  of tests
                assert not diagnosing.done(), diagnosing.result()
            while not diagnosing.done():
                clock.advance(1)
                await asyncio.sleep(0.01)
        await connection.close()
        return diagnosing.result()

    async def serve(self, *scopes: Scope, listen_dsn: str = "") -> GenerationService:
        clock = SystemClock()
        services = self.services = make_services(MemoryStore(clock), clock)
        minted = mint_key("ann", scopes or (Scope.SUBMIT, Scope.READ), (), 0)
        generations = await self.stack.enter_async_context(opened(services, self.dsn))
        listener = generations.listener
        assert listener
        if listen_dsn:
            await listener.stop()
            listener._options = replace(listener._options, dsn=listen_dsn)
            listener.start()
        else:
            await until(lambda: listener.is_connected)
        await services.store.add_key(minted.key)
        options = AppOptions(no_auth=False)
        url = await self.stack.enter_async_context(serve(services, options, generations=generations))
        self.flags |= {"diag.base_url": url, "client.api_key": minted.text}
        return generations

    async def relay(self, **more: object) -> None:
        relay = OutboxRelay(self.settings(**more), SystemClock())
        await relay.start()
        self.stack.push_async_callback(relay.stop)

    async def work(self, **handlers: Any) -> None:
        worker = GenerationWorker(self.settings(), registry(**handlers), SystemClock())
        task = asyncio.create_task(worker.run())
        self.stack.push_async_callback(asyncio.wait, {task})
        self.stack.callback(worker.stop)

    async def work_as_jobs(self, database: Database) -> None:
        assert self.services
        clock, sessions = SystemClock(), SessionTable(database, "airunner")
        work, gate = GenerationWork(sessions, clock, WorkOptions()), DatabaseGate(sessions, clock)
        verdicts = JobVerdicts(work, AT_ONCE, gate)
        options = WorkerOptions(queues=("generation",), handlers=verdicts.wrap(registry()), worker_id="w")
        worker = Worker(self.services.jobs, self.services.events, clock, options)
        task = asyncio.create_task(worker.run())
        self.stack.push_async_callback(gate.close)
        self.stack.callback(work.close)
        self.stack.push_async_callback(asyncio.wait, {task})
        self.stack.callback(worker.stop)


@pytest.fixture(autouse=True)
def _slow_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing be late that is on its way."""
    monkeypatch.setattr(hops, "LATE_SECONDS", 60.0)


@pytest.fixture
async def site(dsn: str, aws: StrictProxy, aws_env: str) -> AsyncIterator[Site]:
    async with Aws(replace(options_of(aws.url), clients=OF_A_QUEUE)) as account:
        _, url = await make_queues(account, aws_env, 5)
        flags: dict[str, object] = {
            "postgres.dsn": dsn,
            "generation.queue_url": url,
            "store.aws.region": REGION,
            "store.aws.endpoint_url": aws.url,
            "store.aws.access_key_id": ACCESS_KEY,
            "store.aws.secret_access_key": SECRET_KEY,
            "diag.user_id": "42",
        }
        async with AsyncExitStack() as stack:
            yield Site(dsn, flags, stack=stack)


def broken(found: Diagnosis) -> tuple[str, str]:
    """Return the hop that is broken and what is said of it; all before it must be well, and none follow."""
    assert [hop.name.value for hop in found.hops] == ALL[: len(found.hops)]
    assert all(hop.is_ok for hop in found.hops[:-1])
    assert found.broken is found.hops[-1]
    return found.broken.name.value, found.broken.text


async def test_an_item_passes_all_hops_and_each_has_its_time(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    await site.serve()
    url = str(site.flags["diag.base_url"])
    await site.relay()
    await site.work()
    found = await site.diagnose()
    assert found.broken is None, found
    assert [hop.name.value for hop in found.hops] == ALL
    assert all(hop.seconds is not None and hop.seconds < 30 for hop in found.hops)
    # The same as people type it.
    for name, value in {
        "DATABASE_URL": site.dsn,
        "INTEGRATION_TEST_USER_ID": "42",
        "INTEGRATION_BASE_URL": url,
        "AIRUNNER_API_KEY": str(site.flags["client.api_key"]),
    }.items():
        monkeypatch.setenv(name, value)
    assert await asyncio.to_thread(execute, ["diag", "queue", "--json"]) == 0
    printed = capsys.readouterr()
    # What runs in this process may log there too.
    (line,) = (line for line in printed.out.splitlines() if line.startswith("{"))
    told = json.loads(line)
    assert (told["type"], told["broken"], [hop["hop"] for hop in told["hops"]]) == ("diagnosis", "", ALL)
    assert all(hop["ok"] and hop["millis"] >= 0 for hop in told["hops"])
    assert await asyncio.to_thread(execute, ["diag", "queue"]) == 0
    printed = capsys.readouterr()
    rows = [line.split("\t")[:2] for line in printed.out.splitlines() if "\t" in line]
    assert rows == [[name, "ok"] for name in ALL]
    assert "all hops work" in printed.err
    monkeypatch.setenv("INTEGRATION_BASE_URL", f"http://127.0.0.1:{unused_port()}")
    assert await asyncio.to_thread(execute, ["diag", "queue"]) == 1
    assert "server is broken: " in capsys.readouterr().err
    # What is given on the command line counts first.
    assert await asyncio.to_thread(execute, ["diag", "queue", "--server", url]) == 0


async def test_an_item_passes_all_hops_with_sink_jobs_too(site: Site, database: Database) -> None:
    await site.serve()
    site.flags["outbox.sink"] = "jobs"
    await site.relay(client__server=site.flags["diag.base_url"])
    hop, text = broken(await site.diagnose_late(IS_SENT))
    assert (hop, "with sink jobs, 'airunner worker'" in text) == ("worker", True)
    await site.work_as_jobs(database)
    found = await site.diagnose()
    assert found.broken is None, found


async def test_it_asks_for_what_the_variables_say(site: Site, database: Database) -> None:
    async def paint(payload: dict[str, Any]) -> Images:
        count = 1 if payload["use_mock"] else payload["outputs"]
        return Images([Image.of(f"{n}.png", "image/png", b"x") for n in range(count)])

    await site.serve()
    await site.relay()
    await site.work(paint=paint)
    found = await site.diagnose(diag__job_type="paint", diag__outputs=3, diag__use_mock=False)
    assert found.broken is None, found
    (row,) = await database.fetch("SELECT request::text, user_id FROM airunner.generation_sessions")
    assert json.loads(row["request"]) == {"user_id": "42", "outputs": 3, "use_mock": False}
    hop, text = broken(await site.diagnose(diag__job_type="paint", diag__outputs=3, diag__use_mock=True))
    assert (hop, "asked for 3 outputs and made 1" in text) == ("worker", True)


async def test_a_server_that_is_down_or_stuck_or_refuses_is_named(site: Site) -> None:
    site.flags["diag.base_url"] = f"http://127.0.0.1:{unused_port()}"
    hop, text = broken(await site.diagnose())
    assert (hop, "is the server running there?" in text) == ("server", True)
    async with _answering(b'HTTP/1.1 503 No\r\ncontent-length: 19\r\n\r\n{"loops": ["mend"]}') as url:
        hop, text = broken(await site.diagnose(diag__base_url=url))
        assert (hop, "answers 503, stuck: mend" in text) == ("server", True)
    async with _answering(b"") as url:
        settings = site.settings(diag__base_url=url)
        hop, text = broken(await diagnose_queue(settings, SystemClock(), timeout_seconds=0.1))
        assert (hop, text) == ("server", "there was no answer in time")
    await site.serve(Scope.READ)
    hop, text = broken(await site.diagnose())
    assert (hop, "answers 403" in text, "jobs:submit" in text) == ("outbox", True, True)
    hop, text = broken(await site.diagnose(client__api_key="air_wrong"))
    assert (hop, "answers 401" in text, "air_wrong" in text) == ("outbox", True, False)


async def test_a_database_that_is_away_or_not_migrated_or_another_is_named(
    site: Site, empty_dsn: str
) -> None:
    await site.serve()
    hop, text = broken(await site.diagnose(postgres__dsn="postgresql://a:hidden-word@127.0.0.1:1/d"))
    assert (hop, "does not answer" in text, "hidden-word" in text) == ("database", True, False)
    hop, text = broken(await site.diagnose(postgres__dsn=empty_dsn))
    assert (hop, "run 'airunner outbox migrate'" in text) == ("outbox", True)
    other = await asyncpg.connect(empty_dsn)
    await other.execute(outbox_sql("airunner"))
    await other.close()
    hop, text = broken(await site.diagnose(postgres__dsn=empty_dsn))
    assert (hop, "another database or schema" in text) == ("outbox", True)


async def test_a_relay_that_does_not_run_is_named(site: Site) -> None:
    await site.serve()
    await site.work()
    hop, text = broken(await site.diagnose_late("true"))
    assert (hop, "no relay has claimed the row" in text) == ("relay", True)


async def test_a_queue_that_is_missing_is_named(site: Site) -> None:
    await site.serve()
    url = f"{site.flags['generation.queue_url']}-none"
    await site.relay(generation__queue_url=url)
    hop, text = broken(await site.diagnose_late("true", generation__queue_url=url))
    assert (hop, "SQS has no such queue" in text) == ("queue", True)
    # Where nobody here can ask SQS, the relay that waits says enough.
    hop, text = broken(await site.diagnose_late(IS_WAITED_FOR, generation__queue_url=None))
    assert (hop, "cannot send to the queue" in text) == ("queue", True)


async def test_a_row_that_is_parked_is_named_at_once(site: Site, unshared_dsn: str) -> None:
    site.flags["postgres.dsn"] = site.dsn = unshared_dsn
    connection = await asyncpg.connect(unshared_dsn)
    await connection.execute(
        "CREATE FUNCTION public.park() RETURNS trigger LANGUAGE plpgsql AS "
        "'BEGIN NEW.state := ''parked''; NEW.reason := ''too large''; RETURN NEW; END'; "
        "CREATE TRIGGER park BEFORE INSERT ON airunner.outbox FOR EACH ROW EXECUTE FUNCTION public.park()"
    )
    await connection.close()
    await site.serve()
    hop, text = broken(await site.diagnose())
    assert (hop, text.startswith("the row is parked: too large")) == ("queue", True)
    await site.stack.aclose()


async def test_a_worker_that_does_not_run_or_has_no_such_handler_is_named(site: Site) -> None:
    await site.serve()
    await site.relay()
    hop, text = broken(await site.diagnose_late(IS_SENT))
    assert (hop, "messages wait in the queue" in text) == ("worker", True)
    hop, text = broken(await site.diagnose_late(IS_SENT, generation__queue_url=None))
    assert (hop, "no worker has begun a try" in text) == ("worker", True)
    await site.work()
    hop, text = broken(await site.diagnose_late(IS_SENT, diag__job_type="nobody"))
    assert (hop, "handler nobody" in text) == ("worker", True)


async def test_a_handler_that_fails_is_named(site: Site) -> None:
    async def spoil() -> None:
        raise PermanentFailure("nsfw", "no such pictures")

    async def stumble() -> None:
        raise OSError("the provider is away")

    await site.serve()
    await site.relay()
    await site.work(spoil=spoil, stumble=stumble)
    hop, text = broken(await site.diagnose(diag__job_type="spoil"))
    assert (hop, "failed, nsfw: no such pictures" in text) == ("worker", True)
    hop, text = broken(await site.diagnose_late("s.last_error <> ''", diag__job_type="stumble"))
    assert (hop, "the provider is away" in text) == ("worker", True)


async def test_notifications_that_do_not_arrive_are_named(site: Site, empty_dsn: str) -> None:
    await site.serve()
    await site.relay()
    await site.work()
    hop, text = broken(await site.diagnose_late("s.state = 'done'", postgres__listen_dsn=empty_dsn))
    assert (hop, "postgres.listen_dsn" in text) == ("notify", True)


async def test_a_server_that_does_not_listen_is_named(site: Site, empty_dsn: str) -> None:
    server = await site.serve(listen_dsn=empty_dsn)
    await site.relay()
    await site.work()
    running = asyncio.create_task(site.diagnose())
    while not running.done():
        # As it does every five seconds.
        server.feed.look_soon()
        await asyncio.wait({running}, timeout=0.05)
    hop, text = broken(running.result())
    assert (hop, "no server listens" in text) == ("sse", True)


async def test_a_stream_that_is_cut_or_held_back_on_its_way_is_named(site: Site) -> None:
    begun, go = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    async def paint() -> None:
        loop.call_soon_threadsafe(begun.set)
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(go.wait(), loop))

    await site.serve()
    await site.relay()
    await site.work(paint=paint)
    async with faulty_proxy(str(site.flags["diag.base_url"])) as proxy:
        running = asyncio.create_task(site.diagnose(diag__job_type="paint", diag__base_url=proxy.url))
        await begun.wait()
        proxy.reset_all()
        go.set()
        hop, text = broken(await running)
        assert (hop, "the stream of the session broke" in text) == ("sse", True)
        begun.clear()
        go.clear()
        late = site.diagnose_late("s.state = 'done'", diag__job_type="paint", diag__base_url=proxy.url)
        running = asyncio.create_task(late)
        await begun.wait()
        proxy.silent = True
        go.set()
        hop, text = broken(await running)
        assert (hop, "is a proxy buffering?" in text) == ("sse", True)


async def test_settings_that_lack_something_are_refused(dsn: str) -> None:
    for flags, missing in (
        ({"postgres.dsn": dsn}, "INTEGRATION_TEST_USER_ID"),
        ({"diag.user_id": "42"}, "DATABASE_URL"),
    ):
        settings = load_settings(environ={}, flags=flags).settings
        with pytest.raises(ConfigError, match=missing):
            await diagnose_queue(settings, SystemClock())
    settings = load_settings(environ={}, flags={"postgres.dsn": dsn, "diag.user_id": "42"}).settings
    with pytest.raises(InvalidArgument, match="timeout"):
        await diagnose_queue(settings, SystemClock(), timeout_seconds=0)


@asynccontextmanager
async def _answering(answer: bytes) -> AsyncIterator[str]:
    """A server that answers everything with the same bytes; with none, never."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await reader.read()
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
