"""Group commit: one thread takes all writes that wait, commits once for all of them, then answers all.

An operation is a function of a Transaction. It first reads and checks, raising an AirunnerError before it
has written anything; then it writes. Should anything else fail, the whole group is undone and repeated with
each operation under a savepoint of its own, so that only the one at fault fails. Operations therefore have
no effect but through the transaction.

A group of calls that are alike may be one statement, which is its own transaction: see `at_once`.

A withdrawal is no operation: it only takes a demand out of the waiting room, after the group that it came
with was committed or has failed, so no fault of the disk leaves a demand that nobody waits for.
"""

from __future__ import annotations

import queue
import sqlite3
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from airunner.domain.errors import AirunnerError, InternalError, Unavailable
from airunner.stores.sqlite.transaction import (
    NotBegun,
    RolledBack,
    Transaction,
    begin,
    explain,
    undone_alone,
)
from airunner.stores.sqlite.wake_times import WakeTimes
from airunner.stores.waiting import WaitingRoom
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Collection, Sequence

    from airunner.domain.job import Job
    from airunner.stores.records import Demand
    from airunner.stores.sqlite.at_once import SharedWrite
    from airunner.stores.sqlite.schema import SqliteConnection

T = TypeVar("T")
C = TypeVar("C")
_MAX_GROUP = 256
# So many turns of the loop a served dequeue takes to its answer, and any other call only one.
_TURNS_AHEAD = 3
_log = get_logger("airunner.store")


class Served(Protocol):
    """How a demand is met inside a transaction: the claimed jobs, none if there is nothing."""

    def __call__(self, tx: Transaction, demand: Demand) -> Sequence[Job]: ...


@dataclass(slots=True)
class _Entry(Generic[T]):
    operation: Callable[[Transaction], T]
    answer: asyncio.Future[T] | None
    demand: Demand | None = None
    # For an operation that may be done together with others: what all of them do, and what this one wants.
    write: SharedWrite[Any, T] | None = None
    call: Any = None


@dataclass(slots=True)
class _Withdrawal:
    demand: Demand
    answer: asyncio.Future[None]


@dataclass(slots=True)
class _Reply:
    future: asyncio.Future[Any] | None
    result: Any = None
    error: BaseException | None = None
    # A demand from the waiting room; its future is taken from there once the commit is done.
    demand: Demand | None = None


class GroupCommitWriter:
    """Owns the connection that writes, its thread, and the dequeues that wait for jobs."""

    def __init__(
        self,
        connection: SqliteConnection,
        loop: asyncio.AbstractEventLoop,
        *,
        serve: Served,
        on_wake: Callable[[int], None],
        max_waiting: int = 10_000,
    ) -> None:
        self._connection = connection
        self._loop = loop
        self._serve = serve
        self._on_wake = on_wake
        self._known = WakeTimes()
        # When the loop was asked to call `wake`, if it has not done so yet.
        self._wake_at: int | None = None
        self._max_waiting = max_waiting
        self._inbox: queue.SimpleQueue[_Entry[Any] | _Withdrawal | None] = queue.SimpleQueue()
        self._room: WaitingRoom[asyncio.Future[Any]] = WaitingRoom()
        self._thread = threading.Thread(target=self._run, name="airunner-writer", daemon=True)
        self._closed = False
        self._failure = ("", 0.0)
        self.commits = 0
        self.commit_seconds = 0.0

    def start(self) -> None:
        """Begin to take operations."""
        self._thread.start()

    def submit(
        self, operation: Callable[[Transaction], T], demand: Demand | None = None
    ) -> asyncio.Future[T]:
        """Have an operation done; its answer comes after the commit.

        With a demand, an empty answer of the operation parks it instead: the answer comes when a later
        group serves it, or with `withdraw`.
        """
        return self._put(operation, demand)

    def submit_shared(self, write: SharedWrite[C, T], call: C) -> asyncio.Future[T]:
        """Have done for a call what others may want too; its answer comes after the commit."""
        return self._put(lambda tx: write.alone(tx, call), None, write, call)

    def withdraw(self, demand: Demand) -> asyncio.Future[None]:
        """Have a parked demand answered with nothing, whether or not anything can be written."""
        answer: asyncio.Future[None] = self._loop.create_future()
        if self._closed:
            # Whoever waits is answered by the end of the thread.
            answer.set_result(None)
        else:
            self._inbox.put(_Withdrawal(demand, answer))
        return answer

    def wake(self, now: int) -> None:
        """Look for jobs in each queue that somebody waits for and where one may have fallen due or lapsed."""
        self._inbox.put(_Entry(lambda tx: self._wake_due(tx, now), None))

    def last_failure(self, *, within_seconds: float) -> str:
        """Return why the last commit failed, if it did and that is not longer ago; else nothing."""
        reason, failed_at = self._failure
        return reason if reason and time.monotonic() - failed_at <= within_seconds else ""

    @property
    def full(self) -> bool:
        """Whether so many operations wait that no more should come that may come later as well."""
        return self._inbox.qsize() >= self._max_waiting

    @property
    def alive(self) -> bool:
        """Whether operations are still taken."""
        return not self._closed

    def refuse(self) -> None:
        """Take no more operations, and let the thread end after those it has. On the loop, like `submit`."""
        self._closed = True
        self._inbox.put(None)

    def join(self) -> None:
        """Wait for the thread to end. Blocks. Waiting demands get nothing."""
        self._thread.join()

    def _put(
        self,
        operation: Callable[[Transaction], T],
        demand: Demand | None,
        write: SharedWrite[Any, T] | None = None,
        call: object = None,
    ) -> asyncio.Future[T]:
        answer: asyncio.Future[T] = self._loop.create_future()
        if self._closed:
            answer.set_exception(Unavailable("the store is closed"))
        else:
            self._inbox.put(_Entry(operation, answer, demand, write, call))
        return answer

    def _run(self) -> None:
        connection = self._connection
        try:
            while group := self._next_group():
                self._survive(connection, group)
        except BaseException:
            _log.critical("store.writer_died", exc_info=True)
            raise
        finally:
            self._closed = True
            connection.close()
            self._answer([_Reply(future, ()) for future in self._room.empty_out()])
            # On the loop no submit comes in between: whatever was accepted is answered.
            self._loop.call_soon_threadsafe(self._turn_away)

    def _turn_away(self) -> None:
        while not self._inbox.empty():
            entry = self._inbox.get_nowait()
            if isinstance(entry, _Withdrawal):
                _deliver([_Reply(entry.answer)])
            elif entry:
                _deliver([_Reply(entry.answer, error=Unavailable("the store is closed"))])

    def _next_group(self) -> list[_Entry[Any] | _Withdrawal]:
        """Wait for the first operation, then take what else is there. Empty at the end."""
        first = self._inbox.get()
        group = [first] if first else []
        # Nobody else takes from it: what is there stays there.
        while first and len(group) < _MAX_GROUP and not self._inbox.empty():
            entry = self._inbox.get_nowait()
            if entry is None:
                self._inbox.put(None)
                break
            group.append(entry)
        return group

    def _survive(self, connection: SqliteConnection, group: list[_Entry[Any] | _Withdrawal]) -> None:
        """Work on a group; whatever happens, each of it is answered and the thread goes on to the next."""
        try:
            self._work_on(connection, group)
        except Exception as error:  # noqa: BLE001  a fault of ours must not end all writing
            self._answer([_Reply(entry.answer, error=InternalError()) for entry in group])
            _log.critical("store.group_failed", exc_info=error)

    def _work_on(self, connection: SqliteConnection, group: list[_Entry[Any] | _Withdrawal]) -> None:
        """Commit the operations of a group, then see to its withdrawals, whatever became of the commit."""
        operations = [entry for entry in group if isinstance(entry, _Entry)]
        if len(operations) == len(group):
            self._commit_group(connection, operations, frozenset())
            return
        withdrawals = [entry for entry in group if isinstance(entry, _Withdrawal)]
        withdrawn = frozenset(withdrawal.demand for withdrawal in withdrawals)
        try:
            if operations:
                self._commit_group(connection, operations, withdrawn)
        finally:
            self._answer([_Reply(self._room.leave(demand), ()) for demand in withdrawn])
            self._answer([_Reply(withdrawal.answer) for withdrawal in withdrawals])

    def _commit_group(
        self, connection: SqliteConnection, group: list[_Entry[Any]], withdrawn: frozenset[Demand]
    ) -> None:
        try:
            tx, answers = self._attempt_twice(connection, group, withdrawn)
        except Exception as error:  # noqa: BLE001  a commit that fails fails all
            self._failure = (str(error.__cause__ or error), time.monotonic())
            self._answer([_Reply(entry.answer, error=explain(error)) for entry in group])
            return
        self._failure = ("", 0.0)
        self._settle(connection, tx, answers)

    def _attempt_twice(
        self, connection: SqliteConnection, group: list[_Entry[Any]], withdrawn: frozenset[Demand]
    ) -> tuple[Transaction, list[_Reply]]:
        try:
            return self._attempt_at_once(connection, group) or self._attempt(
                connection, group, withdrawn, guarded=False
            )
        except NotBegun:
            # Nobody's operation is at fault, and all have waited long enough.
            raise
        except Exception:  # noqa: BLE001  whichever operation it was, the others shall not suffer
            return self._attempt(connection, group, withdrawn, guarded=True)

    def _attempt(
        self,
        connection: SqliteConnection,
        group: list[_Entry[Any]],
        withdrawn: frozenset[Demand],
        *,
        guarded: bool,
    ) -> tuple[Transaction, list[_Reply]]:
        tx = Transaction(connection, known=self._known, withdrawn=withdrawn)
        try:
            begin(connection)
            self._known.refresh(connection)
            answers = [self._perform(tx, entry, guarded=guarded) for entry in group]
            answers += self._serve_waiting(tx, guarded=guarded)
            began = time.perf_counter()
            connection.execute("COMMIT")
            self.commit_seconds += time.perf_counter() - began
        except BaseException:
            self._known.forget()
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        self.commits += 1
        return tx, answers

    def _attempt_at_once(
        self, connection: SqliteConnection, group: list[_Entry[Any]]
    ) -> tuple[Transaction, list[_Reply]] | None:
        """Do what all calls of a group want by one statement; None if they are not alike, or it cannot."""
        write = group[0].write
        if write is None or any(entry.write is not write for entry in group):
            return None
        tx = Transaction(connection, known=self._known)
        began = time.perf_counter()
        try:
            results = write.at_once(tx, [entry.call for entry in group], self._room.queues)
        except Exception as error:
            # Whether it was written may be unclear; the next look is at the file.
            self._known.forget()
            if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY:
                raise NotBegun from error
            raise
        if results is None:
            return None
        self.commit_seconds += time.perf_counter() - began
        self.commits += 1
        return tx, [_Reply(entry.answer, result) for entry, result in zip(group, results, strict=True)]

    def _perform(self, tx: Transaction, entry: _Entry[Any], *, guarded: bool) -> _Reply:
        try:
            if guarded:
                with undone_alone(tx):
                    result = entry.operation(tx)
            else:
                result = entry.operation(tx)
        except AirunnerError as error:
            return _Reply(entry.answer, error=error)
        except Exception as error:
            if not guarded or isinstance(error, RolledBack):
                raise
            return _Reply(entry.answer, error=explain(error))
        if entry.demand is not None and not result and entry.answer is not None:
            tx.parked[entry.demand] = entry.answer
            return _Reply(None)
        return _Reply(entry.answer, result)

    def _serve_waiting(self, tx: Transaction, *, guarded: bool) -> list[_Reply]:
        """Let waiting demands ride this commit, in the order of their arrival.

        To serve a demand may make more claimable, for others and in another of its queues; that is looked at
        too. It comes to an end: each turn serves somebody, or finds that there is nothing.
        """
        answers: list[_Reply] = []
        tx.readiness.begin()
        while news := tx.readiness.take_news():
            for demand in [*self._room.waiting_for(news), *tx.parked]:
                if not news:
                    break
                if demand in tx.withdrawn or demand in tx.served or not tx.readiness.concerns(demand, news):
                    continue
                answer = self._serve_one(tx, demand, guarded=guarded)
                if answer:
                    answers.append(answer)
                    tx.readiness.prune(news)
                else:
                    tx.readiness.note_in_vain(demand, news)
        return answers

    def _serve_one(self, tx: Transaction, demand: Demand, *, guarded: bool) -> _Reply | None:
        """Return what a waiting demand gets, None if there is nothing.

        The room is only changed after the commit, so that a failed group leaves it as it was.
        """
        failure: AirunnerError | None = None
        jobs: Sequence[Job] = ()
        try:
            if guarded:
                with undone_alone(tx):
                    jobs = self._serve(tx, demand)
            else:
                jobs = self._serve(tx, demand)
        except Exception as error:
            if not guarded or isinstance(error, RolledBack):
                raise
            failure = explain(error)
        if not jobs and not failure:
            return None
        tx.served.add(demand)
        return _Reply(tx.parked.pop(demand, None), jobs, failure, demand)

    def _settle(self, connection: sqlite3.Connection, tx: Transaction, answers: list[_Reply]) -> None:
        served = [answer for answer in answers if answer.demand is not None]
        if served or tx.parked:
            self._leave_and_park(tx, served)
            answers = [answer for answer in answers if answer.demand is None]
        self._answer(served, answers)
        newly_wanted = {queue for demand in tx.parked for queue in demand.queues}
        self._plan_wake(connection, newly_wanted.union(self._known.take_changed(self._room.queues)))

    def _leave_and_park(self, tx: Transaction, served: list[_Reply]) -> None:
        """Let those leave who are served, and let the others of a group wait."""
        for answer in served:
            answer.future = (answer.demand and self._room.leave(answer.demand)) or answer.future
        for demand, future in tx.parked.items():
            self._room.park(demand, future)

    def _plan_wake(self, connection: sqlite3.Connection, queues: Collection[str]) -> None:
        """Have `wake` called for what was planned before or for these queues, whichever is earlier."""
        if not queues:
            return
        try:
            wake_at = self._known.next_wake(connection, queues)
        except sqlite3.Error as error:
            # The next group looks it up again.
            self._known.forget()
            _log.error("store.read_failed", error=str(error))
            return
        if wake_at is not None and (self._wake_at is None or wake_at < self._wake_at):
            self._wake_at = wake_at
            self._loop.call_soon_threadsafe(self._on_wake, wake_at)

    def _wake_due(self, tx: Transaction, now: int) -> None:
        self._wake_at = None
        # Those that are not due yet have no timer any more either.
        tx.known.look_at_all()
        tx.wake([queue for queue in self._room.queues if tx.known.may_be_due(tx.connection, queue, now)])

    def _answer(self, answers: list[_Reply], others: list[_Reply] | None = None) -> None:
        """Give answers, and others behind them: who waits for a job may begin before who enqueued it."""
        first = [answer for answer in answers if answer.future is not None]
        rest = [answer for answer in others or () if answer.future is not None]
        if first and rest:
            self._loop.call_soon_threadsafe(self._deliver_in_turn, first, rest, _TURNS_AHEAD)
        elif first or rest:
            self._loop.call_soon_threadsafe(_deliver, first or rest)

    def _deliver_in_turn(self, first: list[_Reply], rest: list[_Reply], turns: int) -> None:
        _deliver(first)
        if turns:
            self._loop.call_soon(self._deliver_in_turn, [], rest, turns - 1)
        else:
            _deliver(rest)


def _deliver(answers: list[_Reply]) -> None:
    for answer in answers:
        future = answer.future
        if future is None or future.done():
            continue
        if answer.error is not None:
            future.set_exception(answer.error)
        else:
            future.set_result(answer.result)
