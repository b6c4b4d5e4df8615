"""`airunner outbox` as people type it: migrate, relay, status, parked, retry, rerun."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import asyncpg
import pytest

from airunner import AsyncClient, FailedPrecondition, enqueue_generation, start_outbox_relay
from airunner.cli.main import execute
from airunner.domain.clock import SystemClock
from airunner.postgres.pool import Database, PostgresOptions
from airunner.stores.memory import MemoryStore
from airunner.testing.factories import make_services
from tests.support.outbox import until_states
from tests.support.postgres import rows_of
from tests.support.processes import RunningProcess
from tests.support.serving import serve


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    stdout: str
    stderr: str


class Shop:
    """An application with a database."""

    def __init__(
        self, dsn: str, folder: Path, connection: asyncpg.Connection, output: pytest.CaptureFixture[str]
    ) -> None:
        self.dsn = dsn
        self.folder = folder
        self.connection = connection
        self.output = output
        self.environment = {"DATABASE_URL": dsn}

    async def run(self, *args: str) -> Ended:
        """Do a command in a thread of this process: starting Python takes longer than any of them."""
        self.output.readouterr()
        code = await asyncio.to_thread(execute, ["outbox", *args])
        return Ended(code, *self.output.readouterr())

    def relay(self, *args: str, **environment: str) -> RunningProcess:
        log = self.folder / "relay.log"
        return RunningProcess(
            "outbox", "relay", *args, log=log, environment={**self.environment, **environment}
        )


@pytest.fixture
async def shop(
    empty_dsn: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Shop]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DATABASE_URL", empty_dsn)
    connection = await asyncpg.connect(empty_dsn)
    yield Shop(empty_dsn, tmp_path, connection, capsys)
    await connection.close()


async def test_the_commands_from_migration_to_rerun(shop: Shop) -> None:
    for refused in ("status", "parked"):
        done = await shop.run(refused)
        assert (done.code, "run 'airunner outbox migrate'" in done.stderr) == (1, True)
    script = (await shop.run("migrate", "--sql", "--schema", "elsewhere")).stdout
    await shop.connection.execute(script)
    for _ in range(2):
        done = await shop.run("migrate")
        assert done.code == 0, done.stderr
    lost = await enqueue_generation(shop.connection, "mail", {"to": "a"}, queue="mails")
    kept = await enqueue_generation(shop.connection, "paint", {"n": 1})
    relay = shop.relay("--metrics-listen", "127.0.0.1:0")
    try:
        await relay.until_said("outbox.queue_missing")
        await relay.until_said("outbox.parked")
        status = json.loads((await shop.run("status", "--json")).stdout)
        assert (status["pending"], status["parked"]) == (1, 1)
        parked = json.loads((await shop.run("parked", "--json")).stdout)
        assert (parked["row_id"], parked["reason"]) == (lost, "unknown_queue")
        assert lost in (await shop.run("parked")).stdout
        assert (await shop.run("retry", kept)).code == 5
        assert (await shop.run("retry")).code == 2
        assert (await shop.run("retry", lost)).code == 0
        done = await shop.run("rerun", kept)
        assert (done.code, len(done.stdout.strip())) == (0, 36)
        assert "the handler must create your application's own records for the new id" in done.stderr
        repeated = await shop.run("rerun", kept)
        assert (repeated.code, repeated.stdout) == (0, done.stdout)
        assert "nothing is enqueued" in repeated.stderr
        relay.send(signal.SIGTERM)
        assert await relay.ended() == 0
    finally:
        relay.abandon()
    assert shop.dsn not in relay.printed()


async def test_what_is_missing_is_named(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    done = await shop.run("migrate", "--app-role", "nobody_made_it")
    assert done.code == 1
    assert "there is no such role" in done.stderr
    monkeypatch.delenv("DATABASE_URL")
    for command in ("migrate", "status"):
        done = await shop.run(command)
        assert (done.code, done.stderr) == (
            2,
            "airunner: postgres.dsn: must be set, or DATABASE_URL\n",
        )


async def test_rows_become_jobs_once_by_a_relay_in_the_process_of_an_application(shop: Shop) -> None:
    settings: dict[str, object] = {"postgres.dsn": shop.dsn, "outbox.sink": "jobs"}
    with pytest.raises(FailedPrecondition, match="outbox migrate"):
        await start_outbox_relay(settings)
    await shop.run("migrate")
    clock = SystemClock()
    async with (
        make_services(MemoryStore(clock), clock) as services,
        serve(services) as url,
        Database(PostgresOptions(dsn=shop.dsn)) as database,
    ):
        ids = [await enqueue_generation(shop.connection, "paint", {"n": n, "price": 1.10}) for n in range(3)]
        relay = await start_outbox_relay({**settings, "client.server": url})
        assert (relay.healthy, relay.state) == (True, "ok")
        await until_states(database, dispatched=3)
        # As after a mark that was lost: the same jobs.
        before = {str(row["id"]): row["sink_ref"] for row in await rows_of(database, "id, sink_ref")}
        await database.execute("UPDATE airunner.outbox SET state = 'pending', sink_ref = ''")
        await until_states(database, dispatched=3)
        after = {str(row["id"]): row["sink_ref"] for row in await rows_of(database, "id, sink_ref")}
        assert before == after
        async with AsyncClient(url) as client:
            job = await client.get_job(before[ids[1]])
        await relay.stop()
        await relay.stop()
    assert (job.request_id, job.queue, job.params.handler) == (ids[1], "generation", "paint")
    assert (json.loads(job.params.payload_json), job.life.max_attempts) == ({"n": 1, "price": 1.1}, 5)


async def test_a_database_that_is_away_is_waited_for(shop: Shop, tmp_path: Path) -> None:
    shop.environment["DATABASE_URL"] = f"postgresql://a:hidden-word@/d?host={tmp_path}"
    relay = shop.relay()
    try:
        await relay.until_said("outbox.database_failed")
        assert "hidden-word" not in relay.printed()
        relay.send(signal.SIGTERM)
        assert await relay.ended() == 0
    finally:
        relay.abandon()
