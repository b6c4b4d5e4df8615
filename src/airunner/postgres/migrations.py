"""Schemas in numbered steps: applied in order, once each, by one program at a time.

The table `schema_version` of the schema has a row for each step. A step says which is the oldest airunner
that works with it: so a program tells a newer schema that it can use from one that it cannot.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from airunner.domain.errors import FailedPrecondition
from airunner.postgres.identifiers import quote_identifier

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airunner.postgres.pool import Database

SCHEMA_PLACEHOLDER: Final = "{schema}"
"""Stands for the quoted name of the schema in the text of a step; not for use within function bodies."""
# Of all that airunner may ever lock in a database of somebody else.
_LOCK: Final = 0x6169_7275_6E01

_BEGIN: Final = """\
CREATE SCHEMA IF NOT EXISTS {schema};
CREATE TABLE IF NOT EXISTS {schema}.schema_version (
    version integer PRIMARY KEY,
    name text NOT NULL,
    oldest_program integer NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """One step."""

    number: int
    name: str
    oldest_program: int
    """The number of the last step that the oldest program knew which works with this one."""
    sql: str

    def render(self, schema: str) -> str:
        """Return the SQL of the step and of the row that says that it was taken."""
        quoted = quote_identifier(schema)
        row = f"({self.number}, '{self.name}', {self.oldest_program})"
        note = f"INSERT INTO {quoted}.schema_version (version, name, oldest_program) VALUES {row};"  # noqa: S608  numbers and names of ours
        return f"{self.sql.replace(SCHEMA_PLACEHOLDER, quoted)}\n{note}\n"


async def migrate(database: Database, schema: str, migrations: Sequence[Migration]) -> list[Migration]:
    """Take the steps that the schema lacks, all or none; return them. May be repeated, also at once.

    Unavailable when somebody else holds the lock, or a lock that a step needs, for longer than the database's
    lock time-out.
    """
    quoted = quote_identifier(schema)
    async with database.transaction() as connection:
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
        await connection.execute(_BEGIN.replace(SCHEMA_PLACEHOLDER, quoted))
        found = await connection.fetch(f"SELECT version, oldest_program FROM {quoted}.schema_version")  # noqa: S608  quoted
        _check_not_newer(schema, [(row["version"], row["oldest_program"]) for row in found], migrations)
        missing = [entry for entry in migrations if entry.number not in {row["version"] for row in found}]
        for migration in missing:
            await connection.execute(migration.render(schema))
    return missing


async def check_schema(
    database: Database, schema: str, migrations: Sequence[Migration], *, command: str
) -> None:
    """Refuse, with FailedPrecondition, a schema that lacks a step or that needs a newer program."""
    quoted = quote_identifier(schema)
    is_there = await database.fetch_value("SELECT to_regclass($1)", f"{quoted}.schema_version")
    statement = f"SELECT version, oldest_program FROM {quoted}.schema_version"  # noqa: S608  quoted
    found = await database.fetch(statement) if is_there else []
    _check_not_newer(schema, [(row["version"], row["oldest_program"]) for row in found], migrations)
    if not {entry.number for entry in migrations} <= {row["version"] for row in found}:
        raise FailedPrecondition(f"schema {schema} is not migrated: run '{command}'")


def render_sql(schema: str, migrations: Sequence[Migration], grants: Sequence[str] = ()) -> str:
    """Return all steps as a script for an empty schema, for those who let nobody else change theirs."""
    begin = _BEGIN.replace(SCHEMA_PLACEHOLDER, quote_identifier(schema))
    steps = [migration.render(schema) for migration in migrations]
    return "\n".join(["BEGIN;", begin, *steps, *(f"{grant};" for grant in grants), "COMMIT;\n"])


def _check_not_newer(schema: str, found: Sequence[tuple[int, int]], migrations: Sequence[Migration]) -> None:
    known = max(entry.number for entry in migrations)
    if any(version > known and oldest_program > known for version, oldest_program in found):
        newest = max(version for version, _ in found)
        raise FailedPrecondition(
            f"schema {schema} is of version {newest} and needs a newer airunner; this one knows {known}"
        )
