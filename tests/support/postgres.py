"""PostgreSQL for tests: one server for each test process, a database for each test."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from airunner.local.postgres import LocalPostgres
from airunner.outbox.schema import migrate_outbox
from airunner.postgres.pool import Database, PostgresOptions

TEMPLATE = "migrated"
# What makes a database as it was: making one takes the server ten times as long.
_EMPTY = """
DO $$DECLARE found name; BEGIN
    FOR found IN SELECT nspname FROM pg_namespace
        WHERE nspname NOT LIKE 'pg\\_%' AND nspname <> 'information_schema' LOOP
        EXECUTE format('DROP SCHEMA %I CASCADE', found);
    END LOOP;
    CREATE SCHEMA public;
END$$
"""
_EMPTY_OUTBOX = """
DELETE FROM airunner.outbox; DELETE FROM airunner.outbox_effects; DELETE FROM airunner.generation_sessions;
DELETE FROM airunner.outbox_relays; DELETE FROM airunner.app_settings;
DELETE FROM airunner.app_settings_history;
CREATE OR REPLACE FUNCTION airunner.instant() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE
    AS 'SELECT pg_catalog.statement_timestamp()';
"""
_OTHERS = """
SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


class DatabasePool:
    """Databases that the tests of a process use one after the other, each emptied before it is lent again."""

    def __init__(self, postgres: LocalPostgres) -> None:
        self._postgres = postgres
        self._idle: dict[str, list[str]] = {}
        self._has_template = False

    @asynccontextmanager
    async def lent(self, template: str, empty: str) -> AsyncIterator[str]:
        idle = self._idle.setdefault(template, [])
        name = idle.pop() if idle else await self._make(template)
        yield self._postgres.dsn(name)
        connection = await asyncpg.connect(self._postgres.dsn(name))
        await connection.execute(_OTHERS)
        await connection.execute(empty)
        await connection.close()
        idle.append(name)

    async def make_template(self) -> None:
        """Make the database that others are copies of, once."""
        if self._has_template:
            return
        await administer(self._postgres, f"CREATE DATABASE {TEMPLATE} TEMPLATE template0")
        async with Database(PostgresOptions(dsn=self._postgres.dsn(TEMPLATE))) as database:
            await migrate_outbox(database, "airunner")
        self._has_template = True

    async def _make(self, template: str) -> str:
        if template == TEMPLATE:
            await self.make_template()
        name = f"t{secrets.token_hex(6)}"
        await administer(self._postgres, f"CREATE DATABASE {name} TEMPLATE {template}")
        return name


@pytest.fixture(scope="session")
def postgres() -> Iterator[LocalPostgres]:
    """One for each process of the tests; each test has a database of its own in it."""
    with LocalPostgres() as running:
        yield running


@pytest.fixture(scope="session")
def database_pool(postgres: LocalPostgres) -> DatabasePool:
    return DatabasePool(postgres)


@pytest.fixture
async def empty_dsn(database_pool: DatabasePool) -> AsyncIterator[str]:
    """The address of a database with nothing in it."""
    async with database_pool.lent("template0", _EMPTY) as dsn:
        yield dsn


@pytest.fixture
async def dsn(database_pool: DatabasePool) -> AsyncIterator[str]:
    """The address of a database with the schema of the outbox, and no rows."""
    async with database_pool.lent(TEMPLATE, _EMPTY_OUTBOX) as dsn:
        yield dsn


@pytest.fixture
async def unshared_dsn(postgres: LocalPostgres, database_pool: DatabasePool) -> AsyncIterator[str]:
    """The same for a test that changes rights or tables: nobody has it afterwards."""
    await database_pool.make_template()
    async with new_database(postgres, TEMPLATE) as dsn:
        yield dsn


@pytest.fixture
async def database(dsn: str) -> AsyncIterator[Database]:
    async with Database(PostgresOptions(dsn=dsn)) as opened:
        yield opened


@asynccontextmanager
async def new_database(postgres: LocalPostgres, template: str) -> AsyncIterator[str]:
    """Make a database, and remove it however many still use it."""
    name = f"t{secrets.token_hex(6)}"
    await administer(postgres, f"CREATE DATABASE {name} TEMPLATE {template}")
    try:
        yield postgres.dsn(name)
    finally:
        await administer(postgres, f"DROP DATABASE {name} WITH (FORCE)")


async def administer(postgres: LocalPostgres, *statements: str) -> None:
    """Do something on the server itself."""
    connection = await asyncpg.connect(postgres.dsn())
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


async def pass_time(database: Database, **interval: float) -> None:
    """Set the clock of the outbox ahead of the real one, by so much altogether: `days=3`."""
    ((unit, amount),) = interval.items()
    await database.execute(
        "CREATE OR REPLACE FUNCTION airunner.instant() RETURNS timestamptz LANGUAGE sql STABLE AS "
        f"$$SELECT pg_catalog.statement_timestamp() + interval '{amount} {unit}'$$"
    )


async def rows_of(database: Database, columns: str = "*", table: str = "outbox") -> list[dict[str, Any]]:
    found = await database.fetch(f"SELECT {columns} FROM airunner.{table} ORDER BY 1")  # noqa: S608  names of tests
    return [dict(row) for row in found]
