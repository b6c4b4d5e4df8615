"""Claims and completions of many jobs at once.

Jobs that come together are mostly alike: what is alike is worked out once and saved by one statement. It is
still `lifecycle` that decides, and jobs that differ only cost more.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, TypeAlias

from airunner import telemetry
from airunner.codec.jobs import encode_result
from airunner.domain import lifecycle
from airunner.domain.errors import AirunnerError, JobNotFound
from airunner.domain.job import JobResult, JobState, Outcome
from airunner.domain.record import altered
from airunner.domain.splitting import split_by_count
from airunner.stores.sqlite import rows
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airunner.domain.job import Job
    from airunner.domain.lifecycle import Lifecycle
    from airunner.stores.records import Completion, Demand
    from airunner.stores.sqlite.transaction import Transaction

_log = get_logger("airunner.store")

_End: TypeAlias = "tuple[Lifecycle, Lifecycle, list[rows.Row]]"
"""A life, what becomes of it, and the columns of the events to be stored."""

# How many rows one statement saves. Shorter lists are filled up: SQLite keeps few statements ready.
_STATEMENT_SIZES = (1, 10, 100)
_SAVED_AT_ONCE = _STATEMENT_SIZES[-1]


def begin(tx: Transaction, found: Sequence[rows.Row], demand: Demand, now: int) -> list[Job]:
    """Claim the jobs of rows of JOB and id, which are claimable now; end those that cannot be read."""
    try:
        return _begin(tx, found, demand, now)
    except Exception:
        unreadable = [row for row in found if not rows.is_readable(row)]
        if not unreadable:
            raise
        _end_unreadable(tx, unreadable, now)
        return _begin(tx, [row for row in found if row not in unreadable], demand, now)


def _begin(tx: Transaction, found: Sequence[rows.Row], demand: Demand, now: int) -> list[Job]:
    lives = rows.lives_from_rows(found)
    claimed = {
        id(life): lifecycle.claim(
            life,
            now=now,
            visibility_seconds=demand.visibility_seconds,
            first_lease_seconds=demand.first_lease_seconds,
            worker_id=demand.worker_id,
            instance_id=demand.instance_id,
        )
        for life in {id(life): life for life in lives}.values()
    }
    begun = {row[-1]: claimed[id(life)] for row, life in zip(found, lives, strict=True)}
    jobs = rows.jobs_from_rows(found, begun.values())
    _save_alike(tx, rows.SAVE_CLAIMS, begun)
    tx.known.lives.keep(zip((job.job_id for job in jobs), begun.items(), strict=True))
    for life in claimed.values():
        tx.known.note(jobs[0].queue, rows.wake_time(life))
    return jobs


def _end_unreadable(tx: Transaction, found: Sequence[rows.Row], now: int) -> None:
    """Fail jobs whose rows cannot be read; their bytes stay until the purge."""
    result = encode_result(
        JobResult(
            success=False, outcome=Outcome.FAILURE, error_message="the job cannot be read", completed_at=now
        )
    )
    tx.known.lives.forget()
    for row in found:
        values = (int(JobState.FAILED), now, now, result, row[-1])
        tx.connection.execute(rows.END_UNREADABLE, values)
        telemetry.store_rows_unreadable.add(1, "job")
        _log.error("store.row_unreadable", row=row[-1])


def complete(tx: Transaction, completions: Sequence[Completion], now: int) -> list[Lifecycle | AirunnerError]:
    """End jobs, each with its own outcome."""
    ends = _Ends(now, _find(tx, [completion.key.job_id for completion in completions]))
    outcomes = [ends.complete(completion) for completion in completions]
    insert_events(tx, ends.events)
    tx.connection.results.update(ends.results)
    try:
        _save_alike(tx, rows.SAVE_ENDS, ends.lives)
    finally:
        tx.connection.results.clear()
    tx.ended_rows.extend(ends.lives)
    return outcomes


def insert_events(tx: Transaction, events: list[rows.Row]) -> None:
    """Insert the values of events, many by one statement."""
    whole = len(events) - len(events) % rows.EVENTS_AT_ONCE
    for some in split_by_count(events[:whole], rows.EVENTS_AT_ONCE):
        tx.connection.execute(rows.INSERT_EVENTS, list(itertools.chain.from_iterable(some)))
    tx.connection.executemany(rows.INSERT_EVENT, events[whole:])


class _Ends:
    """Completions of one call as they are worked through, and what is to be written for them."""

    def __init__(self, now: int, loaded: dict[str, tuple[int, Lifecycle]]) -> None:
        self._now = now
        self._loaded = loaded
        self._by_identity: dict[tuple[int, int, int, int], _End] = {}
        self._by_common: dict[tuple[int, int, int, tuple[object, ...]], _End] = {}
        self.events: list[rows.Row] = []
        self.lives: dict[int, Lifecycle] = {}
        self.results: dict[int, bytes] = {}

    def complete(self, completion: Completion) -> Lifecycle | AirunnerError:
        """Return the outcome of one entry; one that repeats an earlier one meets the job as that left it."""
        job_id = completion.key.job_id
        if job_id not in self._loaded:
            return JobNotFound()
        row_id, life = self._loaded[job_id]
        try:
            alike, fresh = self._finish(life, completion)
        except AirunnerError as error:
            return error
        if alike is life:
            return life
        over = alike
        if over.result is not completion.result:
            over = altered(alike, result=completion.result)
        self._loaded[job_id] = row_id, over
        # The result is saved apart, so that all that end alike are saved by one statement.
        self.lives[row_id] = alike
        self.results[row_id] = completion.result_bytes or encode_result(completion.result)
        self.events += [(row_id, *columns) for columns in fresh]
        return over

    def _finish(self, life: Lifecycle, completion: Completion) -> tuple[Lifecycle, list[rows.Row]]:
        """Work out the end of a job; jobs that were alike and end alike share it, but for their output.

        Lives and events that are alike are the same objects here, and often results too. The entries keep
        theirs alive, and the known ends their lives.
        """
        if life.state.terminal:
            # What an end that is repeated says is compared with what was said first, output and all.
            return self._work_out(life, completion)
        same = (id(life), completion.key.attempt, id(completion.events), id(completion.result))
        known = self._by_identity.get(same)
        if known is None:
            known = self._by_identity[same] = self._finish_alike(life, completion)
        return known[1:]

    def _finish_alike(self, life: Lifecycle, completion: Completion) -> _End:
        alike = (id(life), completion.key.attempt, id(completion.events), completion.result.common)
        known = self._by_common.get(alike)
        if known is None:
            known = self._by_common[alike] = (life, *self._work_out(life, completion))
        return known

    def _work_out(self, life: Lifecycle, completion: Completion) -> tuple[Lifecycle, list[rows.Row]]:
        attempt, result, events = completion.key.attempt, completion.result, completion.events
        over, fresh = lifecycle.finish(life, attempt, result, events, now=self._now)
        return over, [rows.event_columns(event, self._now) for event in fresh]


def _find(tx: Transaction, job_ids: Sequence[str]) -> dict[str, tuple[int, Lifecycle]]:
    """Return the rows and lives of those jobs that there are; most were claimed a short while ago."""
    found = tx.known.lives.take(job_ids)
    if len(found) < len(job_ids):
        found.update(_load_many(tx, [job_id for job_id in job_ids if job_id not in found]))
    return found


def _load_many(tx: Transaction, job_ids: Sequence[str]) -> dict[str, tuple[int, Lifecycle]]:
    """Return the rows and lives of those jobs that there are, with one statement for all."""
    marks = ", ".join("?" * len(job_ids))
    found = tx.connection.execute(
        f"SELECT {rows.LIFE}, id, job_id FROM jobs WHERE job_id IN ({marks})",
        [rows.blob(rows.uuid_bytes(job_id)) for job_id in job_ids],
    ).fetchall()
    lives = rows.lives_from_rows(found)
    return {rows.uuid_text(row[-1]): (row[-2], life) for row, life in zip(found, lives, strict=True)}


def _save_alike(tx: Transaction, statement: str, lives: dict[int, Lifecycle]) -> None:
    """Save what a step changed of many rows, with one statement for all that it left alike."""
    alike: dict[rows.Row, list[int]] = {}
    known: dict[int, list[int]] = {}
    for row_id, life in lives.items():
        row_ids = known.get(id(life))
        if row_ids is None:
            row_ids = known[id(life)] = alike.setdefault(rows.step_values(life), [])
        row_ids.append(row_id)
    for values, row_ids in alike.items():
        for some in map(_padded, split_by_count(row_ids, _SAVED_AT_ONCE)):
            tx.connection.execute(f"{statement} ({', '.join('?' * len(some))})", (*values, *some))


def _padded(row_ids: Sequence[int]) -> list[int]:
    """Return as many ids as one of the statements takes, the last one repeated."""
    size = next(size for size in _STATEMENT_SIZES if size >= len(row_ids))
    return [*row_ids, *[row_ids[-1]] * (size - len(row_ids))]
