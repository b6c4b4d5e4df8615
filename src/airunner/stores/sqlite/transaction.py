"""One transaction: what its operations see and leave behind, how it begins, and what undoes a part of it."""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airunner.domain.errors import AirunnerError, InternalError, Unavailable
from airunner.stores.sqlite.wake_times import WakeTimes
from airunner.stores.waiting import Readiness
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable, Iterator

    from airunner.stores.records import Demand
    from airunner.stores.sqlite.schema import SqliteConnection

_log = get_logger("airunner.store")


@dataclass(slots=True)
class Transaction:
    """What operations of one group see and leave behind."""

    connection: SqliteConnection
    # Where something may have become claimable.
    readiness: Readiness = field(default_factory=Readiness)
    # What is known of queues; whoever writes a job tells it when that falls due or lapses.
    known: WakeTimes = field(default_factory=WakeTimes)
    parked: dict[Demand, asyncio.Future[Any]] = field(default_factory=dict)
    withdrawn: frozenset[Demand] = frozenset()
    served: set[Demand] = field(default_factory=set)
    # The rows of jobs that came to their end; of an operation that was undone they may be here still.
    ended_rows: list[int] = field(default_factory=list)

    def wake(self, queues: Iterable[str]) -> None:
        """Have waiting demands for these queues tried again."""
        for name in queues:
            self.readiness.note(name)


def begin(connection: sqlite3.Connection) -> None:
    """Begin a transaction that writes, or raise NotBegun."""
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.Error as error:
        raise NotBegun from error


@contextmanager
def undone_alone(tx: Transaction) -> Iterator[None]:
    """Undo what the block wrote when it fails, and nothing else.

    A savepoint outside a transaction would begin one and commit it by itself: so where SQLite has undone all
    of the group, nothing more of it is done.
    """
    connection = tx.connection
    connection.execute("SAVEPOINT operation")
    try:
        yield
    except BaseException as error:
        tx.known.forget()
        if not connection.in_transaction:
            raise RolledBack from error
        connection.execute("ROLLBACK TO operation")
        connection.execute("RELEASE operation")
        raise
    connection.execute("RELEASE operation")


def explain(error: Exception) -> AirunnerError:
    """Log why a write failed; return what its caller is told."""
    if isinstance(error, GroupFailed) and isinstance(error.__cause__, Exception):
        error = error.__cause__
    if isinstance(error, sqlite3.Error):
        _log.error("store.write_failed", error=str(error))
        return Unavailable("the store cannot write now")
    _log.error("store.operation_failed", exc_info=error)
    return InternalError()


class GroupFailed(Exception):
    """What failed was no single operation; the cause is SQLite's own error."""


class NotBegun(GroupFailed):
    """There is no transaction: another process writes to the file, or the disk fails."""


class RolledBack(GroupFailed):
    """SQLite has undone the whole transaction by itself, as it does when the disk fails."""
