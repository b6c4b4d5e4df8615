"""The tables and functions in the application's database, in steps, and who may use them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from airunner.outbox.schema_sql import STEP_1
from airunner.postgres.identifiers import quote_identifier
from airunner.postgres.migrations import Migration, check_schema, migrate, render_sql

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airunner.postgres.pool import Database

GENERATION_QUEUE: Final = "generation"
"""The queue whose rows have sessions and get verdicts."""
WAKE_UP_CHANNEL: Final = "airunner_outbox"
"""What enqueue notifies while a relay waits."""
MIGRATIONS: Final = (Migration(number=1, name="outbox and sessions", oldest_program=1, sql=STEP_1),)
MIGRATE_COMMAND: Final = "airunner outbox migrate"

_APP_FUNCTION: Final = "enqueue(text, jsonb, text, integer, uuid)"
_SERVER_FUNCTION: Final = "enqueue_as(text, text, jsonb, text, integer, uuid)"


async def migrate_outbox(
    database: Database, schema: str, *, app_roles: Sequence[str] = (), server_roles: Sequence[str] = ()
) -> list[Migration]:
    """Bring the schema up to date and grant roles what they need; return the steps that it lacked.

    May be repeated: with other roles, these are added.
    """
    taken = await migrate(database, schema, MIGRATIONS)
    async with database.transaction() as connection:
        for statement in grants(schema, app_roles=app_roles, server_roles=server_roles):
            await connection.execute(statement)
    return taken


async def check_outbox(database: Database, schema: str) -> None:
    """Refuse a schema that is not migrated, or that needs a newer airunner."""
    await check_schema(database, schema, MIGRATIONS, command=MIGRATE_COMMAND)


def outbox_sql(schema: str, *, app_roles: Sequence[str] = (), server_roles: Sequence[str] = ()) -> str:
    """Return what `migrate_outbox` does to an empty schema, as a script."""
    granted = grants(schema, app_roles=app_roles, server_roles=server_roles)
    return render_sql(schema, MIGRATIONS, granted)


def grants(schema: str, *, app_roles: Sequence[str], server_roles: Sequence[str]) -> list[str]:
    """Return the statements that let roles use the schema.

    An application may enqueue under its own name, and sees no table. A server, a relay or a worker that is
    not the owner may read and write all tables, and enqueue in the name of its callers.
    """
    place = quote_identifier(schema)
    statements = []
    for role in map(quote_identifier, [*app_roles, *server_roles]):
        statements += [
            f"GRANT USAGE ON SCHEMA {place} TO {role}",
            f"GRANT EXECUTE ON FUNCTION {place}.{_APP_FUNCTION} TO {role}",
        ]
    for role in map(quote_identifier, server_roles):
        statements += [
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {place} TO {role}",
            f"GRANT EXECUTE ON FUNCTION {place}.{_SERVER_FUNCTION} TO {role}",
            f"GRANT EXECUTE ON FUNCTION {place}.instant() TO {role}",
        ]
    return statements
