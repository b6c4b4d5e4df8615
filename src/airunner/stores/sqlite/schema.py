"""The tables, and how an older file becomes a current one."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any, Final

from airunner.domain.errors import FailedPrecondition

if TYPE_CHECKING:
    from pathlib import Path

BUSY_SECONDS = 10
# Parameters beyond this size live outside the row that every heartbeat and publish rewrites.
INLINE_PARAMS_BYTES = 4096

# Each entry brings a file from the version before to its own number, counted from 1.
MIGRATIONS = (
    """
    CREATE TABLE jobs (
        id INTEGER PRIMARY KEY,
        job_id BLOB NOT NULL,
        queue TEXT NOT NULL,
        state INTEGER NOT NULL,
        attempt INTEGER NOT NULL,
        handed_back INTEGER NOT NULL,
        max_attempts INTEGER NOT NULL,
        due_at INTEGER NOT NULL,
        updated_at INTEGER NOT NULL,
        visible_until INTEGER NOT NULL,
        visibility_seconds INTEGER NOT NULL,
        cancel_requested INTEGER NOT NULL,
        worker_id TEXT NOT NULL,
        instance_id TEXT NOT NULL,
        last_sequence INTEGER NOT NULL,
        last_error TEXT NOT NULL,
        completed_by INTEGER NOT NULL,
        finished_at INTEGER,
        -- Derived from the columns above: claimable already, claimable from then on, ended then.
        ready INTEGER NOT NULL,
        wake_at INTEGER,
        expires_at INTEGER,
        created_at INTEGER NOT NULL,
        principal TEXT NOT NULL,
        request_id BLOB NOT NULL,
        fingerprint BLOB NOT NULL,
        retried_from TEXT NOT NULL,
        execution BLOB NOT NULL,
        result BLOB,
        params BLOB
    );
    CREATE UNIQUE INDEX jobs_by_job_id ON jobs (job_id);
    CREATE UNIQUE INDEX jobs_by_request ON jobs (request_id, principal);
    CREATE INDEX jobs_by_queue_and_state ON jobs (queue, state, id);
    CREATE INDEX jobs_ready ON jobs (queue, id) WHERE ready = 1;
    CREATE INDEX jobs_waking ON jobs (queue, wake_at) WHERE wake_at IS NOT NULL;
    CREATE INDEX jobs_expiring ON jobs (expires_at) WHERE expires_at IS NOT NULL;
    CREATE INDEX jobs_finished ON jobs (finished_at) WHERE finished_at IS NOT NULL;
    CREATE TABLE large_params (
        id INTEGER PRIMARY KEY REFERENCES jobs (id),
        params BLOB NOT NULL
    );
    CREATE TABLE queues (
        name TEXT PRIMARY KEY,
        paused INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE job_events (
        id INTEGER PRIMARY KEY,
        job INTEGER NOT NULL REFERENCES jobs (id),
        attempt INTEGER NOT NULL,
        first_sequence INTEGER NOT NULL,
        last_sequence INTEGER NOT NULL,
        first_timestamp INTEGER NOT NULL,
        last_timestamp INTEGER NOT NULL,
        event_type INTEGER NOT NULL,
        stored_at INTEGER NOT NULL,
        payload BLOB NOT NULL
    );
    CREATE UNIQUE INDEX job_events_in_order ON job_events (job, attempt, first_sequence);
    CREATE TABLE api_keys (
        key_id TEXT PRIMARY KEY,
        name TEXT NOT NULL,
        secret_hash BLOB NOT NULL,
        scopes TEXT NOT NULL,
        queues TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        revoked_at INTEGER NOT NULL
    ) WITHOUT ROWID;
    """,
)

_OF_WRITERS: Final = (
    "journal_mode = WAL",
    "synchronous = FULL",
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
        f"file:{path}?mode={'ro' if read_only else 'rwc'}",
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


def migrate(connection: sqlite3.Connection) -> None:
    """Bring the file to the current version, whole or not at all; refuse one from the future."""
    version = _version(connection)
    if version > len(MIGRATIONS):
        raise FailedPrecondition(
            f"the database has version {version}, this airunner knows up to {len(MIGRATIONS)}"
        )
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = _version(connection)
        for number, script in enumerate(MIGRATIONS[version:], start=version + 1):
            for statement in script.split(";"):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {number}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def _version(connection: sqlite3.Connection) -> int:
    number: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return number
