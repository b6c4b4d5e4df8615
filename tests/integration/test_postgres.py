"""The one way to PostgreSQL: deadlines, errors without secrets, migrations, notifications, a local server."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from airunner.domain.clock import SystemClock
from airunner.domain.errors import (
    AlreadyExists,
    FailedPrecondition,
    InvalidArgument,
    PermissionDenied,
    Unauthenticated,
    Unavailable,
    error_text,
)
from airunner.domain.retry import RetryPolicy
from airunner.local.postgres import LocalPostgres, PostgresMissing, find_binaries
from airunner.postgres.listening import Listener
from airunner.postgres.migrations import Migration, check_schema, migrate, render_sql
from airunner.postgres.pool import Database, PostgresOptions
from airunner.testing.conditions import until
from tests.support.postgres import administer
from tests.support.processes import lives, until_gone

PASSWORD = "tell-nobody-7f3a"
QUICK = RetryPolicy(first_seconds=0.01, max_seconds=0.05)
STEPS = (
    Migration(number=1, name="one", oldest_program=1, sql="CREATE TABLE {schema}.things (id integer);"),
    Migration(number=2, name="two", oldest_program=1, sql="ALTER TABLE {schema}.things ADD name text;"),
)

REFUSED = (
    ("INSERT INTO things VALUES (1), (1)", AlreadyExists),
    ("INSERT INTO things VALUES (NULL)", InvalidArgument),
    ("SELECT 1 / 0", InvalidArgument),
    ("SELECT * FROM nowhere.things", FailedPrecondition),
    ("SET LOCAL ROLE someone; SELECT * FROM public.things", PermissionDenied),
    ("DO $$BEGIN RAISE EXCEPTION SQLSTATE '57P01'; END$$", Unavailable),
    ("DO $$BEGIN RAISE EXCEPTION SQLSTATE '40001'; END$$", Unavailable),
)


@asynccontextmanager
async def opened(dsn: str, **options: float) -> AsyncIterator[Database]:
    given: dict[str, float] = {"statement_seconds": 5.0, **options}
    async with Database(replace(PostgresOptions(dsn=dsn), **given)) as database:  # type: ignore[arg-type]  # numbers
        yield database


class TestDatabase:
    async def test_a_transaction_that_fails_leaves_nothing(self, empty_dsn: str) -> None:
        async with opened(empty_dsn) as database:
            await database.execute("CREATE TABLE things (id integer PRIMARY KEY)")
            with suppress(ZeroDivisionError):
                async with database.transaction() as connection:
                    await connection.execute("INSERT INTO things VALUES (1)")
                    _ = 1 / 0
            assert await database.fetch("SELECT * FROM things") == []

    async def test_connections_have_a_name_and_time_outs(self, empty_dsn: str) -> None:
        options = PostgresOptions(dsn=empty_dsn, application_name="relay of shop", lock_seconds=3)
        async with Database(options) as database:
            shown = [
                await database.fetch_value(f"SHOW {name}") for name in ("application_name", *options.timeouts)
            ]
        assert shown == ["relay of shop", "10s", "3s", "10s"]

    async def test_behind_a_pooler_time_outs_hold_within_transactions(self, empty_dsn: str) -> None:
        async with Database(PostgresOptions(dsn=empty_dsn, is_pooled=True)) as database:
            async with database.transaction() as connection:
                assert await connection.fetchval("SHOW lock_timeout") == "5s"
            assert await database.fetch_value("SHOW lock_timeout") == "0"

    async def test_a_statement_that_takes_too_long_is_given_up(self, empty_dsn: str) -> None:
        async with opened(empty_dsn, statement_seconds=0.05) as database:
            with pytest.raises(Unavailable):
                await database.execute("SELECT pg_sleep(30)")
            assert await database.fetch_value("SELECT 1") == 1

    async def test_a_lock_is_not_awaited_for_ever(self, empty_dsn: str) -> None:
        async with opened(empty_dsn) as holder, opened(empty_dsn, lock_seconds=0.05) as other:
            await holder.execute("CREATE TABLE things (id integer)")
            async with holder.transaction() as connection:
                await connection.execute("LOCK TABLE things")
                with pytest.raises(Unavailable, match="55P03"):
                    await other.execute("INSERT INTO things VALUES (1)")

    async def test_waiting_for_a_free_connection_has_a_deadline(self, empty_dsn: str) -> None:
        async with opened(empty_dsn, max_connections=1, connect_seconds=0.2) as database:
            async with database.transaction():
                with pytest.raises(Unavailable):
                    await database.execute("SELECT 1")
            assert await database.fetch_value("SELECT 1") == 1

    async def test_closing_does_not_wait_for_those_who_hang(self, empty_dsn: str) -> None:
        database = Database(PostgresOptions(dsn=empty_dsn))
        await database.open()
        await database.close()
        await database.close()
        with pytest.raises(FailedPrecondition):
            await database.execute("SELECT 1")

    async def test_a_connection_that_was_ended_is_replaced(self, empty_dsn: str) -> None:
        async with opened(empty_dsn) as database, opened(empty_dsn) as other:
            pid = await database.fetch_value("SELECT pg_backend_pid()")
            await other.execute("SELECT pg_terminate_backend($1, 5000)", pid)
            await until(lambda: not lives(pid))
            with suppress(Unavailable):  # that the connection has ended may be known by now, or not yet
                await database.fetch_value("SELECT 1")
            assert await database.fetch_value("SELECT 1") == 1

    async def test_errors_are_ours(self, postgres: LocalPostgres, empty_dsn: str) -> None:
        await administer(postgres, "DROP ROLE IF EXISTS someone", "CREATE ROLE someone")
        async with opened(empty_dsn) as database:
            await database.execute("CREATE TABLE things (id integer PRIMARY KEY)")
            for statement, kind in REFUSED:
                with pytest.raises(kind):
                    await database.execute(statement)

    async def test_a_value_that_the_driver_refuses_is_the_caller_s_fault(self, empty_dsn: str) -> None:
        async with opened(empty_dsn) as database:
            with pytest.raises(InvalidArgument):
                await database.fetch_value("SELECT $1::integer", "one")


class TestSecrets:
    @pytest.mark.parametrize(
        ("dsn", "kind"),
        [
            (f"mysql://a:{PASSWORD}@h/d", FailedPrecondition),
            (f"postgresql://a:{PASSWORD}@h:port/d", FailedPrecondition),
            (f"a:{PASSWORD}@h/d", FailedPrecondition),
            (f"postgresql://a:{PASSWORD}@127.0.0.1:1/d", Unavailable),
            (f"postgresql://a:{PASSWORD}@no-such-host.invalid/d", Unavailable),
        ],
    )
    async def test_no_error_tells_the_address(self, dsn: str, kind: type[Exception]) -> None:
        with pytest.raises(kind) as caught:
            await Database(PostgresOptions(dsn=dsn, connect_seconds=5)).open()
        assert PASSWORD not in error_text(caught.value)
        assert PASSWORD not in repr(PostgresOptions(dsn=dsn))
        assert caught.value.__suppress_context__ or PASSWORD not in str(caught.value.__cause__)

    async def test_a_wrong_user_and_a_missing_database_are_named_as_such(
        self, postgres: LocalPostgres
    ) -> None:
        with pytest.raises(Unauthenticated):
            await Database(PostgresOptions(dsn=postgres.dsn(user="stranger"))).open()
        with pytest.raises(FailedPrecondition, match="no such database"):
            await Database(PostgresOptions(dsn=postgres.dsn("nowhere"))).open()


class TestMigrations:
    async def test_steps_are_taken_once_in_order_whatever_the_schema_is_called(self, empty_dsn: str) -> None:
        async with opened(empty_dsn) as database:
            for schema in ("airunner", 'a"b; DROP TABLE x; --', "$airunner$ 'x' {schema}"):
                assert await migrate(database, schema, STEPS[:1]) == [STEPS[0]]
                assert await migrate(database, schema, STEPS) == [STEPS[1]]
                assert await migrate(database, schema, STEPS) == []
                await check_schema(database, schema, STEPS, command="x")

    async def test_two_at_once_take_each_step_once(self, empty_dsn: str) -> None:
        async with opened(empty_dsn) as one, opened(empty_dsn) as two:
            taken = await asyncio.gather(*(migrate(database, "s", STEPS) for database in (one, two)))
        assert sorted(map(len, taken)) == [0, 2]

    async def test_a_step_that_fails_leaves_the_schema_as_it_was(self, empty_dsn: str) -> None:
        broken = Migration(number=3, name="three", oldest_program=1, sql="SELECT nothing;")
        async with opened(empty_dsn) as database:
            with pytest.raises(FailedPrecondition):
                await migrate(database, "s", [*STEPS, broken])
            with pytest.raises(FailedPrecondition, match="run 'do this'"):
                await check_schema(database, "s", STEPS, command="do this")

    async def test_it_does_not_wait_for_ever_for_another_that_migrates(self, empty_dsn: str) -> None:
        async with opened(empty_dsn) as holder, opened(empty_dsn, lock_seconds=0.05) as other:
            async with holder.transaction() as connection:
                await connection.execute("SELECT pg_advisory_xact_lock($1)", 0x6169_7275_6E01)
                with pytest.raises(Unavailable):
                    await migrate(other, "s", STEPS)
            assert len(await migrate(other, "s", STEPS)) == 2

    async def test_an_unmigrated_schema_is_refused_with_the_command(self, empty_dsn: str) -> None:
        async with opened(empty_dsn) as database:
            with pytest.raises(FailedPrecondition, match="run 'airunner outbox migrate'"):
                await check_schema(database, "s", STEPS, command="airunner outbox migrate")

    async def test_a_newer_schema_is_refused_where_it_needs_a_newer_program(self, empty_dsn: str) -> None:
        later = Migration(number=3, name="three", oldest_program=2, sql="")
        breaking = Migration(number=4, name="four", oldest_program=4, sql="")
        async with opened(empty_dsn) as database:
            await migrate(database, "s", [*STEPS, later])
            await check_schema(database, "s", STEPS, command="x")
            assert await migrate(database, "s", STEPS) == []
            await migrate(database, "s", [*STEPS, later, breaking])
            for refused in (
                check_schema(database, "s", STEPS, command="x"),
                migrate(database, "s", STEPS),
            ):
                with pytest.raises(FailedPrecondition, match="needs a newer airunner"):
                    await refused

    async def test_the_script_does_the_same(self, empty_dsn: str) -> None:
        async with opened(empty_dsn) as database:
            await database.execute(render_sql("s", STEPS, ["GRANT USAGE ON SCHEMA s TO PUBLIC"]))
            await check_schema(database, "s", STEPS, command="x")
            assert await migrate(database, "s", STEPS) == []


class Heard:
    def __init__(self, dsn: str) -> None:
        self.payloads: list[tuple[str, str]] = []
        self.gaps = 0
        options = PostgresOptions(dsn=dsn, application_name="heard")
        self.listener = Listener(
            options,
            ("news", "olds"),
            on_payload=lambda channel, payload: self.payloads.append((channel, payload)),
            on_gap=self.note_gap,
            clock=SystemClock(),
            policy=QUICK,
        )

    def note_gap(self) -> None:
        self.gaps += 1


class TestListener:
    async def test_payloads_are_handed_on_and_a_lost_connection_is_told(self, empty_dsn: str) -> None:
        heard = Heard(empty_dsn)
        heard.listener.start()
        async with opened(empty_dsn) as database:
            await until(lambda: heard.gaps == 1)
            await database.execute("SELECT pg_notify('news', 'one'), pg_notify('olds', 'two')")
            await until(lambda: len(heard.payloads) == 2)
            await database.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE application_name = 'heard listener'"
            )
            await until(lambda: heard.gaps == 2)
            await database.execute("SELECT pg_notify('news', 'three')")
            await until(lambda: len(heard.payloads) == 3)
        await heard.listener.stop()
        await heard.listener.stop()
        assert heard.payloads == [("news", "one"), ("olds", "two"), ("news", "three")]
        assert not heard.listener.is_connected

    async def test_an_error_of_who_is_told_ends_nothing(self, empty_dsn: str) -> None:
        heard = Heard(empty_dsn)

        def fail() -> None:
            heard.gaps += 1
            raise RuntimeError

        heard.listener._on_gap = fail
        with capture_logs() as logs:
            heard.listener.start()
            async with opened(empty_dsn) as database:
                await until(lambda: heard.gaps == 1)
                await database.execute("SELECT pg_notify('news', 'one')")
                await until(lambda: len(heard.payloads) == 1)
        await heard.listener.stop()
        assert "postgres.listener_failed" in [entry["event"] for entry in logs]

    async def test_a_connection_that_is_silent_is_given_up(
        self, empty_dsn: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("airunner.postgres.listening.CHECK_SECONDS", 0.05)
        monkeypatch.setattr("airunner.postgres.listening._ANSWER_SECONDS", 0.2)
        heard = Heard(empty_dsn)
        heard.listener.start()
        async with opened(empty_dsn) as database:
            await until(lambda: heard.gaps == 1)
            pid = await database.fetch_value(
                "SELECT pid FROM pg_stat_activity WHERE application_name = 'heard listener'"
            )
            os.kill(pid, signal.SIGSTOP)
            try:
                await until(lambda: heard.gaps == 2)
            finally:
                os.kill(pid, signal.SIGCONT)
        await heard.listener.stop()

    async def test_it_waits_for_a_server_that_is_away(self, tmp_path: Path) -> None:
        heard = Heard(f"postgresql://a@/d?host={tmp_path}")
        with capture_logs() as logs:
            heard.listener.start()
            await until(lambda: len(logs) > 2)
        await heard.listener.stop()
        assert {entry["event"] for entry in logs} == {"postgres.listener_away"}


class TestLocalServer:
    @pytest.mark.slow
    async def test_it_ends_with_whoever_started_it(self, tmp_path: Path) -> None:
        program = (
            "import sys, time; from airunner.local.postgres import LocalPostgres; "
            "server = LocalPostgres().start(); "
            "print((server.folder / 'data' / 'postmaster.pid').read_text().split()[0], server.folder, "
            "flush=True); time.sleep(600)"
        )
        with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
            assert parent.stdout
            pid, folder = (await asyncio.to_thread(parent.stdout.readline)).split()
            parent.kill()
            await until_gone(int(pid))
        await asyncio.to_thread(subprocess.run, ["rm", "-rf", folder], check=True)

    def test_a_folder_without_programs_is_refused_with_what_to_do(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AIRUNNER_TEST_POSTGRES_BIN", str(tmp_path))
        with pytest.raises(PostgresMissing, match="local-postgres"):
            find_binaries()
