"""Writes that many calls make alike, done for all of them by one statement, which is its own transaction.

Between two statements the loop may take the interpreter from the thread that writes, and on a busy machine
that thread queues for a processor each time it comes back. What one statement cannot do is done call by
call, in the transaction of a group.
"""

from __future__ import annotations

import itertools
import sqlite3
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

from airunner.domain import lifecycle
from airunner.domain.errors import AirunnerError
from airunner.domain.job import JobState
from airunner.stores.sqlite import operations, rows

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from airunner.domain.answers import Enqueued
    from airunner.domain.event import EncodedEvent
    from airunner.domain.lifecycle import Lifecycle
    from airunner.stores.records import AttemptKey, NewJob
    from airunner.stores.sqlite.transaction import Transaction

C_contra = TypeVar("C_contra", contravariant=True)
R = TypeVar("R")

_NEW_EVENT: Final = ", ".join(f"NEW.{name}" for name in f"job, stored_at, {rows.EVENT}".split(", "))
_SET_UP: Final = (
    f"CREATE TEMP VIEW published AS SELECT job, stored_at, {rows.EVENT}, 0 AS known_at FROM job_events",
    # What is known of a job is compared with its row, and both tables are written, without a transaction.
    f"""
    CREATE TEMP TRIGGER publish INSTEAD OF INSERT ON published BEGIN
        SELECT RAISE(ABORT, 'the job is not as it was') WHERE NOT EXISTS (
            SELECT 1 FROM jobs WHERE id = NEW.job AND updated_at = NEW.known_at AND attempt = NEW.attempt
            AND state = {int(JobState.RUNNING)} AND last_sequence = NEW.first_sequence - 1
        );
        INSERT INTO job_events (job, stored_at, {rows.EVENT}) VALUES ({_NEW_EVENT});
        UPDATE jobs SET last_sequence = NEW.last_sequence, updated_at = NEW.stored_at WHERE id = NEW.job;
    END
    """,
)


class SharedWrite(Protocol[C_contra, R]):
    """A write that many calls make."""

    def alone(self, tx: Transaction, call: C_contra, /) -> R:
        """Do it for one call, within a transaction."""

    def at_once(
        self, tx: Transaction, calls: Sequence[C_contra], waited_for: Collection[str], /
    ) -> list[R] | None:
        """Do it for all calls by one statement, without a transaction; None if it is not done at all.

        Somebody waits for jobs of the queues that are `waited_for`: these are to be served in a transaction.
        """


class Publication(NamedTuple):
    """Events that continue an attempt."""

    key: AttemptKey
    events: Sequence[EncodedEvent]
    now: int


def set_up(connection: sqlite3.Connection) -> None:
    """Prepare the connection that writes."""
    for statement in _SET_UP:
        connection.execute(statement)


class _Enqueueing:
    """Calls that add jobs, each with its own outcome."""

    def alone(self, tx: Transaction, jobs: Sequence[NewJob]) -> list[Enqueued | AirunnerError]:
        return operations.enqueue(tx, jobs)

    def at_once(
        self, tx: Transaction, calls: Sequence[Sequence[NewJob]], waited_for: Collection[str]
    ) -> list[list[Enqueued | AirunnerError]] | None:
        jobs = list(itertools.chain.from_iterable(calls))
        if not 0 < len(jobs) <= rows.JOBS_AT_ONCE:
            return None
        if any(not rows.is_inline(job) or job.queue in waited_for for job in jobs):
            return None
        outcomes = iter(operations.insert(tx, jobs))
        return [list(itertools.islice(outcomes, len(call))) for call in calls]


class _Publishing:
    """Calls that publish one batch each, of jobs that the writer knows."""

    def alone(self, tx: Transaction, call: Publication) -> Lifecycle:
        return operations.append(tx, call.key, call.events, call.now)

    def at_once(
        self, tx: Transaction, calls: Sequence[Publication], _: Collection[str]
    ) -> list[Lifecycle] | None:
        written: dict[str, tuple[int, Lifecycle]] = {}
        lives, events = [], []
        for key, published, now in calls:
            known = written.get(key.job_id) or tx.known.lives.find(key.job_id)
            if known is None or known[1].silent_attempts or len(published) != 1:
                return None
            try:
                life, fresh = lifecycle.append(known[1], key.attempt, published, now=now)
            except AirunnerError:
                return None
            events += [(*rows.event_values(known[0], event, now), known[1].updated_at) for event in fresh]
            written[key.job_id] = known[0], life
            lives.append(life)
        if not 0 < len(events) <= rows.EVENTS_AT_ONCE or not self._insert(tx, events):
            return None
        tx.known.lives.keep(written.items())
        return lives

    def _insert(self, tx: Transaction, events: list[rows.Row]) -> bool:
        try:
            tx.connection.execute(
                rows.insert_published(len(events)), list(itertools.chain.from_iterable(events))
            )
        except sqlite3.IntegrityError:
            # Another process has written to the file; all that is known is to be read again.
            tx.known.forget()
            return False
        return True


ENQUEUEING: Final = _Enqueueing()
PUBLISHING: Final = _Publishing()
