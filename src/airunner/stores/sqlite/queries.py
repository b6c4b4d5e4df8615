"""The reads, each a function of a connection that holds no transaction when it returns."""

from __future__ import annotations

import itertools
import sys
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from airunner.domain.answers import QueueStats
from airunner.domain.errors import JobNotFound
from airunner.domain.job import JOB_STATES, Job, JobState
from airunner.domain.listing import JobPage, JobQuery, abridged
from airunner.stores.pages import (
    RUNNING_AT_ONCE,
    PageBounds,
    cut_page,
    keys_wanted,
    make_cursor,
    make_queue_cursor,
    parse_cursor,
    parse_queue_cursor,
)
from airunner.stores.records import ApiKey, EventPage, EventQuery, RunningJob, RunningPage, fill_page
from airunner.stores.sqlite import rows

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Iterator

    from airunner.domain.lifecycle import Lifecycle

# From the greatest first sequence that is not beyond the position on: its batch may contain the next event.
_EVENTS_AFTER = f"""
    SELECT {rows.EVENT} FROM job_events
    WHERE job = :job
    AND (attempt, first_sequence) >= (
        :attempt,
        coalesce(
            (SELECT max(first_sequence) FROM job_events
             WHERE job = :job AND attempt = :attempt AND first_sequence <= :sequence + 1),
            :sequence + 1
        )
    )
    AND NOT (attempt = :attempt AND last_sequence <= :sequence)
    AND last_timestamp >= :from_timestamp
    AND (:only_attempt = 0 OR attempt = :only_attempt)
    ORDER BY attempt, first_sequence LIMIT :limit
"""
# From one name to the next in the index, since there are far fewer queues than jobs.
_USED_QUEUES = """
    WITH RECURSIVE used (name) AS (
        SELECT min(queue) FROM jobs WHERE queue > :after
        UNION ALL
        SELECT (SELECT min(queue) FROM jobs WHERE queue > name) FROM used WHERE name IS NOT NULL
        LIMIT :limit
    )
    SELECT name FROM used WHERE name IS NOT NULL
"""
_JOBS_OF = "SELECT id FROM jobs WHERE queue = ? AND state = ? AND id > ? AND id < ? ORDER BY id DESC LIMIT ?"
_RUNNING = """
    SELECT id, job_id, attempt, instance_id FROM jobs
    WHERE queue = ? AND state = ? AND id > ? ORDER BY id LIMIT ?
"""


def get_job(connection: sqlite3.Connection, job_id: str, queues: Collection[str] = ()) -> Job:
    """Return a job, one of `queues` if given, or raise JobNotFound."""
    return rows.job_from_row(_find(connection, rows.JOB, job_id, queues))


def get_life(connection: sqlite3.Connection, job_id: str, queues: Collection[str] = ()) -> Lifecycle:
    """Return the life of a job, one of `queues` if given, or raise JobNotFound."""
    return rows.life_from_row(_find(connection, rows.LIFE, job_id, queues))


def list_jobs(
    connection: sqlite3.Connection, query: JobQuery, bounds: PageBounds, queues: Collection[str] = ()
) -> JobPage:
    """Return jobs, newest first; where queues are given, only jobs of these."""
    wanted = keys_wanted(query, bounds)
    with _snapshot(connection):
        searched = [query.queue] if query.queue else queues
        page = cut_page(_newest(connection, query, searched, wanted), query, bounds)
        # One by one: all of them whole may be more than there is memory for.
        jobs = [abridged(_job_of(connection, row_id)) for row_id in page.keys]
    return JobPage(
        jobs=jobs,
        last_page=page.last_page,
        next_cursor=make_cursor(page.keys[-1]) if page.is_followed else "",
    )


def running_jobs(connection: sqlite3.Connection, cursor: str) -> RunningPage:
    """Return a page of the jobs that run: queue by queue, since there is one index for jobs of a state."""
    after, begin = parse_queue_cursor(cursor) if cursor else (0, "")
    found: list[tuple[str, int, RunningJob]] = []
    with _snapshot(connection):
        for queue in sorted(name for name in queue_names(connection) if name >= begin):
            values = (queue, int(JobState.RUNNING), after if queue == begin else 0, RUNNING_AT_ONCE + 1)
            for row_id, job_id, attempt, instance_id in connection.execute(_RUNNING, values):
                found.append((queue, row_id, RunningJob(rows.uuid_text(job_id), attempt, instance_id)))
            if len(found) > RUNNING_AT_ONCE:
                queue_of_last, last, _ = found[RUNNING_AT_ONCE - 1]
                jobs = [job for _, _, job in found[:RUNNING_AT_ONCE]]
                return RunningPage(jobs=jobs, next_cursor=make_queue_cursor(last, queue_of_last))
    return RunningPage(jobs=[job for _, _, job in found])


def queue_names(connection: sqlite3.Connection) -> set[str]:
    """Return the names of the queues that were used."""
    statement, everything = f"{_USED_QUEUES} UNION SELECT name FROM queues", {"after": "", "limit": -1}
    return {name for (name,) in connection.execute(statement, everything)}


def list_queues(connection: sqlite3.Connection, after: str, limit: int) -> list[QueueStats]:
    """Return queues that were used, by name: the first so many whose names come after another."""
    bounds = {"after": after, "limit": limit}
    asked = connection.execute(
        """
        SELECT name, paused, paused_by, paused_at FROM queues WHERE name > :after ORDER BY name LIMIT :limit
        """,
        bounds,
    )
    known = {row[0]: row for row in asked}
    names = {name for (name,) in connection.execute(_USED_QUEUES, bounds)} | known.keys()
    return [_stats(connection, *known.get(name, (name, 0, "", 0))) for name in sorted(names)[:limit]]


def read_events(connection: sqlite3.Connection, query: EventQuery) -> EventPage:
    """Return stored events after a position, the one that contains the next sequence first."""
    # A purge between the two statements would leave a job that has ended without its events.
    with _snapshot(connection):
        row = connection.execute(
            "SELECT id, state, attempt FROM jobs WHERE job_id = ?", (rows.uuid_bytes(query.job_id),)
        ).fetchone()
        if row is None:
            raise JobNotFound
        state = rows.state_from_column(row[1])
        # Closed when the page is full: a statement that is not read to its end holds its transaction open.
        with closing(_events_after(connection, row[0], query)) as found:
            return fill_page(map(rows.event_from_row, found), query, state=state, attempt=row[2])


def find_key(connection: sqlite3.Connection, key_id: str) -> ApiKey | None:
    """Return a key, revoked or not."""
    row = connection.execute(f"SELECT {rows.KEY} FROM api_keys WHERE key_id = ?", (key_id,)).fetchone()
    return rows.key_from_row(row) if row else None


def list_keys(connection: sqlite3.Connection) -> list[ApiKey]:
    """Return all keys, oldest first."""
    found = connection.execute(f"SELECT {rows.KEY} FROM api_keys ORDER BY created_at, key_id").fetchall()
    return [rows.key_from_row(row) for row in found]


def _find(connection: sqlite3.Connection, columns: str, job_id: str, queues: Collection[str]) -> rows.Row:
    """Return the row of a job, one of `queues` if given: these columns, and its queue behind them."""
    row: rows.Row | None = connection.execute(
        f"SELECT {columns}, queue FROM jobs WHERE job_id = ?", (rows.uuid_bytes(job_id),)
    ).fetchone()
    if row is None or (queues and row[-1] not in queues):
        raise JobNotFound
    return row


def _newest(
    connection: sqlite3.Connection, query: JobQuery, queues: Collection[str], limit: int
) -> list[int]:
    """Return the rows of the newest jobs, newest first; of all queues where none are given.

    One index has the jobs of each queue and state in their order. It serves every list, so that jobs need no
    other index that each of their changes would have to write.
    """
    before = parse_cursor(query.cursor) if query.cursor else sys.maxsize
    if not queues and query.state is None:
        everything = "SELECT id FROM jobs WHERE id < ? ORDER BY id DESC LIMIT ?"
        return [row_id for (row_id,) in connection.execute(everything, (before, limit))]
    found: list[int] = []
    states = list(JOB_STATES) if query.state is None else [query.state]
    for queue, state in itertools.product(queues or queue_names(connection), states):
        # What is older than enough others is not read.
        after = found[-1] if len(found) == limit else 0
        newer = connection.execute(_JOBS_OF, (queue, int(state), after, before, limit))
        found = sorted((*found, *(row_id for (row_id,) in newer)), reverse=True)[:limit]
    return found


@contextmanager
def _snapshot(connection: sqlite3.Connection) -> Iterator[None]:
    """Let all statements of a block see the same."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _job_of(connection: sqlite3.Connection, row_id: int) -> Job:
    row = connection.execute(f"SELECT {rows.JOB} FROM jobs WHERE id = ?", (row_id,)).fetchone()
    return rows.job_from_row(row)


def _stats(
    connection: sqlite3.Connection, queue: str, paused: int, paused_by: str, paused_at: int
) -> QueueStats:
    def count(state: JobState) -> int:
        number: int = connection.execute(
            "SELECT count(*) FROM jobs WHERE queue = ? AND state = ?", (queue, int(state))
        ).fetchone()[0]
        return number

    oldest = connection.execute(
        "SELECT created_at FROM jobs WHERE queue = ? AND state = ? ORDER BY id LIMIT 1",
        (queue, int(JobState.SCHEDULED)),
    ).fetchone()
    return QueueStats(
        name=queue,
        paused=bool(paused),
        paused_by=paused_by,
        paused_at=paused_at,
        scheduled=count(JobState.SCHEDULED),
        running=count(JobState.RUNNING),
        oldest_scheduled_at=oldest[0] if oldest else 0,
    )


def _events_after(connection: sqlite3.Connection, row_id: int, query: EventQuery) -> sqlite3.Cursor:
    return connection.execute(
        _EVENTS_AFTER,
        {
            "job": row_id,
            "attempt": query.after.attempt,
            "sequence": query.after.sequence,
            "from_timestamp": query.from_timestamp,
            "only_attempt": query.only_attempt,
            "limit": query.limit,
        },
    )
