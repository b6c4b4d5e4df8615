"""Enqueueing from Python, in the transaction of the caller: a thin wrapper of the SQL function."""

from __future__ import annotations

import json
import uuid
from typing import Any, Final, Protocol

from airunner.domain.errors import InvalidArgument
from airunner.domain.limits import check_uuid
from airunner.outbox.schema import GENERATION_QUEUE
from airunner.postgres.identifiers import quote_identifier

DEFAULT_SCHEMA: Final = "airunner"


class AsyncpgConnection(Protocol):
    """A connection of asyncpg, or one of its pool."""

    async def fetchval(self, query: str, *args: Any) -> Any:
        """Return the first value of the first row."""


class DbApiCursor(Protocol):
    """A cursor of the DB-API, with `%s` for values."""

    def execute(self, operation: str, parameters: Any, /) -> Any:
        """Do a statement."""

    def fetchone(self) -> Any:
        """Return the next row."""

    def close(self) -> Any:
        """Give the cursor up."""


class DbApiConnection(Protocol):
    """A connection of psycopg, psycopg2 or Django."""

    def cursor(self) -> DbApiCursor:
        """Return a new cursor."""


async def enqueue_generation(
    connection: AsyncpgConnection,
    name: str,
    payload: object,
    *,
    queue: str = GENERATION_QUEUE,
    delay_seconds: int = 0,
    request_id: str | uuid.UUID | None = None,
    schema: str = DEFAULT_SCHEMA,
) -> str:
    """Enqueue work for a handler in the transaction of an asyncpg connection; return its id.

    It is done if and only if the transaction commits. The payload is any JSON value of up to 900 KiB. The
    same `request_id` with the same content returns the id and writes nothing; with other content it raises
    the driver's UniqueViolationError.
    """
    # As texts: the connection may have its own codecs for jsonb and uuid.
    statement = (
        f"SELECT {quote_identifier(schema)}.enqueue"
        "($1::text, $2::text::jsonb, $3::text, $4::integer, $5::text::uuid)::text"
    )
    values = _values(name, payload, queue, delay_seconds, request_id)
    return str(await connection.fetchval(statement, *values))


def enqueue_generation_sync(
    connection: DbApiConnection,
    name: str,
    payload: object,
    *,
    queue: str = GENERATION_QUEUE,
    delay_seconds: int = 0,
    request_id: str | uuid.UUID | None = None,
    schema: str = DEFAULT_SCHEMA,
) -> str:
    """Enqueue work for a handler in the transaction of a DB-API connection; return its id.

    For psycopg, psycopg2 and Django's `connection`. Otherwise it is as `enqueue_generation`.
    """
    function = f"{quote_identifier(schema)}.enqueue".replace("%", "%%")
    statement = f"SELECT {function}(%s::text, %s::text::jsonb, %s::text, %s::integer, %s::text::uuid)::text"
    cursor = connection.cursor()
    try:
        cursor.execute(statement, _values(name, payload, queue, delay_seconds, request_id))
        return str(cursor.fetchone()[0])
    finally:
        cursor.close()


def _values(
    name: str, payload: object, queue: str, delay_seconds: int, request_id: str | uuid.UUID | None
) -> tuple[str, str, str, int, str]:
    try:
        text = json.dumps(payload, allow_nan=False, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"payload must be a JSON value: {error}") from error
    checked_id = check_uuid(str(request_id), "request_id") if request_id else str(uuid.uuid4())
    return name, text, queue, delay_seconds, checked_id
