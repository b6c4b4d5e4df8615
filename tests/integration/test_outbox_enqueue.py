"""Enqueueing in the transaction of an application: from SQL, asyncpg and psycopg."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator

import asyncpg
import psycopg
import pytest

from airunner import InvalidArgument, enqueue_generation, enqueue_generation_sync
from airunner.generation.sessions import SessionTable
from airunner.generation.verdict import Success
from airunner.local.postgres import LocalPostgres
from airunner.outbox.schema import check_outbox, migrate_outbox, outbox_sql
from airunner.outbox.table import OutboxTable
from airunner.postgres.pool import Database, PostgresOptions
from airunner.testing.conditions import until
from tests.support.postgres import administer, rows_of

HOSTILE_SCHEMA = 'we"ird $$ %s {schema}'
BIG = 900 * 1024


@pytest.fixture
async def application(dsn: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(dsn)
    yield connection
    await connection.close()


async def test_the_row_holds_the_whole_body_and_the_session_is_queued(
    application: asyncpg.Connection, database: Database
) -> None:
    payload = {"prompt": "grüße\u2028", "user_id": "u1", "outputs": 3}
    async with application.transaction():
        row_id = await enqueue_generation(application, "Paint", payload)
    (row,) = await rows_of(database, "*, payload::text AS body")
    assert json.loads(row["body"]) == {"id": row_id, "name": "Paint", "payload": payload}
    assert (row["queue"], row["state"], row["attempts"], row["claimed_until"]) == (
        "generation",
        "pending",
        0,
        None,
    )
    (session,) = await rows_of(database, table="generation_sessions")
    assert (str(session["id"]), session["state"], session["principal"]) == (row_id, "queued", "sql:airunner")
    assert (session["user_id"], session["outputs"], session["name"]) == ("u1", 3, "Paint")
    assert json.loads(session["request"]) == payload


async def test_nothing_is_enqueued_by_a_transaction_that_fails(
    application: asyncpg.Connection, database: Database
) -> None:
    transaction = application.transaction()
    await transaction.start()
    await enqueue_generation(application, "paint", {})
    await transaction.rollback()
    assert await rows_of(database) == []
    assert await rows_of(database, table="generation_sessions") == []


async def test_other_queues_have_no_sessions(application: asyncpg.Connection, database: Database) -> None:
    await enqueue_generation(application, "mail", [1, None], queue="mails", delay_seconds=60)
    (row,) = await rows_of(database, "queue, due_at - created_at AS delay")
    assert (row["queue"], row["delay"].total_seconds()) == ("mails", 60)
    assert await rows_of(database, table="generation_sessions") == []


@pytest.mark.parametrize("queue", ["generation", "mails"])
async def test_the_same_id_with_the_same_content_writes_nothing(
    application: asyncpg.Connection, database: Database, queue: str
) -> None:
    wanted = str(uuid.uuid4())
    for _ in range(2):
        assert await enqueue_generation(application, "a", {"b": 1}, queue=queue, request_id=wanted) == wanted
    assert len(await rows_of(database)) == 1
    for other in ({"name": "c"}, {"payload": {"b": 2}}, {"queue": "third"}):
        arguments = {"name": "a", "payload": {"b": 1}, "queue": queue, **other}
        with pytest.raises(asyncpg.UniqueViolationError):
            await enqueue_generation(application, request_id=wanted, **arguments)  # type: ignore[arg-type]  # mixed
    assert len(await rows_of(database)) == 1


async def test_an_id_stays_taken_while_its_session_or_its_verdict_is_there(
    application: asyncpg.Connection, database: Database
) -> None:
    wanted = await enqueue_generation(application, "a", {})
    await SessionTable(database, "airunner").settle(wanted, Success())
    await database.execute("DELETE FROM airunner.outbox")
    assert await enqueue_generation(application, "a", {}, request_id=wanted) == wanted
    assert await rows_of(database) == []
    # What has had its effect would never be run: it is refused, not taken.
    await database.execute("DELETE FROM airunner.generation_sessions")
    with pytest.raises(asyncpg.UniqueViolationError):
        await enqueue_generation(application, "a", {}, request_id=wanted)
    assert await rows_of(database, "id", "generation_sessions") == []
    await database.execute("DELETE FROM airunner.outbox_effects")
    assert await enqueue_generation(application, "a", {}, request_id=wanted) == wanted
    assert len(await rows_of(database)) == 1


async def test_another_principal_does_not_get_the_id_of_somebody(
    application: asyncpg.Connection, database: Database
) -> None:
    wanted = await enqueue_generation(application, "a", {})
    statement = "SELECT airunner.enqueue_as($1, 'a', '{}', 'generation', 0, $2)"
    with pytest.raises(asyncpg.UniqueViolationError):
        await application.fetchval(statement, "mallory", uuid.UUID(wanted))
    mine = await application.fetchval(statement, "alice", uuid.uuid4())
    found = await rows_of(database, "id, principal", "generation_sessions")
    assert {row["id"]: row["principal"] for row in found}[mine] == "alice"


@pytest.mark.parametrize("same", [True, False])
async def test_two_transactions_with_one_id_end_well(dsn: str, database: Database, same: bool) -> None:
    wanted = str(uuid.uuid4())
    first, second = await asyncpg.connect(dsn), await asyncpg.connect(dsn)
    transaction = first.transaction()
    await transaction.start()
    await enqueue_generation(first, "a", {"b": 1}, request_id=wanted)
    waiting = asyncio.create_task(enqueue_generation(second, "a", {"b": 1 if same else 2}, request_id=wanted))

    async def is_blocked() -> bool:
        return bool(await database.fetch_value("SELECT count(*) FROM pg_locks WHERE NOT granted"))

    while not await is_blocked():
        pass
    await transaction.commit()
    if same:
        assert await waiting == wanted
    else:
        with pytest.raises(asyncpg.UniqueViolationError):
            await waiting
    assert len(await rows_of(database)) == 1
    await first.close()
    await second.close()


async def test_a_strict_transaction_that_cannot_see_the_first_one_is_told_to_try_again(dsn: str) -> None:
    first, second = await asyncpg.connect(dsn), await asyncpg.connect(dsn)
    transaction = second.transaction(isolation="repeatable_read")
    await transaction.start()
    await second.fetchval("SELECT 1")
    wanted = await enqueue_generation(first, "a", {})
    with pytest.raises(asyncpg.SerializationError):
        await enqueue_generation(second, "a", {}, request_id=wanted)
    await transaction.rollback()
    assert await enqueue_generation(second, "a", {}, request_id=wanted) == wanted
    await first.close()
    await second.close()


async def test_what_cannot_be_work_is_refused_in_its_transaction(
    application: asyncpg.Connection, database: Database
) -> None:
    refused: list[dict[str, object]] = [
        {"payload": "x" * BIG},
        {"name": ""},
        {"name": " a"},
        {"name": "a" * 129},
        {"queue": ""},
        {"queue": "a b"},
        {"delay_seconds": -1},
        {"delay_seconds": 2_592_001},
    ]
    for wrong in refused:
        arguments = {"name": "a", "payload": {}, **wrong}
        with pytest.raises(asyncpg.DataError):
            await enqueue_generation(application, **arguments)  # type: ignore[arg-type]  # mixed
    with pytest.raises(asyncpg.NullValueNotAllowedError):
        await application.fetchval("SELECT airunner.enqueue('a', NULL)")
    for payload in (object(), float("nan")):
        with pytest.raises(InvalidArgument):
            await enqueue_generation(application, "a", payload)
    with pytest.raises(InvalidArgument):
        await enqueue_generation(application, "a", {}, request_id="no uuid")
    assert await rows_of(database) == []
    await enqueue_generation(application, "a", "x" * (BIG - 2))


async def test_codecs_of_the_application_do_not_matter(application: asyncpg.Connection) -> None:
    await application.set_type_codec("jsonb", schema="pg_catalog", encoder=json.dumps, decoder=json.loads)
    await application.set_type_codec("uuid", schema="pg_catalog", encoder=str, decoder=str)
    row_id = await enqueue_generation(application, "a", {"b": "c"})
    body = await application.fetchval("SELECT payload FROM airunner.outbox")
    assert body == {"id": row_id, "name": "a", "payload": {"b": "c"}}


async def test_psycopg_enqueues_in_its_transaction(dsn: str, database: Database) -> None:
    def enqueue(*, commit: bool) -> str:
        with psycopg.connect(dsn) as connection:
            row_id = enqueue_generation_sync(connection, "a", {"percent": "100 %s"}, request_id=uuid.uuid4())
            if not commit:
                connection.rollback()
            return row_id

    await asyncio.to_thread(enqueue, commit=False)
    row_id = await asyncio.to_thread(enqueue, commit=True)
    (row,) = await rows_of(database, "id, payload -> 'payload' ->> 'percent' AS percent")
    assert (str(row["id"]), row["percent"]) == (row_id, "100 %s")


async def test_roles_may_do_what_they_are_for_and_nothing_else(
    postgres: LocalPostgres, unshared_dsn: str
) -> None:
    roles = ("shop", "thief", "host")
    for role in roles:
        await administer(postgres, f"DROP ROLE IF EXISTS {role}", f"CREATE ROLE {role} LOGIN")
    dsns = {role: unshared_dsn.replace("//airunner@", f"//{role}@") for role in roles}
    async with Database(PostgresOptions(dsn=unshared_dsn)) as owner:
        await migrate_outbox(owner, "airunner", app_roles=["shop"], server_roles=["host"])
    shop = await asyncpg.connect(dsns["shop"])
    # Objects of somebody's own in the way of the function's.
    await shop.execute("CREATE TEMP TABLE outbox (id integer)")
    await enqueue_generation(shop, "a", {})
    for statement in (
        "SELECT * FROM airunner.outbox",
        "SELECT airunner.enqueue_as('alice', 'a', '{}')",
        "SELECT airunner.write_outbox('alice', 'a', '{}', 'q', 0, gen_random_uuid())",
    ):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await shop.execute(statement)
    thief = await asyncpg.connect(dsns["thief"])
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await enqueue_generation(thief, "a", {})
    async with Database(PostgresOptions(dsn=dsns["host"])) as server:
        await check_outbox(server, "airunner")
        await server.execute("SELECT airunner.enqueue_as('alice', 'a', '{}')")
        assert len(await OutboxTable(server, "airunner").claim(10)) == 2
        principals = [row["principal"] for row in await rows_of(server, "principal", "generation_sessions")]
    assert principals == ["alice", "sql:shop"]
    await shop.close()
    await thief.close()


async def test_the_schema_may_have_any_name_and_the_script_is_the_same(empty_dsn: str) -> None:
    async with Database(PostgresOptions(dsn=empty_dsn)) as database:
        await database.execute(outbox_sql(HOSTILE_SCHEMA))
        await check_outbox(database, HOSTILE_SCHEMA)
        assert await migrate_outbox(database, HOSTILE_SCHEMA) == []
    connection = await asyncpg.connect(empty_dsn)
    await enqueue_generation(connection, "a", {}, schema=HOSTILE_SCHEMA)
    await connection.close()

    def enqueue() -> None:
        with psycopg.connect(empty_dsn) as other:
            enqueue_generation_sync(other, "a", {}, schema=HOSTILE_SCHEMA)

    await asyncio.to_thread(enqueue)


async def test_a_notification_is_sent_only_while_a_relay_waits(
    application: asyncpg.Connection, database: Database, dsn: str
) -> None:
    heard: list[object] = []
    listener = await asyncpg.connect(dsn)
    await listener.add_listener("airunner_outbox", lambda *_: heard.append(1))
    await enqueue_generation(application, "a", {})
    await database.execute(
        "INSERT INTO airunner.outbox_relays VALUES ('gone', airunner.instant() - interval '1 second')"
    )
    await enqueue_generation(application, "a", {})
    await database.execute(
        "INSERT INTO airunner.outbox_relays VALUES ('r', airunner.instant() + interval '1 hour')"
    )
    await enqueue_generation(application, "a", {}, delay_seconds=60)
    async with application.transaction():
        for _ in range(3):
            await enqueue_generation(application, "a", {})
    await until(lambda: heard != [])
    assert len(heard) == 1
    await listener.close()
