"""The tables, and how an older file becomes a current one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airunner.codec.jobs import decode_params
from airunner.domain.errors import FailedPrecondition

if TYPE_CHECKING:
    import sqlite3

_JOB_COLUMNS = """
    id, job_id, queue, state, attempt, handed_back, max_attempts, due_at, updated_at, visible_until,
    visibility_seconds, cancel_requested, worker_id, instance_id, last_sequence, last_error,
    completed_by, finished_at, ready, wake_at, expires_at, created_at, principal, request_id,
    fingerprint, retried_from, execution, result, params
"""
# Each entry brings a file from the version before to its own number, counted from 1, statement by statement.
MIGRATIONS = (
    (
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
        )
        """,
        "CREATE UNIQUE INDEX jobs_by_job_id ON jobs (job_id)",
        "CREATE UNIQUE INDEX jobs_by_request ON jobs (request_id, principal)",
        "CREATE INDEX jobs_by_queue_and_state ON jobs (queue, state, id)",
        "CREATE INDEX jobs_ready ON jobs (queue, id) WHERE ready = 1",
        "CREATE INDEX jobs_waking ON jobs (queue, wake_at) WHERE wake_at IS NOT NULL",
        "CREATE INDEX jobs_expiring ON jobs (expires_at) WHERE expires_at IS NOT NULL",
        "CREATE INDEX jobs_finished ON jobs (finished_at) WHERE finished_at IS NOT NULL",
        """
        CREATE TABLE large_params (
            id INTEGER PRIMARY KEY REFERENCES jobs (id),
            params BLOB NOT NULL
        )
        """,
        """
        CREATE TABLE queues (
            name TEXT PRIMARY KEY,
            paused INTEGER NOT NULL
        ) WITHOUT ROWID
        """,
        """
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
        )
        """,
        "CREATE UNIQUE INDEX job_events_in_order ON job_events (job, attempt, first_sequence)",
        """
        CREATE TABLE api_keys (
            key_id TEXT PRIMARY KEY,
            name TEXT NOT NULL,
            secret_hash BLOB NOT NULL,
            scopes TEXT NOT NULL,
            queues TEXT NOT NULL,
            created_at INTEGER NOT NULL,
            revoked_at INTEGER NOT NULL
        ) WITHOUT ROWID
        """,
    ),
    (
        # A number that was purged is never given to another job, whose readers would see its events.
        """
        CREATE TABLE new_jobs (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
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
            silent_attempts INTEGER NOT NULL DEFAULT 0,
            cancelled_by TEXT NOT NULL DEFAULT '',
            cancelled_at INTEGER NOT NULL DEFAULT 0,
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
            params BLOB,
            -- What a worker must have to do the job, as `JobParams.handler_key`.
            handler TEXT NOT NULL
        )
        """,
        f"INSERT INTO new_jobs ({_JOB_COLUMNS}, handler) SELECT {_JOB_COLUMNS}, handler_of(coalesce("
        "params, (SELECT large.params FROM large_params large WHERE large.id = jobs.id))) FROM jobs",
        "DROP TABLE jobs",
        "ALTER TABLE new_jobs RENAME TO jobs",
        "CREATE UNIQUE INDEX jobs_by_job_id ON jobs (job_id)",
        "CREATE UNIQUE INDEX jobs_by_request ON jobs (request_id, principal)",
        "CREATE INDEX jobs_by_queue_and_state ON jobs (queue, state, id)",
        "CREATE INDEX jobs_ready ON jobs (queue, id) WHERE ready = 1",
        "CREATE INDEX jobs_ready_by_handler ON jobs (queue, handler, id) WHERE ready = 1",
        "CREATE INDEX jobs_waking ON jobs (queue, wake_at) WHERE wake_at IS NOT NULL",
        "CREATE INDEX jobs_expiring ON jobs (expires_at) WHERE expires_at IS NOT NULL",
        "CREATE INDEX jobs_finished ON jobs (finished_at) WHERE finished_at IS NOT NULL",
        "ALTER TABLE queues ADD COLUMN paused_by TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE queues ADD COLUMN paused_at INTEGER NOT NULL DEFAULT 0",
        # Jobs whose rows are gone, and whose events follow step by step.
        "CREATE TABLE purged_jobs (id INTEGER PRIMARY KEY)",
    ),
    (
        # `value` is NULL while the setting is not set; `changes` is JSON, the newest first.
        """
        CREATE TABLE settings (
            name TEXT PRIMARY KEY,
            value TEXT,
            changes TEXT NOT NULL
        ) WITHOUT ROWID
        """,
    ),
)


def is_current(connection: sqlite3.Connection) -> bool:
    """Return whether the file has the current version; refuse one from the future."""
    version = _version(connection)
    if version > len(MIGRATIONS):
        raise FailedPrecondition(
            f"the database has version {version}, this airunner knows up to {len(MIGRATIONS)}"
        )
    return version == len(MIGRATIONS)


def migrate(connection: sqlite3.Connection) -> None:
    """Bring the file to the current version, whole or not at all. Only for whoever owns the file."""
    if is_current(connection):
        return
    connection.create_function("handler_of", 1, _handler_of)
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = _version(connection)
        for number, statements in enumerate(MIGRATIONS[version:], start=version + 1):
            for statement in statements:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {number}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _handler_of(params: bytes) -> str:
    """Return the handler key of a job's parameters; those that cannot be read have none."""
    try:
        return decode_params(params).handler_key
    except Exception:  # noqa: BLE001  whatever is wrong with the bytes
        return ""


def _version(connection: sqlite3.Connection) -> int:
    number: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return number
