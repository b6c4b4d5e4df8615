"""PostgreSQL for tests: one server for each test process, a migrated database for each test."""

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


@pytest.fixture(scope="session")
def postgres() -> Iterator[LocalPostgres]:
    """One for each process of the tests; each test has a database of its own in it."""
    with LocalPostgres() as running:
        yield running


@pytest.fixture
async def empty_dsn(postgres: LocalPostgres) -> AsyncIterator[str]:
    """The address of a database with nothing in it."""
    async with new_database(postgres, "template0") as dsn:
        yield dsn


@pytest.fixture
async def dsn(postgres: LocalPostgres) -> AsyncIterator[str]:
    """The address of a database with the schema of the outbox."""
    await _make_template(postgres)
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


async def _make_template(postgres: LocalPostgres) -> None:
    connection = await asyncpg.connect(postgres.dsn())
    try:
        if await connection.fetchval("SELECT true FROM pg_database WHERE datname = $1", TEMPLATE):
            return
        await connection.execute(f"CREATE DATABASE {TEMPLATE} TEMPLATE template0")
    finally:
        await connection.close()
    async with Database(PostgresOptions(dsn=postgres.dsn(TEMPLATE))) as database:
        await migrate_outbox(database, "airunner")
