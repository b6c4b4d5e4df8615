"""Copies of a data folder, made beside a running server and put back without one.

A copy is the database, and beside it, as `NAME.token.key`, the key that signs task tokens. With the key,
workers that held jobs when the copy was made can still finish them after it is put back.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from airunner.domain.errors import FailedPrecondition
from airunner.stores.sqlite.migrations import is_current
from airunner.stores.sqlite.schema import connect
from airunner.stores.sqlite.store import DATABASE, TOKEN_KEY, lock_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

_BESIDE_THE_DATABASE = ("-wal", "-shm")


def back_up(directory: Path, target: Path) -> bool:
    """Copy the database, and the token key if the folder has one, into new files; return whether it has.

    A server may be writing meanwhile. Each file appears whole or not at all, the key after the database, and
    only this user can read it.
    """
    source, key = directory / DATABASE, directory / TOKEN_KEY
    if not source.exists():
        raise FailedPrecondition(f"there is no database in {directory}")
    for path in (target, _key_of(target)):
        if path.exists():
            raise FailedPrecondition(f"{path} exists already")
    has_key = key.exists()
    with _draft(target) as copy:
        with closing(connect(source, read_only=True)) as connection:
            _copy(connection, copy)
        _put(copy, target)
    if has_key:
        _write(_key_of(target), key.read_bytes())
    return has_key


def restore(directory: Path, backup: Path, *, force: bool = False) -> bool:
    """Make a copy the store of a folder; return whether its token key came along.

    Refused while a server has the folder, where there is a store unless `force` says to replace it, and if
    the copy is damaged or not one of ours: then the folder is as it was. The database comes last, so whoever
    is killed before the end does it again.
    """
    if not backup.is_file():
        raise FailedPrecondition(f"there is no backup {backup}")
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    database = directory / DATABASE
    with lock_folder(directory), _draft(database) as copy:
        if database.exists() and not force:
            raise FailedPrecondition(f"there is a store in {directory} already; --force replaces it")
        _copy_checked(backup, copy)
        key = _key_of(backup)
        has_key = key.is_file()
        if has_key:
            _write(directory / TOKEN_KEY, key.read_bytes())
        _remove_log(database)
        _put(copy, database)
    return has_key


def _key_of(backup: Path) -> Path:
    return backup.with_name(f"{backup.name}.{TOKEN_KEY}")


def _copy_checked(backup: Path, copy: Path) -> None:
    try:
        with closing(_open_backup(backup)) as connection:
            _copy(connection, copy)
        with closing(sqlite3.connect(copy)) as connection:
            (verdict,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
            ours = connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'jobs'").fetchone()[0]
            is_current(connection)
    except sqlite3.Error as error:
        raise FailedPrecondition(f"{backup} cannot be used: {error}") from error
    if verdict != "ok":
        raise FailedPrecondition(f"{backup} is damaged: {verdict}")
    if not ours:
        raise FailedPrecondition(f"{backup} is not a copy of a store")


def _open_backup(backup: Path) -> sqlite3.Connection:
    # A log beside it belongs to it; without one nothing changes the file, and its folder may be read-only.
    mode = "mode=ro" if Path(f"{backup}-wal").exists() else "mode=ro&immutable=1"
    return sqlite3.connect(f"file:{quote(str(backup.absolute()))}?{mode}", uri=True)


def _copy(connection: sqlite3.Connection, copy: Path) -> None:
    with closing(sqlite3.connect(copy)) as target:
        connection.backup(target)


def _remove_log(database: Path) -> None:
    """Take the log of the store that is replaced away: the new one would read it as its own.

    First it goes into its file, so that until the very end the old store is whole.
    """
    if database.exists():
        with suppress(sqlite3.Error), closing(connect(database)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for suffix in _BESIDE_THE_DATABASE:
        Path(f"{database}{suffix}").unlink(missing_ok=True)


@contextmanager
def _draft(target: Path) -> Iterator[Path]:
    """Yield an empty file of this user's beside the target; if it is there at the end, it is removed."""
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    os.close(handle)
    try:
        yield Path(name)
    finally:
        for suffix in ("", *_BESIDE_THE_DATABASE):
            Path(f"{name}{suffix}").unlink(missing_ok=True)


def _write(target: Path, content: bytes) -> None:
    with _draft(target) as draft:
        draft.write_bytes(content)
        _put(draft, target)


def _put(draft: Path, target: Path) -> None:
    """Give a file its name, once it is on disk."""
    _sync(draft)
    draft.replace(target)
    _sync(target.parent)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
