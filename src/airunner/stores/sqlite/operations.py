"""The writes, each a function of a transaction: read and check first, then write."""

from __future__ import annotations

import itertools
import json
from contextlib import closing
from typing import TYPE_CHECKING

from airunner.domain import lifecycle
from airunner.domain.answers import Enqueued
from airunner.domain.errors import AirunnerError, AlreadyExists, InternalError, JobNotFound, ResourceExhausted
from airunner.domain.job import Job, JobState, stored_state
from airunner.domain.splitting import split_by_count, take_by_size
from airunner.stores.records import PurgedJobs, Upkeep
from airunner.stores.sqlite import rows
from airunner.stores.sqlite.bulk import begin, insert_events
from airunner.stores.sqlite.depth import count_scheduled
from airunner.stores.sqlite.queries import queue_names

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from airunner.domain.event import EncodedEvent
    from airunner.domain.lifecycle import Lifecycle
    from airunner.stores.records import AttemptKey, Demand, NewJob, Release, Retention
    from airunner.stores.sqlite.transaction import Transaction

# How much one write may move, so that no other write waits long.
_PROMOTED_AT_ONCE = 10_000
_ENDED_AT_ONCE = 500
_PURGED_ROWS_AT_ONCE = 500
_PURGED_BYTES_AT_ONCE = 4 * 1024 * 1024


def enqueue(tx: Transaction, jobs: Sequence[NewJob], max_queued: int = 0) -> list[Enqueued | AirunnerError]:
    """Add jobs, each with its own outcome."""
    if max_queued:
        return [_enqueue_unless_full(tx, job, max_queued) for job in jobs]
    outcomes: list[Enqueued | AirunnerError] = []
    for inline, some in itertools.groupby(jobs, rows.is_inline):
        for few in split_by_count(list(some), rows.JOBS_AT_ONCE if inline else 1):
            outcomes += insert(tx, few)
    return outcomes


def insert(tx: Transaction, jobs: Sequence[NewJob]) -> list[Enqueued | AirunnerError]:
    """Insert jobs by one statement; one whose parameters are not in its row comes alone."""
    values = list(itertools.chain.from_iterable(map(rows.new_job_row, jobs)))
    inserted = tx.connection.execute(rows.insert_jobs(len(jobs)), values)
    if inserted.rowcount < len(jobs):
        added = _load_ids(tx, jobs)
        return [
            _added(tx, job, inserted.lastrowid)
            if job.job_id in added
            else _find_known(tx, job) or InternalError()
            for job in jobs
        ]
    return [_added(tx, job, inserted.lastrowid) for job in jobs]


def claim(tx: Transaction, demand: Demand, now: int) -> list[Job]:
    """Claim the oldest claimable jobs of the first queue that has any."""
    for queue in demand.queues:
        if not tx.known.is_paused(tx.connection, queue) and (jobs := _claim_in(tx, queue, demand, now)):
            return jobs
    return []


def extend(tx: Transaction, key: AttemptKey, visibility_seconds: int, now: int) -> Lifecycle:
    """Give the holder more time."""
    row_id, queue, life = _load(tx, key.job_id)
    life = lifecycle.extend(life, key.attempt, now=now, visibility_seconds=visibility_seconds)
    return _save(tx, row_id, queue, life)


def append(tx: Transaction, key: AttemptKey, events: Sequence[EncodedEvent], now: int) -> Lifecycle:
    """Store the events that continue the attempt."""
    held = tx.known.lives.take((key.job_id,)).get(key.job_id)
    if held is None or held[1].silent_attempts:
        return _append_first(tx, key, events, now)
    row_id, before = held
    life, fresh = lifecycle.append(before, key.attempt, events, now=now)
    return _save_events(tx, key.job_id, row_id, life, fresh)


def release(tx: Transaction, release: Release, now: int) -> Lifecycle:
    """Give a job back."""
    row_id, queue, life = _load(tx, release.key.job_id)
    appended, fresh = lifecycle.append(life, release.key.attempt, release.events, now=now)
    life = lifecycle.release(
        appended,
        release.key.attempt,
        now=now,
        delay_seconds=release.delay_seconds,
        unstarted=release.unstarted,
        error=release.error,
    )
    insert_events(tx, [rows.event_values(row_id, event, now) for event in fresh])
    tx.wake((queue,))
    return _save(tx, row_id, queue, life)


def cancel(tx: Transaction, job_id: str, now: int, by: str, queues: Collection[str] = ()) -> Job:
    """Cancel a job; where queues are given, one of these."""
    tx.known.lives.drop(job_id)
    row = tx.connection.execute(
        f"SELECT {rows.JOB}, jobs.id FROM jobs WHERE job_id = ?",
        (rows.uuid_bytes(job_id),),
    ).fetchone()
    if row is None:
        raise JobNotFound
    before = rows.life_from_row(row)
    job = rows.job_from_row(row, lifecycle.cancel(before, now=now, by=by))
    if queues and job.queue not in queues:
        raise JobNotFound
    if job.life is not before:
        _save(tx, row[-1], job.queue, job.life)
    return job


def pause(tx: Transaction, queue: str, by: str, now: int) -> None:
    """Stop claims from a queue; who did it first is remembered."""
    tx.connection.execute(
        "INSERT INTO queues (name, paused, paused_by, paused_at) VALUES (?, 1, ?, ?) ON CONFLICT (name) "
        "DO UPDATE SET paused = 1, paused_by = excluded.paused_by, paused_at = excluded.paused_at "
        "WHERE NOT paused",
        (queue, by, now),
    )
    tx.known.forget()


def resume(tx: Transaction, queue: str) -> None:
    """Allow claims from a queue. To resume one that nobody has used does not make one."""
    tx.connection.execute(
        "UPDATE queues SET paused = 0, paused_by = '', paused_at = 0 WHERE name = ?", (queue,)
    )
    tx.known.forget()
    tx.wake((queue,))


def survive_downtime(tx: Transaction, now: int) -> None:
    """Give every running job its whole visibility again."""
    for row_id, queue, life in _running(tx):
        _save(tx, row_id, queue, lifecycle.survive_downtime(life, now=now))


def recall(tx: Transaction, now: int) -> None:
    """Bring back visibilities that a wrong clock has given."""
    for row_id, queue, life in _running(tx):
        recalled = lifecycle.recall(life, now=now)
        if recalled is not life:
            _save(tx, row_id, queue, recalled)
            tx.wake((queue,))


def maintain(tx: Transaction, retention: Retention, now: int) -> Upkeep:
    """End what nobody may claim any more, and purge what is too old; a bounded part of it.

    One call deletes 500 rows or 4 MiB at most, so that no other write waits long for it.
    """
    ended = _end_expired(tx, now)
    purged_events = _purge_orphans(tx) or _purge_events(tx, now - retention.events_ms)
    leaves_jobs = purged_events or retention.jobs_ms is None
    purged_jobs = 0 if leaves_jobs else _purge_jobs(tx, now - (retention.jobs_ms or 0))
    return Upkeep(
        ended_jobs=ended,
        purged_jobs=purged_jobs,
        purged_events=purged_events,
        has_more=bool(ended or purged_jobs or purged_events),
    )


def purge_jobs(tx: Transaction, before: int, *, limit: int, dry_run: bool) -> PurgedJobs:
    """Purge jobs that ended until an instant, or count them. `maintain` deletes their events."""
    statement = "SELECT count(*) FROM (SELECT 1 FROM jobs WHERE finished_at <= ? LIMIT ?)"
    (found,) = tx.connection.execute(statement, (before, limit + 1)).fetchone()
    jobs = min(found, limit) if dry_run else _purge_jobs(tx, before, limit)
    return PurgedJobs(jobs=jobs, has_more=found > jobs)


def drop_secrets(tx: Transaction) -> None:
    """Remove the secret values of jobs that have just ended; what cannot be read is left as it is."""
    for row_id in tx.ended_rows:
        found = tx.connection.execute(
            "SELECT jobs.params, large.params FROM jobs LEFT JOIN large_params large ON large.id = jobs.id "
            "WHERE jobs.id = ? AND finished_at IS NOT NULL",
            (row_id,),
        ).fetchone()
        small, large = found or (None, None)
        stripped = rows.without_secrets(large if small is None else small)
        if stripped is not None:
            table = "large_params" if small is None else "jobs"
            tx.connection.execute(f"UPDATE {table} SET params = ? WHERE id = ?", (stripped, row_id))
    tx.ended_rows.clear()


def _load(tx: Transaction, job_id: str) -> tuple[int, str, Lifecycle]:
    """Return the row of a job that is about to change."""
    tx.known.lives.drop(job_id)
    row = tx.connection.execute(
        f"SELECT id, queue, {rows.LIFE} FROM jobs WHERE job_id = ?",
        (rows.uuid_bytes(job_id),),
    ).fetchone()
    if row is None:
        raise JobNotFound
    return row[0], row[1], rows.life_from_row(row[2:])


def _append_first(tx: Transaction, key: AttemptKey, events: Sequence[EncodedEvent], now: int) -> Lifecycle:
    """Store events of a job that is not known yet, or of an attempt that gave no sign before."""
    row_id, queue, before = _load(tx, key.job_id)
    life, fresh = lifecycle.append(before, key.attempt, events, now=now)
    if life.silent_attempts == before.silent_attempts:
        return _save_events(tx, key.job_id, row_id, life, fresh)
    insert_events(tx, [rows.event_values(row_id, event, now) for event in fresh])
    tx.known.lives.keep([(key.job_id, (row_id, life))])
    # The first sign of an attempt decides what its lapse costs, and so when the job wakes or expires.
    return _save(tx, row_id, queue, life)


def _save_events(
    tx: Transaction, job_id: str, row_id: int, life: Lifecycle, added: list[EncodedEvent]
) -> Lifecycle:
    if added:
        insert_events(tx, [rows.event_values(row_id, event, life.updated_at) for event in added])
        # Publishing moves no job between queues or states, so the indexes stay untouched.
        tx.connection.execute(
            "UPDATE jobs SET last_sequence = ?, updated_at = ? WHERE id = ?",
            (life.last_sequence, life.updated_at, row_id),
        )
    tx.known.lives.keep([(job_id, (row_id, life))])
    return life


def _running(tx: Transaction) -> list[tuple[int, str, Lifecycle]]:
    """Return the rows of all jobs that run, any of which may be about to change."""
    tx.known.lives.forget()
    # Queue by queue, since the index begins with it.
    found = [
        row
        for queue in queue_names(tx.connection)
        for row in tx.connection.execute(
            f"SELECT id, queue, {rows.LIFE} FROM jobs WHERE queue = ? AND state = ?",
            (queue, int(JobState.RUNNING)),
        )
    ]
    return [(row_id, queue, rows.life_from_row(tuple(life))) for row_id, queue, *life in found]


def _save(tx: Transaction, row_id: int, queue: str, life: Lifecycle) -> Lifecycle:
    tx.connection.execute(rows.SAVE_LIFE, rows.life_values(life, row_id))
    tx.known.note(queue, rows.wake_time(life))
    if life.state.terminal:
        tx.ended_rows.append(row_id)
    return life


def _enqueue_unless_full(tx: Transaction, new: NewJob, max_queued: int) -> Enqueued | AirunnerError:
    if count_scheduled(tx.connection, new.queue) >= max_queued:
        full = ResourceExhausted(f"queue {new.queue} holds its limit of {max_queued} scheduled jobs")
        return _find_known(tx, new) or full
    (outcome,) = insert(tx, [new])
    return outcome


def _added(tx: Transaction, new: NewJob, row_id: int | None) -> Enqueued:
    """Write and note what goes with a job; only of one that came alone the id of the row is known."""
    if not rows.is_inline(new):
        tx.connection.execute(
            "INSERT INTO large_params (id, params) VALUES (?, ?)", (row_id, new.params_bytes)
        )
    if new.ready:
        tx.readiness.note(new.queue, (new.params.handler_key,))
    else:
        tx.known.note(new.queue, new.due_at)
    return Enqueued(job_id=new.job_id, created_at=new.created_at, state=JobState.SCHEDULED)


def _load_ids(tx: Transaction, jobs: Sequence[NewJob]) -> set[str]:
    """Return the ids of those of the jobs that there are."""
    found = tx.connection.execute(
        f"SELECT job_id FROM jobs WHERE job_id IN ({', '.join('?' * len(jobs))})",
        [rows.uuid_bytes(job.job_id) for job in jobs],
    )
    return {rows.uuid_text(job_id) for (job_id,) in found}


def _find_known(tx: Transaction, new: NewJob) -> Enqueued | AirunnerError | None:
    """Return the outcome for a request that was made before, None if it was not."""
    known = tx.connection.execute(
        "SELECT fingerprint, job_id, created_at, state FROM jobs WHERE request_id = ? AND principal = ?",
        (rows.uuid_bytes(new.request_id), new.principal),
    ).fetchone()
    if known is None:
        return None
    fingerprint, job_id, created_at, state = known
    if fingerprint != new.fingerprint:
        return AlreadyExists()
    return Enqueued(job_id=rows.uuid_text(job_id), created_at=created_at, state=stored_state(state))


def _claim_in(tx: Transaction, queue: str, demand: Demand, now: int) -> list[Job]:
    """Claim jobs of one queue; rows that cannot be read are ended, and the next ones taken."""
    if tx.known.may_be_due(tx.connection, queue, now):
        _promote(tx, queue, now)
    while found := _claimable(tx, queue, demand):
        if jobs := begin(tx, found, demand, now):
            return jobs
    return []


def _promote(tx: Transaction, queue: str, now: int) -> None:
    """Let what has fallen due or lapsed join the ready ones: one index then gives the order of enqueueing."""
    promoted = tx.connection.execute(
        "UPDATE jobs SET ready = 1, wake_at = NULL WHERE id IN "
        "(SELECT id FROM jobs WHERE queue = ? AND wake_at <= ? LIMIT ?)",
        (queue, now, _PROMOTED_AT_ONCE),
    ).rowcount
    tx.known.look_up(tx.connection, queue)
    if promoted:
        # Some of it may be for others, and has no timer any more.
        tx.readiness.note_others(queue)


def _claimable(tx: Transaction, queue: str, demand: Demand) -> list[rows.Row]:
    read_up = False

    def end() -> Iterator[rows.Row]:
        nonlocal read_up
        read_up = True
        yield from ()

    # Row by row: all of them may be more than there is memory for.
    with closing(_find_ready(tx, queue, demand)) as ready:
        found = take_by_size(itertools.chain(ready, end()), rows.row_claim_size, demand.max_bytes)
    if read_up and len(found) < demand.max_jobs:
        tx.readiness.note_exhausted(queue, demand.abilities)
    else:
        # There may be more than was asked for, and what fell due just now has no timer any more.
        tx.readiness.note(queue, demand.abilities or (None,))
    return found


def _find_ready(tx: Transaction, queue: str, demand: Demand) -> sqlite3.Cursor:
    if demand.abilities is None:
        return tx.connection.execute(rows.FIND_READY, (queue, demand.max_jobs))
    handlers = json.dumps(list(demand.abilities))
    return tx.connection.execute(
        rows.FIND_READY_FOR, {"handlers": handlers, "queue": queue, "count": demand.max_jobs}
    )


def _end_expired(tx: Transaction, now: int) -> list[str]:
    expired = tx.connection.execute(
        f"SELECT id, job_id, queue, {rows.LIFE} FROM jobs WHERE expires_at <= ? LIMIT ?",
        (now, _ENDED_AT_ONCE),
    ).fetchall()
    for row_id, job_id, queue, *life in expired:
        tx.known.lives.drop(rows.uuid_text(job_id))
        _save(tx, row_id, queue, lifecycle.expire(rows.life_from_row(tuple(life)), now=now))
    return [rows.uuid_text(row[1]) for row in expired]


def _purge_jobs(tx: Transaction, before: int, limit: int = _PURGED_ROWS_AT_ONCE) -> int:
    """Delete the rows of old jobs; their events, which nobody can reach any more, follow in later steps."""
    found = tx.connection.execute(
        "SELECT jobs.id, length(coalesce(jobs.params, large.params)) FROM jobs "
        "LEFT JOIN large_params large ON large.id = jobs.id WHERE finished_at <= ? LIMIT ?",
        (before, min(limit, _PURGED_ROWS_AT_ONCE)),
    )
    old = [(row_id,) for row_id in _within_bytes(found)]
    tx.connection.executemany("INSERT INTO purged_jobs (id) VALUES (?)", old)
    tx.connection.executemany("DELETE FROM large_params WHERE id = ?", old)
    tx.connection.executemany("DELETE FROM jobs WHERE id = ?", old)
    return len(old)


def _purge_orphans(tx: Transaction) -> int:
    """Delete events of jobs that are gone, the oldest job first; return how many."""
    purged = 0
    while not purged and (row := tx.connection.execute("SELECT min(id) FROM purged_jobs").fetchone())[0]:
        found = tx.connection.execute(
            "SELECT id, length(payload) FROM job_events WHERE job = ? LIMIT ?", (row[0], _PURGED_ROWS_AT_ONCE)
        )
        purged = _delete_events(tx, _within_bytes(found))
        if not purged:
            tx.connection.execute("DELETE FROM purged_jobs WHERE id = ?", row)
    return purged


def _purge_events(tx: Transaction, before: int) -> int:
    # Rows are in the order of their storing, so the oldest are at the front.
    found = tx.connection.execute(
        "SELECT id, length(payload) FROM job_events WHERE stored_at <= ? "
        "AND id IN (SELECT id FROM job_events ORDER BY id LIMIT ?)",
        (before, _PURGED_ROWS_AT_ONCE),
    )
    return _delete_events(tx, _within_bytes(found))


def _delete_events(tx: Transaction, row_ids: Sequence[int]) -> int:
    tx.connection.executemany("DELETE FROM job_events WHERE id = ?", [(row_id,) for row_id in row_ids])
    return len(row_ids)


def _within_bytes(found: Iterable[tuple[int, int]]) -> list[int]:
    """Return the ids of rows of ids and sizes, as many as one step may delete, and one at least."""
    return [row_id for row_id, _ in take_by_size(found, lambda row: row[1], _PURGED_BYTES_AT_ONCE)]
