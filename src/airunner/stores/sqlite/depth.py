"""How many jobs of a queue are scheduled, known without counting them at every enqueue.

The numbers are in a temporary table of the connection that writes, and triggers of the same connection keep
them: they are part of each transaction and of each savepoint, are undone with it, and are counted anew after
a start. Only queues that were asked for have one, and where nobody asks there are no triggers either. They
are right as long as nobody else writes jobs, which the lock of the file sees to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from airunner.domain.job import JobState

if TYPE_CHECKING:
    import sqlite3

_SCHEDULED: Final = int(JobState.SCHEDULED)
_SET_UP: Final = (
    "CREATE TEMP TABLE scheduled_jobs (queue TEXT PRIMARY KEY, jobs INTEGER NOT NULL) WITHOUT ROWID",
    f"""
    CREATE TEMP TRIGGER scheduled_added AFTER INSERT ON main.jobs WHEN NEW.state = {_SCHEDULED}
    BEGIN UPDATE scheduled_jobs SET jobs = jobs + 1 WHERE queue = NEW.queue; END
    """,
    f"""
    CREATE TEMP TRIGGER scheduled_again AFTER UPDATE OF state ON main.jobs
    WHEN OLD.state <> {_SCHEDULED} AND NEW.state = {_SCHEDULED}
    BEGIN UPDATE scheduled_jobs SET jobs = jobs + 1 WHERE queue = NEW.queue; END
    """,
    f"""
    CREATE TEMP TRIGGER scheduled_no_more AFTER UPDATE OF state ON main.jobs
    WHEN OLD.state = {_SCHEDULED} AND NEW.state <> {_SCHEDULED}
    BEGIN UPDATE scheduled_jobs SET jobs = jobs - 1 WHERE queue = NEW.queue; END
    """,
    f"""
    CREATE TEMP TRIGGER scheduled_deleted AFTER DELETE ON main.jobs WHEN OLD.state = {_SCHEDULED}
    BEGIN UPDATE scheduled_jobs SET jobs = jobs - 1 WHERE queue = OLD.queue; END
    """,
)


def count_scheduled(connection: sqlite3.Connection, queue: str) -> int:
    """Return how many jobs of a queue are scheduled, in the transaction that is open."""
    if not connection.execute("SELECT 1 FROM sqlite_temp_master WHERE name = 'scheduled_jobs'").fetchone():
        for statement in _SET_UP:
            connection.execute(statement)
    known = _known(connection, queue)
    if known is None:
        connection.execute(
            "INSERT INTO scheduled_jobs "
            "SELECT :queue, count(*) FROM jobs WHERE queue = :queue AND state = :state",
            {"queue": queue, "state": _SCHEDULED},
        )
        known = _known(connection, queue)
    return known or 0


def _known(connection: sqlite3.Connection, queue: str) -> int | None:
    row = connection.execute("SELECT jobs FROM scheduled_jobs WHERE queue = ?", (queue,)).fetchone()
    return None if row is None else int(row[0])
