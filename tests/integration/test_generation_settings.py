"""The concurrency of generation workers as a run-time setting, kept in the application's database."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from airunner import telemetry
from airunner.app import build_server
from airunner.cli.main import execute
from airunner.config import load_settings
from airunner.domain.clock import SystemClock
from airunner.domain.errors import InvalidArgument
from airunner.generation.app_settings import AppSettings
from airunner.generation.concurrency import Concurrency
from airunner.postgres.pool import Database, PostgresOptions
from airunner.services.settings.registry import Home
from airunner.stores.memory import MemoryStore
from airunner.stores.settings import MAX_CHANGES
from airunner.testing.factories import make_services
from tests.support.postgres import rows_of
from tests.support.serving import serve

NAME = "gen_worker_concurrency"
SIZE = "execution.batching.max_batch_size"


async def test_the_setting_overrides_the_configuration_both_ways(database: Database, dsn: str) -> None:
    home = AppSettings(lambda: Database(PostgresOptions(dsn=dsn)), "airunner")
    concurrency = Concurrency(database, "airunner", 5)
    await concurrency.run_once()
    assert (concurrency.current, await home.read_settings([NAME])) == (5, {})
    for value in (8, 2):
        await home.change_setting(NAME, str(value), by="ops", now=1_000 * value)
        await concurrency.run_once()
        assert concurrency.current == value
        assert telemetry.generation_concurrency.read() == {(): value}
    unset = await home.change_setting(NAME, None, by="ops", now=9_000)
    assert await home.change_setting(NAME, None, by="ops", now=10_000) == unset
    await concurrency.run_once()
    assert concurrency.current == 5
    (stored,) = (await home.read_settings([NAME])).values()
    assert [(change.old_value, change.value) for change in stored.changes] == [
        ("2", None),
        ("8", "2"),
        (None, "8"),
    ]
    assert (stored.changes[0].changed_by, stored.changes[0].changed_at) == ("ops", 9_000)


async def test_a_server_of_the_database_sets_it_for_workers(
    database: Database, dsn: str, tmp_path: Path
) -> None:
    flags = {"postgres.dsn": dsn, "data_dir": str(tmp_path), "generation.concurrency": 4}
    settings = build_server(load_settings(environ={}, flags=flags).settings)._services.settings
    concurrency = Concurrency(database, "airunner", 4)
    setting = await settings.set_setting(NAME, "8")
    await concurrency.run_once()
    assert (setting.value, setting.configured, concurrency.current) == ("8", "4", 8)
    for refused in ("0", "11", "many"):
        with pytest.raises(InvalidArgument, match="from 1 to 10"):
            await settings.set_setting(NAME, refused)
    assert not (await settings.unset_setting(NAME)).is_set
    await concurrency.run_once()
    assert concurrency.current == 4


async def test_while_the_database_is_away_the_others_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock, options = SystemClock(), PostgresOptions(dsn=f"postgresql://u:secret@/d?host={tmp_path}")
    services = make_services(MemoryStore(clock), clock)
    home = AppSettings(lambda: Database(options), "airunner")
    services.settings.add_home(Home.POSTGRES, home, {NAME: 4})
    async with services, serve(services) as url:
        monkeypatch.setenv("AIRUNNER_SERVER", url)

        async def settings(*arguments: str) -> tuple[int, str, str]:
            code = await asyncio.to_thread(execute, ["settings", *arguments])
            return code, *capsys.readouterr()

        assert (await settings("set", SIZE, "7"))[0] == 0
        code, listed, told = await settings("list")
        rows = {line.split("\t")[0]: line.split("\t")[1:3] for line in listed.splitlines()}
        assert (code, rows[SIZE], rows[NAME]) == (125, ["7", "50"], ["?", "4"])
        assert told.startswith(f"airunner: {NAME} could not be read: PostgreSQL")
        assert "secret" not in told
        code, listed, _ = await settings("list", "--json")
        objects = {entry["name"]: entry for entry in map(json.loads, listed.splitlines())}
        assert (code, objects[SIZE]["unread_reason"], objects[NAME]["value"]) == (125, "", "")
        assert objects[NAME]["unread_reason"].startswith("PostgreSQL")
        assert (await settings("get", SIZE))[:2] == (0, "7\n")
        code, printed, told = await settings("get", NAME)
        assert (code, printed) == (125, "")
        assert f"{NAME} could not be read" in told


async def test_what_is_written_by_hand_and_makes_no_sense_changes_nothing(database: Database) -> None:
    concurrency = Concurrency(database, "airunner", 5)
    with capture_logs() as logs:
        for value in ("7", "11", "0", '"many"', "[]", "null", "true", "2.5"):
            await database.execute(
                "INSERT INTO airunner.app_settings VALUES ($1, $2::text::jsonb, 'me', now()) "
                "ON CONFLICT (name) DO UPDATE SET value = EXCLUDED.value",
                NAME,
                value,
            )
            await concurrency.run_once()
            await concurrency.run_once()
            assert concurrency.current == (5 if value == "null" else 7), value
            if value == "null":
                concurrency.current = 7
    assert [entry["event"] for entry in logs if entry["log_level"] == "error"] == ["setting.refused"] * 6


async def test_after_a_restart_the_last_good_one_is_the_last_change(database: Database, dsn: str) -> None:
    home = AppSettings(lambda: Database(PostgresOptions(dsn=dsn)), "airunner")
    await home.change_setting(NAME, "8", by="ops", now=1_000)
    await database.execute("UPDATE airunner.app_settings SET value = '99'")
    restarted = Concurrency(database, "airunner", 5)
    with capture_logs() as logs:
        await restarted.run_once()
        await restarted.run_once()
    assert restarted.current == 8
    assert [(entry["event"], entry["kept"]) for entry in logs if entry["log_level"] == "error"] == [
        ("setting.refused", 8)
    ]
    await database.execute("UPDATE airunner.app_settings_history SET new_value = '\"many\"'")
    neither = Concurrency(database, "airunner", 5)
    await neither.run_once()
    assert neither.current == 5


async def test_the_last_hundred_changes_are_kept(database: Database, dsn: str) -> None:
    async with Database(PostgresOptions(dsn=dsn)) as opened:
        await opened.execute(
            "INSERT INTO airunner.app_settings_history (name, new_value, by, at) "
            "SELECT $1, to_jsonb('1'::text), 'ops', now() FROM generate_series(1, 150)",
            NAME,
        )
    home = AppSettings(lambda: Database(PostgresOptions(dsn=dsn)), "airunner")
    stored = await home.change_setting(NAME, "3", by="ops", now=1_000)
    assert len(stored.changes) == MAX_CHANGES
    assert len(await rows_of(database, "number", "app_settings_history")) == MAX_CHANGES
