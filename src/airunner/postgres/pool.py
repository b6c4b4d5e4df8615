"""A database of PostgreSQL: its connections, with a deadline for each thing that is asked of it."""

from __future__ import annotations

import asyncio
import functools
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

import asyncpg

from airunner.domain.errors import FailedPrecondition
from airunner.postgres.errors import translated_errors, translated_opening

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from types import TracebackType

    from asyncpg import Record
    from asyncpg.pool import PoolConnectionProxy

    PooledConnection: TypeAlias = PoolConnectionProxy[Record]

OLDEST_VERSION: Final = 14
_CLOSE_SECONDS: Final = 5.0
# What the client waits for beyond the time-outs of the server, whose answer says more.
_SLACK_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresOptions:
    """Where a database is, who we are there, and how long we wait for it."""

    dsn: str = field(repr=False)
    application_name: str = "airunner"
    """What pg_stat_activity shows of each connection."""
    is_pooled: bool = False
    """Whether a pooler is in between that gives each transaction another connection: then nothing is
    prepared, and time-outs of the server hold within transactions only."""
    max_connections: int = 5
    connect_seconds: float = 5.0
    statement_seconds: float = 10.0
    lock_seconds: float = 5.0

    @property
    def timeouts(self) -> dict[str, str]:
        """The time-outs that the server enforces, by the names of their settings."""
        return {
            "statement_timeout": _milliseconds(self.statement_seconds),
            "lock_timeout": _milliseconds(self.lock_seconds),
            "idle_in_transaction_session_timeout": _milliseconds(self.statement_seconds),
        }


class Database:
    """Connections to one database, opened as they are needed and closed with it.

    What fails is one of our own errors: Unavailable is for what may pass, a deadline included. A statement
    that got no answer in time is cancelled; whether it happened is not known. Nobody changes the settings of
    a session: its connection is handed to the next one as it is.
    """

    def __init__(self, options: PostgresOptions) -> None:
        self._options = options
        self._pool: asyncpg.Pool[Record] | None = None

    async def open(self) -> None:
        """Connect; FailedPrecondition if the server is too old or the address is none."""
        with translated_opening():
            pool = asyncpg.create_pool(
                **connection_arguments(self._options),
                min_size=1,
                max_size=self._options.max_connections,
                reset=_leave_as_it_is,
            )
            async with asyncio.timeout(self._options.connect_seconds + _SLACK_SECONDS):
                await pool
        self._pool = pool
        try:
            async with self._connection() as connection:
                _check_version(connection.get_server_version().major)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Close all connections, by force if they are not free in time. Harmless when repeated."""
        pool, self._pool = self._pool, None
        if pool is None:
            return
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await pool.close()
        except (TimeoutError, OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            pool.terminate()

    async def fetch(self, statement: str, *values: object) -> list[Record]:
        """Return the rows that a statement, a transaction of its own, answers with."""
        async with self._connection() as connection:
            return await connection.fetch(statement, *values, timeout=self._patience)

    async def fetch_value(self, statement: str, *values: object) -> Any:
        """Return the first value of the first row, None if there is none."""
        async with self._connection() as connection:
            return await connection.fetchval(statement, *values, timeout=self._patience)

    async def execute(self, statement: str, *values: object) -> str:
        """Do a statement, a transaction of its own; return its status, such as `UPDATE 3`."""
        async with self._connection() as connection:
            return await connection.execute(statement, *values, timeout=self._patience)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[PooledConnection]:
        """Give a connection within a transaction, which ends with the block; an error undoes it.

        Each statement in it has the deadline of the options, unless it brings its own.
        """
        async with self._connection() as connection, connection.transaction():
            if self._options.is_pooled:
                await connection.execute(_local_settings(self._options))
            yield connection

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def _patience(self) -> float:
        return self._options.statement_seconds + _SLACK_SECONDS

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[PooledConnection]:
        if self._pool is None:
            raise FailedPrecondition("the database is not open")
        with translated_errors():
            async with self._pool.acquire(timeout=self._options.connect_seconds) as connection:
                yield connection


async def connect(options: PostgresOptions) -> asyncpg.Connection[Record]:
    """Open a connection of its own, which whoever asked closes."""
    with translated_opening():
        return await asyncpg.connect(**connection_arguments(options))


def connection_arguments(options: PostgresOptions) -> dict[str, Any]:
    """Return what the driver opens connections with."""
    settings = {} if options.is_pooled else options.timeouts
    return {
        "dsn": options.dsn,
        "timeout": options.connect_seconds,
        "command_timeout": options.statement_seconds + _SLACK_SECONDS,
        "statement_cache_size": 0 if options.is_pooled else 100,
        "server_settings": {"application_name": options.application_name, **settings},
    }


async def _leave_as_it_is(_connection: object) -> None:
    """Spare the statements that undo what nobody does."""


def _check_version(major: int) -> None:
    if major < OLDEST_VERSION:
        raise FailedPrecondition(f"PostgreSQL {OLDEST_VERSION} or newer is needed, this is {major}")


@functools.cache
def _local_settings(options: PostgresOptions) -> str:
    return "; ".join(f"SET LOCAL {name} = {value}" for name, value in options.timeouts.items())


def _milliseconds(seconds: float) -> str:
    return str(int(seconds * 1000))
