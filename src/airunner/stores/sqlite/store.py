"""The embedded store: what is asked goes to the writer's thread, or to a thread that only reads."""

from __future__ import annotations

import asyncio
import fcntl
import os
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import IO, TYPE_CHECKING, TypeVar

from airunner import telemetry
from airunner.domain.clock import StepWatch
from airunner.domain.errors import DeadlineExceeded, FailedPrecondition, Overloaded, Unavailable
from airunner.domain.listing import abridged
from airunner.stores.base import Capabilities
from airunner.stores.pages import READ_SECONDS, PageBounds
from airunner.stores.sqlite import at_once, bulk, operations, queries, rows, settings
from airunner.stores.sqlite.migrations import is_current, migrate
from airunner.stores.sqlite.schema import connect
from airunner.stores.sqlite.transaction import Transaction
from airunner.stores.sqlite.writer import GroupCommitWriter
from airunner.telemetry.logs import get_logger
from airunner.telemetry.refusals import CallRefusal, RefusalLog

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from airunner.domain.answers import Enqueued, QueueStats
    from airunner.domain.clock import Clock, Timer
    from airunner.domain.errors import AirunnerError
    from airunner.domain.event import EncodedEvent
    from airunner.domain.job import Job
    from airunner.domain.lifecycle import Lifecycle
    from airunner.domain.listing import JobPage, JobQuery
    from airunner.stores.records import (
        ApiKey,
        AttemptKey,
        Completion,
        Demand,
        EventPage,
        EventQuery,
        NewJob,
        PurgedJobs,
        Release,
        Retention,
        RunningPage,
        Upkeep,
    )
    from airunner.stores.settings import StoredSetting
    from airunner.stores.sqlite.schema import SqliteConnection

T = TypeVar("T")
DATABASE = "airunner.db"
TOKEN_KEY = "token.key"  # noqa: S105  the name of a file
_LOCK = "airunner.lock"
_READERS = 3
_STEPS_BETWEEN_LOOKS = 10_000
_UNWELL_SECONDS = 30.0
_RETRY_SECONDS = 1.0
_DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})

_log = get_logger("airunner.store")


class SqliteStore:
    """Implements JobStore on one SQLite file, which one server process owns.

    `owner=False` opens the file beside a running server, for tools: no lock, no change to running jobs. With
    `drop_secrets` a job that ends loses the secret values of its parameters, in the same commit.
    """

    capabilities = Capabilities(strict_fifo=True, redelivery_slack_seconds=0, durable=True)
    payload_links = None
    dead_letters = None
    shared = None
    changes = None
    parts = None

    def __init__(
        self,
        directory: Path,
        clock: Clock,
        *,
        owner: bool = True,
        max_waiting_writes: int = 10_000,
        list_bounds: PageBounds | None = None,
        drop_secrets: bool = False,
    ) -> None:
        self._directory = directory
        self._list_bounds = list_bounds or PageBounds()
        self._drop_secrets = drop_secrets
        self._clock = clock
        self._steps = StepWatch(clock)
        self._owner = owner
        self._max_waiting_writes = max_waiting_writes
        self._refusals = RefusalLog(telemetry.calls_refused, "writes.refused", clock)
        self._lock: IO[bytes] | None = None
        self._writer: GroupCommitWriter | None = None
        self._readers: ThreadPoolExecutor | None = None
        self._local = threading.local()
        self._key_reader: ThreadPoolExecutor | None = None
        self._read_connections: list[sqlite3.Connection] = []
        self._damage = ""
        self._wake: Timer | None = None

    @property
    def commits(self) -> int:
        """How many transactions were committed since the store was opened."""
        return self._writer.commits if self._writer else 0

    @property
    def commit_seconds(self) -> float:
        """How long these commits took, waiting for the disk included."""
        return self._writer.commit_seconds if self._writer else 0.0

    async def open(self) -> None:
        """Take ownership of the file, bring it up to date, and start the threads."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._owner:
            self._lock = lock_folder(self._directory)
        try:
            _prepare(self._directory, owner=self._owner)
            connection = _connect(self._directory / DATABASE)
            at_once.set_up(connection)
        except BaseException:
            self._let_go()
            raise
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="airunner-reader")
        # Every call looks up its key: lists and streams that take long must not hold that up.
        self._key_reader = ThreadPoolExecutor(1, thread_name_prefix="airunner-keys")
        self._writer = GroupCommitWriter(
            connection,
            asyncio.get_running_loop(),
            serve=lambda tx, demand: operations.claim(tx, demand, self._clock.now()),
            on_wake=self._arm,
            max_waiting=self._max_waiting_writes,
        )
        self._writer.start()
        if self._owner:
            now = self._clock.now()
            await self._write(lambda tx: operations.survive_downtime(tx, now))

    async def close(self) -> None:
        """Finish what was accepted, then let go of the file."""
        if self._wake:
            self._wake.cancel()
        if self._writer:
            self._writer.refuse()
            await asyncio.to_thread(self._writer.join)
        for readers in (self._readers, self._key_reader):
            if readers:
                await asyncio.to_thread(readers.shutdown)
        for connection in self._read_connections:
            connection.close()
        self._let_go()

    async def check(self) -> None:
        """Raise if the store cannot answer, or could not write when it last tried. Writes nothing."""
        if self._writer is None or not self._writer.alive:
            raise Unavailable("the store is not open for writing")
        if self._damage:
            raise Unavailable(f"the database is damaged: {self._damage}")
        if failure := self._writer.last_failure(within_seconds=_UNWELL_SECONDS):
            raise Unavailable(f"the store could not write: {failure}")
        await self._read(lambda connection: connection.execute("SELECT 1 FROM jobs LIMIT 1").fetchone())

    async def enqueue_jobs(
        self, jobs: Sequence[NewJob], *, max_queued: int = 0
    ) -> Sequence[Enqueued | AirunnerError]:
        """Add jobs in their order, each with its own outcome."""
        self._refuse_when_full()
        if max_queued:
            return await self._write(lambda tx: operations.enqueue(tx, jobs, max_queued))
        return await self._open_writer.submit_shared(at_once.ENQUEUEING, jobs)

    async def dequeue_jobs(self, demand: Demand) -> Sequence[Job]:
        """Claim jobs, or wait for them."""
        self._refuse_when_full()
        return await self._submit(
            lambda tx: operations.claim(tx, demand, self._clock.now()), demand if demand.waits else None
        )

    async def withdraw(self, demand: Demand) -> None:
        """Make a waiting dequeue answer with nothing."""
        if self._writer:
            await self._writer.withdraw(demand)

    async def extend_job(self, key: AttemptKey, visibility_seconds: int, now: int) -> Lifecycle:
        """Give the holder more time."""
        return await self._write(lambda tx: operations.extend(tx, key, visibility_seconds, now))

    async def append_events(self, key: AttemptKey, events: Sequence[EncodedEvent], now: int) -> Lifecycle:
        """Store the events that continue the attempt."""
        call = at_once.Publication(key, events, now)
        return await self._open_writer.submit_shared(at_once.PUBLISHING, call)

    async def complete_jobs(
        self, completions: Sequence[Completion], now: int
    ) -> Sequence[Lifecycle | AirunnerError]:
        """End jobs, each with its own outcome."""
        return await self._end(lambda tx: bulk.complete(tx, completions, now))

    async def release_job(self, release: Release, now: int) -> Lifecycle:
        """Give a job back."""
        return await self._end(lambda tx: operations.release(tx, release, now))

    async def cancel_job(self, job_id: str, now: int, *, by: str = "", queues: Collection[str] = ()) -> Job:
        """Cancel a job."""
        self._refuse_when_full()
        return await self._end(lambda tx: operations.cancel(tx, job_id, now, by, queues))

    async def get_job(self, job_id: str, *, queues: Collection[str] = (), abridge: bool = False) -> Job:
        """Return a job."""
        job = await self._read(lambda connection: queries.get_job(connection, job_id, queues))
        return abridged(job) if abridge else job

    async def get_life(self, job_id: str, *, queues: Collection[str] = ()) -> Lifecycle:
        """Return the life of a job."""
        return await self._read(lambda connection: queries.get_life(connection, job_id, queues))

    async def list_jobs(self, query: JobQuery, *, queues: Collection[str] = ()) -> JobPage:
        """Return jobs, newest first."""
        return await self._read(
            lambda connection: queries.list_jobs(connection, query, self._list_bounds, queues)
        )

    async def running_jobs(self, cursor: str = "") -> RunningPage:
        """Return a page of the jobs that run."""
        return await self._read(lambda connection: queries.running_jobs(connection, cursor))

    async def list_queues(self, *, after: str = "", limit: int) -> Sequence[QueueStats]:
        """Return queues that were used, by name."""
        return await self._read(lambda connection: queries.list_queues(connection, after, limit))

    async def queue_names(self) -> Collection[str]:
        """Return the names of the queues that were used."""
        return await self._read(queries.queue_names)

    async def set_paused(self, queue: str, *, paused: bool, by: str = "", now: int = 0) -> None:
        """Stop or allow claims from a queue."""
        self._refuse_when_full()
        if paused:
            await self._write(lambda tx: operations.pause(tx, queue, by, now))
        else:
            await self._write(lambda tx: operations.resume(tx, queue))

    async def read_events(self, query: EventQuery) -> EventPage:
        """Return stored events after a position."""
        return await self._read(lambda connection: queries.read_events(connection, query))

    async def purge_jobs(self, before: int, *, limit: int, dry_run: bool = False) -> PurgedJobs:
        """Purge jobs that ended until an instant, or count them."""
        return await self._write(lambda tx: operations.purge_jobs(tx, before, limit=limit, dry_run=dry_run))

    async def maintain(self, retention: Retention, now: int) -> Upkeep:
        """End what nobody may claim any more, and purge what is too old; a bounded part of it."""
        if self._steps.look_due():
            await self._write(lambda tx: operations.recall(tx, now))
        return await self._end(lambda tx: operations.maintain(tx, retention, now))

    async def add_key(self, key: ApiKey) -> None:
        """Keep a new key."""
        await self._write(
            lambda tx: tx.connection.execute(
                f"INSERT INTO api_keys ({rows.KEY}) VALUES (?, ?, ?, ?, ?, ?, ?)",
                rows.key_values(key),
            )
        )

    async def find_key(self, key_id: str) -> ApiKey | None:
        """Return a key, revoked or not."""
        return await self._read(lambda connection: queries.find_key(connection, key_id), self._key_reader)

    async def list_keys(self) -> Sequence[ApiKey]:
        """Return all keys, oldest first."""
        return await self._read(queries.list_keys)

    async def revoke_key(self, key_id: str, now: int) -> bool:
        """Revoke a key; return whether it exists."""
        return await self._write(
            lambda tx: bool(
                tx.connection.execute(
                    "UPDATE api_keys SET revoked_at = iif(revoked_at, revoked_at, ?) WHERE key_id = ?",
                    (now, key_id),
                ).rowcount
            )
        )

    async def read_settings(self, names: Collection[str]) -> Mapping[str, StoredSetting]:
        """Return those of the settings that were ever set."""
        return await self._read(lambda connection: settings.read_settings(connection, names))

    async def change_setting(self, name: str, value: str | None, *, by: str, now: int) -> StoredSetting:
        """Set or unset a setting."""
        return await self._write(
            lambda tx: settings.change_setting(tx.connection, name, value, by=by, now=now)
        )

    def _refuse_when_full(self) -> None:
        """Refuse what may come later as well, while too much waits; what holders of jobs write never is."""
        if self._writer and self._writer.full:
            self._refusals.add(CallRefusal.WAITING_WRITES)
            raise Overloaded("too many writes wait for the disk", retry_after_seconds=_RETRY_SECONDS)

    def _let_go(self) -> None:
        if self._lock:
            self._lock.close()

    async def _end(self, operation: Callable[[Transaction], T]) -> T:
        """Write what may end jobs, and what follows from that."""

        def ended(tx: Transaction) -> T:
            answer = operation(tx)
            operations.drop_secrets(tx)
            return answer

        return await self._write(ended if self._drop_secrets else operation)

    async def _write(self, operation: Callable[[Transaction], T]) -> T:
        # A write that was submitted happens; a caller that is cancelled only does not hear of it.
        return await self._submit(operation)

    def _submit(
        self, operation: Callable[[Transaction], T], demand: Demand | None = None
    ) -> asyncio.Future[T]:
        return self._open_writer.submit(operation, demand)

    @property
    def _open_writer(self) -> GroupCommitWriter:
        if self._writer is None:
            raise Unavailable("the store is not open")
        return self._writer

    async def _read(
        self, query: Callable[[sqlite3.Connection], T], readers: ThreadPoolExecutor | None = None
    ) -> T:
        readers = readers or self._readers
        if readers is None:
            raise Unavailable("the store is not open")
        # From now on: to wait for a reader is to wait for the answer.
        deadline = time.monotonic() + READ_SECONDS
        return await asyncio.get_running_loop().run_in_executor(readers, self._run_query, query, deadline)

    def _run_query(self, query: Callable[[sqlite3.Connection], T], deadline: float) -> T:
        if time.monotonic() > deadline:
            raise _too_late()
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        try:
            if connection is None:
                connection = self._local.connection = connect(self._directory / DATABASE, read_only=True)
                self._read_connections.append(connection)
            connection.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS_BETWEEN_LOOKS)
            return query(connection)
        except sqlite3.Error as error:
            raise self._explain(error) from error

    def _explain(self, error: sqlite3.Error) -> AirunnerError:
        """Return what a failed read is to its caller; remember that the file is damaged, if it is."""
        code = getattr(error, "sqlite_errorcode", None)
        if code == sqlite3.SQLITE_INTERRUPT:
            return _too_late()
        if code in _DAMAGE and not self._damage:
            self._damage = str(error)
            _log.critical("store.damaged", error=self._damage)
        return Unavailable("the store cannot read now")

    def _arm(self, wake_at: int) -> None:
        """Look again when the next job that somebody waits for falls due or lapses."""
        if self._wake:
            self._wake.cancel()
        self._wake = self._clock.call_at(wake_at, self._look_again)

    def _look_again(self) -> None:
        if self._writer:
            self._writer.wake(self._clock.now())


def lock_folder(directory: Path) -> IO[bytes]:
    """Return the lock of a folder, which a server holds as long as it runs; closing it lets the folder go."""
    return _take_lock(directory / _LOCK)


def _too_late() -> DeadlineExceeded:
    return DeadlineExceeded(f"the store did not answer within {READ_SECONDS} s")


def _take_lock(path: Path) -> IO[bytes]:
    handle = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "rb")
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        handle.close()
        raise FailedPrecondition(
            f"another server uses {path.parent}: stop it, or choose another folder with --data-dir"
        ) from None
    return handle


def _prepare(directory: Path, *, owner: bool) -> None:
    """Create the file for its owner's eyes only, and bring it up to date.

    A tool beside a server must not: the server may be an older one that would not know the file any more.
    """
    path = directory / DATABASE
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    connection = _connect(path)
    try:
        if not is_current(connection):
            with nullcontext() if owner else _lock_for_a_moment(directory):
                migrate(connection)
    finally:
        connection.close()


@contextmanager
def _lock_for_a_moment(directory: Path) -> Iterator[None]:
    try:
        lock = lock_folder(directory)
    except FailedPrecondition:
        raise FailedPrecondition(
            f"the database in {directory} is of another version, and its server is running: "
            "restart the server with this version first"
        ) from None
    with lock:
        yield


def _connect(path: Path) -> SqliteConnection:
    try:
        return connect(path)
    except sqlite3.Error as error:
        raise FailedPrecondition(f"{path} cannot be used: {error}") from error
