"""Copies of a data folder, and how they are put back: whole, checked, or not at all."""

from __future__ import annotations

import shutil
import sqlite3
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from airunner.domain.errors import FailedPrecondition
from airunner.domain.listing import JobQuery
from airunner.services.composition import Services
from airunner.stores.sqlite import backup as backup_module
from airunner.stores.sqlite.backup import back_up, restore
from airunner.stores.sqlite.migrations import MIGRATIONS
from airunner.stores.sqlite.store import DATABASE, TOKEN_KEY, SqliteStore
from airunner.testing.clock import ManualClock
from airunner.testing.factories import make_request, make_services

KEY = b"0123456789abcdef" * 4


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[Services]:
    clock = ManualClock()
    async with make_services(SqliteStore(folder, clock), clock) as services:
        yield services


async def count(folder: Path) -> int:
    async with opened(folder) as services:
        return len((await services.jobs.list_jobs(JobQuery(page_size=500))).jobs)


async def make_store(folder: Path, jobs: int, key: bytes = b"") -> Path:
    async with opened(folder) as services:
        await services.jobs.enqueue_jobs([make_request() for _ in range(jobs)])
    if key:
        (folder / TOKEN_KEY).write_bytes(key)
    return folder


@pytest.fixture
async def backup(tmp_path: Path) -> Path:
    """A copy of a store with three jobs and a key."""
    target = tmp_path / "copies" / "monday.db"
    target.parent.mkdir()
    assert back_up(await make_store(tmp_path / "data", 3, KEY), target)
    return target


def contents(folder: Path) -> dict[str, bytes]:
    """All files of a folder but its lock, which may come into being."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "airunner.lock"}


async def test_a_backup_is_two_files_of_its_user(backup: Path) -> None:
    assert sorted(path.name for path in backup.parent.iterdir()) == ["monday.db", "monday.db.token.key"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in backup.parent.iterdir()} == {0o600}
    assert backup.with_name("monday.db.token.key").read_bytes() == KEY


async def test_without_a_key_a_backup_is_one_file(tmp_path: Path) -> None:
    assert not back_up(await make_store(tmp_path / "data", 1), tmp_path / "copy.db")
    assert not list(tmp_path.glob("*.key"))
    assert not list(tmp_path.glob(".copy*"))
    assert not restore(tmp_path / "new", tmp_path / "copy.db")
    assert await count(tmp_path / "new") == 1


@pytest.mark.parametrize("name", ["monday.db", "monday.db.token.key"])
async def test_a_backup_replaces_nothing(backup: Path, name: str) -> None:
    for path in backup.parent.iterdir():
        if path.name != name:
            path.unlink()
    before = contents(backup.parent)
    with pytest.raises(FailedPrecondition, match=f"{name} exists already"):
        back_up(backup.parents[1] / "data", backup)
    assert contents(backup.parent) == before


async def test_a_backup_that_fails_leaves_nothing(
    backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(backup_module, "_copy", fail)
    with pytest.raises(OSError, match="No space"):
        back_up(tmp_path / "data", tmp_path / "copies" / "tuesday.db")
    assert not list(backup.parent.glob("*tuesday*"))
    assert not list(backup.parent.glob(".*"))


@pytest.mark.parametrize("name", ["new", "a/b/new", "50% & more?#"])
async def test_a_backup_is_restored_into_a_new_folder(backup: Path, tmp_path: Path, name: str) -> None:
    assert restore(tmp_path / name, backup)
    assert contents(tmp_path / name) == {DATABASE: backup.read_bytes(), TOKEN_KEY: KEY}
    for path in (tmp_path / name).iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o700
    assert await count(tmp_path / name) == 3


async def test_a_backup_in_a_folder_with_an_odd_name_is_found(backup: Path, tmp_path: Path) -> None:
    odd = shutil.copytree(backup.parent, tmp_path / "100%?#") / backup.name
    assert restore(tmp_path / "new", odd)
    assert sorted(path.name for path in odd.parent.iterdir()) == ["monday.db", "monday.db.token.key"]


async def test_a_store_is_replaced_by_force_alone(backup: Path, tmp_path: Path) -> None:
    other = await make_store(tmp_path / "other", 1, b"another key")
    before = contents(other)
    with pytest.raises(FailedPrecondition, match="--force"):
        restore(other, backup)
    assert contents(other) == before
    assert restore(other, backup, force=True)
    assert (other / TOKEN_KEY).read_bytes() == KEY
    assert await count(other) == 3


async def test_the_log_of_the_replaced_store_is_not_read_as_the_new_one_s(
    backup: Path, tmp_path: Path
) -> None:
    other = await make_store(tmp_path / "other", 1)
    killed = tmp_path / "killed"
    async with opened(other) as services:
        await services.jobs.enqueue_jobs([make_request() for _ in range(20)])
        shutil.copytree(other, killed)  # what kill -9 leaves: a log that is not yet in its file
    assert (killed / f"{DATABASE}-wal").stat().st_size > 0
    restore(killed, backup, force=True)
    assert not (killed / f"{DATABASE}-wal").exists()
    assert await count(killed) == 3


async def test_a_folder_with_a_live_server_is_left_alone(backup: Path, tmp_path: Path) -> None:
    async with opened(tmp_path / "other") as services:
        for force in (False, True):
            with pytest.raises(FailedPrecondition, match="another server uses"):
                restore(tmp_path / "other", backup, force=force)
        await services.jobs.enqueue_jobs([make_request()])
    assert await count(tmp_path / "other") == 1


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-4096])


def _spoil(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[4096 * 2 : 4096 * 3] = b"\xff" * 4096
    path.write_bytes(content)


def _of_the_future(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")


def _of_somebody_else(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE songs (title TEXT)")


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (_truncate, "malformed|damaged"),
        (_spoil, "malformed|damaged"),
        (lambda path: path.write_bytes(b"no database at all" * 500), "not a database"),
        (lambda path: path.write_bytes(b""), "not a copy of a store"),
        (_of_the_future, "this airunner knows up to"),
        (_of_somebody_else, "not a copy of a store"),
        (Path.unlink, "there is no backup"),
    ],
)
async def test_what_is_no_good_backup_changes_nothing(
    backup: Path, tmp_path: Path, harm: Callable[[Path], None], reason: str
) -> None:
    harm(backup)
    other = await make_store(tmp_path / "other", 1, b"another key")
    before = contents(other)
    with pytest.raises(FailedPrecondition, match=reason):
        restore(other, backup, force=True)
    assert contents(other) == before
    assert await count(other) == 1


async def test_a_restore_that_is_cut_short_can_be_done_again(
    backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(backup_module, "_remove_log", die)
        with pytest.raises(KeyboardInterrupt):
            restore(tmp_path / "new", backup)
    assert not (tmp_path / "new" / DATABASE).exists()
    assert restore(tmp_path / "new", backup)
    assert await count(tmp_path / "new") == 3
