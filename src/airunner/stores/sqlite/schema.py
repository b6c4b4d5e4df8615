"""Connections to the file: how it is opened, and what a row may have at most."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

if TYPE_CHECKING:
    from pathlib import Path

BUSY_SECONDS = 10
# Parameters beyond this size live outside the row that every heartbeat and publish rewrites.
INLINE_PARAMS_BYTES = 4096

_OF_WRITERS: Final = (
    "journal_mode = WAL",
    "synchronous = FULL",
    # What was deleted is overwritten: parameters may hold secrets.
    "secure_delete = ON",
    # Numbers that are kept for a process need no file.
    "temp_store = MEMORY",
    "wal_autocheckpoint = 4000",
    "journal_size_limit = 67108864",
)


class SqliteConnection(sqlite3.Connection):
    """A connection whose statements find the result of a row by `result_of(id)`, in `results`.

    So one statement can save all jobs that end alike, though each with a result of its own.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.results: dict[int, bytes] = {}
        self.create_function("result_of", 1, self.results.get)


def connect(path: Path, *, read_only: bool = False) -> SqliteConnection:
    """Open the file for one thread. A writer's commits are on disk when they return."""
    connection = sqlite3.connect(
        f"file:{quote(str(path))}?mode={'ro' if read_only else 'rwc'}",
        uri=True,
        isolation_level=None,
        timeout=BUSY_SECONDS,
        check_same_thread=False,
        cached_statements=256,
        factory=SqliteConnection,
    )
    try:
        for pragma in (*(() if read_only else _OF_WRITERS), "cache_size = -32768"):
            connection.execute(f"PRAGMA {pragma}")
    except BaseException:  # the file is no database, or the disk is full
        connection.close()
        raise
    return connection
