"""Generations over HTTP: starting, reading, listing, and following them, on a real PostgreSQL."""

from __future__ import annotations

import asyncio
import hashlib
import json
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from airunner.app import build_server
from airunner.config import ConfigError, load_settings
from airunner.domain.clock import SystemClock
from airunner.domain.errors import FailedPrecondition
from airunner.generation.session_api.service import GenerationService
from airunner.postgres.pool import Database
from airunner.rpc.auth import Scope, mint_key
from airunner.server.asgi import AppOptions
from airunner.services.composition import Services
from airunner.stores.memory import MemoryStore
from airunner.testing.conditions import until
from airunner.testing.factories import make_services
from tests.support.generations import begin, finish, news_in, opened
from tests.support.http_client import HttpClient
from tests.support.postgres import rows_of
from tests.support.serving import serve

JSON = {"content-type": "application/json"}
UNKNOWN = "0190f5a4-7c1e-7b3a-9d2f-1b6e5c4d3a21"


class Caller:
    """Somebody with an API key."""

    def __init__(self, url: str, key: str) -> None:
        self._url = f"{url}/v1/generations"
        self._headers = {"authorization": f"Bearer {key}"} if key else {}

    async def start(self, body: object, headers: dict[str, str] = JSON) -> tuple[int, dict[str, Any]]:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        answer = await HttpClient().post(self._url, headers={**self._headers, **headers}, content=content)
        return answer.status, json.loads(bytes(answer.content))

    async def get(self, path: str = "", last_seen: str = "") -> tuple[int, Any]:
        headers = {**self._headers, **({"last-event-id": last_seen} if last_seen else {})}
        answer = await HttpClient().get(f"{self._url}{path}", headers=headers)
        text = bytes(answer.content).decode()
        return answer.status, text if path.endswith("/events") and answer.status == 200 else json.loads(text)

    async def started(self, name: str = "paint") -> str:
        status, answer = await self.start({"name": name, "payload": {"user_id": "42"}})
        assert status == 202
        return str(answer["id"])

    @asynccontextmanager
    async def reading(self, path: str, last_seen: str = "") -> AsyncIterator[Reading]:
        headers = {**self._headers, **({"last-event-id": last_seen} if last_seen else {})}
        async with HttpClient().stream("GET", f"{self._url}{path}", headers=headers) as answer:
            assert answer.status == 200
            reading = Reading(answer.content)
            try:
                yield reading
            finally:
                await reading.close()


class Reading:
    """What has come of a stream so far."""

    def __init__(self, content: Any) -> None:
        self.text = ""
        self._task = asyncio.create_task(self._read(content))

    @property
    def is_over(self) -> bool:
        return self._task.done()

    @property
    def states(self) -> list[tuple[str, str]]:
        return [(data["id"], event) for event, data in news_in(self.text)]

    async def begun(self) -> None:
        await until(lambda: bool(self.text))

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.wait({self._task})

    async def _read(self, content: Any) -> None:
        async for chunk in content:
            self.text += bytes(chunk).decode()


class Stack:
    def __init__(self, url: str, services: Services, generations: GenerationService) -> None:
        self.url = url
        self.services = services
        self.generations = generations

    async def caller(self, name: str = "ann", *scopes: Scope, queues: tuple[str, ...] = ()) -> Caller:
        minted = mint_key(name, scopes or (Scope.READ, Scope.SUBMIT), queues, 0)
        await self.services.store.add_key(minted.key)
        return Caller(self.url, minted.text)


@asynccontextmanager
async def a_stack(dsn: str) -> AsyncIterator[Stack]:
    clock = SystemClock()
    services = make_services(MemoryStore(clock), clock)
    async with (
        opened(services, dsn) as generations,
        serve(services, AppOptions(no_auth=False), generations=generations) as url,
    ):
        yield Stack(url, services, generations)


@pytest.fixture
async def stack(dsn: str) -> AsyncIterator[Stack]:
    async with a_stack(dsn) as running:
        yield running


async def test_a_session_is_started_read_and_listed(stack: Stack, database: Database) -> None:
    ann = await stack.caller()
    status, answer = await ann.start({"name": "paint", "payload": {"prompt": "a boat", "user_id": "42"}})
    assert status == 202
    (row,) = await rows_of(database)
    assert (str(row["id"]), row["queue"], row["name"]) == (answer["id"], "generation", "paint")
    await begin(database, answer["id"])
    await finish(database, answer["id"])
    status, session = await ann.get(f"/{answer['id']}")
    assert status == 200
    assert (session["state"], session["user_id"], session["result"]) == ("done", "42", {"size": 9})
    (image,) = session["images"]
    assert (image["location"], image["content_type"], image["byte_count"]) == (
        "pictures/a.png",
        "image/png",
        9,
    )
    assert image["sha256"] == hashlib.sha256(b"a picture").hexdigest()
    assert session["request"] == {"prompt": "a boat", "user_id": "42"}
    assert [step["step"] for step in session["timeline"]] == ["queued", "running", "done"]
    status, listed = await ann.get()
    assert [(entry["id"], entry["state"]) for entry in listed["generations"]] == [(answer["id"], "done")]


async def test_pages_hold_every_session_once(stack: Stack) -> None:
    ann = await stack.caller()
    ids = [await ann.started(f"paint-{number}") for number in range(5)]
    found: list[str] = []
    token = ""
    for _ in range(3):
        _, page = await ann.get(f"?page_size=2&page_token={token}")
        found += [entry["id"] for entry in page["generations"]]
        token = page["next_page_token"]
    assert (found, token) == (ids[::-1], "")


async def test_a_request_that_is_repeated_is_one_session(stack: Stack, database: Database) -> None:
    ann, bob = await stack.caller(), await stack.caller("bob")
    request = {"name": "paint", "payload": {"prompt": "a boat"}, "request_id": str(uuid.uuid4())}
    assert await ann.start(request) == await ann.start(request) == (202, {"id": request["request_id"]})
    assert (await ann.start({**request, "payload": {}}))[0] == 409
    assert (await bob.start(request))[0] == 409
    assert len(await rows_of(database)) == 1


async def test_sessions_of_others_do_not_exist(stack: Stack, database: Database) -> None:
    ann, bob = await stack.caller(), await stack.caller("bob")
    session_id = await ann.started()
    for path in (f"/{session_id}", f"/{session_id}/events"):
        assert (await bob.get(path))[0] == 404
    assert (await bob.get())[1]["generations"] == []
    # What an application wrote in SQL is read with a key of that name.
    written = await database.fetch_value("SELECT airunner.enqueue('paint', '{}')::text")
    user = await database.fetch_value("SELECT session_user::text")
    of_application = await stack.caller(f"sql:{user}")
    assert (await of_application.get(f"/{written}"))[1]["name"] == "paint"


async def test_each_call_needs_its_scope(stack: Stack) -> None:
    session_id = await (await stack.caller()).started()
    reader, writer = await stack.caller("ann", Scope.READ), await stack.caller("ann", Scope.SUBMIT)
    bound = await stack.caller("ann", Scope.ADMIN, queues=("builds",))
    nobody = Caller(stack.url, "")
    body = {"name": "paint", "payload": {}}
    assert [(await who.start(body))[0] for who in (reader, bound, nobody)] == [403, 403, 401]
    for path in ("", f"/{session_id}", f"/{session_id}/events", "/events"):
        assert [(await who.get(path))[0] for who in (writer, bound, nobody)] == [403, 403, 401], path


BAD_BODIES: list[tuple[object, dict[str, str], int]] = [
    ({"name": "paint", "payload": {}}, {"content-type": "text/plain"}, 415),
    ({"name": "paint", "payload": {}}, {}, 415),
    ({"name": "paint", "payload": {}}, {"content-type": "application/json; charset=utf-8"}, 202),
    (b"{", JSON, 400),
    (b"[1]", JSON, 400),
    (b"\xff", JSON, 400),
    (b'{"name": "a", "name": "b", "payload": 1}', JSON, 400),
    (b'{"name": "paint", "payload": NaN}', JSON, 400),
    (b'{"name": "paint", "payload": "\\ud800"}', JSON, 400),
    (b'{"name": "paint", "payload": "\\u0000"}', JSON, 400),
    (b'{"name": "paint", "payload": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", JSON, 400),
    ({"name": "paint"}, JSON, 400),
    ({"payload": {}}, JSON, 400),
    ({"name": "", "payload": {}}, JSON, 400),
    ({"name": " paint", "payload": {}}, JSON, 400),
    ({"name": 7, "payload": {}}, JSON, 400),
    ({"name": "paint", "payload": {}, "queue": "mails"}, JSON, 400),
    ({"name": "paint", "payload": {}, "delay_seconds": -1}, JSON, 400),
    ({"name": "paint", "payload": {}, "delay_seconds": True}, JSON, 400),
    ({"name": "paint", "payload": {}, "request_id": "x"}, JSON, 400),
    ({"name": "paint", "payload": "x" * 900 * 1024}, JSON, 400),
    ({"name": "paint", "payload": None}, JSON, 202),
]


async def test_bad_input_is_refused(stack: Stack) -> None:
    ann = await stack.caller()
    for body, headers, status in BAD_BODIES:
        answered, answer = await ann.start(body, headers)
        assert answered == status, (body, answer)
        assert answer.get("message") or status == 202


BAD_PATHS = [
    (f"/{UNKNOWN}", 404),
    (f"/{UNKNOWN}/events", 404),
    ("/not-an-id", 400),
    ("/not-an-id/events", 400),
    ("/events?state=done", 400),
    ("?page_size=501", 400),
    ("?page_size=x", 400),
    ("?page_token=1", 400),
    ("?page_token=999999999999999999.0190f5a4-7c1e-7b3a-9d2f-1b6e5c4d3a21", 400),
    ("?pagesize=1", 400),
]


async def test_bad_questions_have_a_status_and_a_reason(stack: Stack) -> None:
    ann = await stack.caller()
    for path, status in BAD_PATHS:
        answered, answer = await ann.get(path)
        assert (answered, bool(answer["message"])) == (status, True), path


async def test_a_message_larger_than_all_is_refused_before_it_is_read(stack: Stack) -> None:
    ann = await stack.caller()
    assert (await ann.start(b"x" * (4 * 1024 * 1024 + 6)))[0] == 429
    assert stack.services.admission.body_bytes == 0


async def test_a_stream_tells_each_state_and_ends(stack: Stack, database: Database) -> None:
    ann = await stack.caller()
    session_id = await ann.started()
    async with ann.reading(f"/{session_id}/events") as reading:
        await reading.begun()
        await begin(database, session_id)
        await until(lambda: reading.states == [(session_id, "running")])
        await finish(database, session_id)
        await until(lambda: reading.text.endswith("event: end\ndata: {}\n\n"))
    (_, last) = news_in(reading.text)[-1]
    assert [state for _, state in reading.states] == ["running", "done"]
    assert (last["result"], len(last["images"])) == ({"size": 9}, 1)
    assert ": still here" in reading.text


async def test_a_reader_of_one_goes_on_after_what_it_has(stack: Stack, database: Database) -> None:
    ann = await stack.caller()
    session_id = await ann.started()
    await begin(database, session_id)
    await finish(database, session_id, "failed")
    for last_seen, states in (("", ["running", "failed"]), ("running", ["failed"]), ("failed", [])):
        status, text = await ann.get(f"/{session_id}/events", last_seen)
        assert (status, [event for event, _ in news_in(text)]) == (200, states)
        assert text.endswith("event: end\ndata: {}\n\n")


async def test_a_cursor_of_another_stream_is_refused(stack: Stack) -> None:
    ann = await stack.caller()
    session_id = await ann.started()
    assert (await ann.get(f"/{session_id}/events", "17"))[0] == 400
    for cursor in ("running", "-1", "9" * 18, "9" * 40):
        assert (await ann.get("/events", cursor))[0] == 400


async def test_a_stream_of_all_tells_the_caller_s_and_nobody_else_s(stack: Stack, database: Database) -> None:
    ann, bob = await stack.caller(), await stack.caller("bob")
    old, new, foreign = await ann.started(), await ann.started(), await bob.started()
    await begin(database, old)
    async with ann.reading("/events") as reading:
        await reading.begun()
        for session_id in (foreign, old, new):
            await finish(database, session_id)
        await until(lambda: len(reading.states) == 2)
    # What was before the stream began is no news.
    assert reading.states == [(old, "done"), (new, "done")]


async def test_a_stream_of_all_that_is_resumed_misses_nothing(stack: Stack, database: Database) -> None:
    ann = await stack.caller()
    ids = [await ann.started() for _ in range(3)]
    async with ann.reading("/events") as reading:
        await reading.begun()
        await finish(database, ids[0])
        await until(lambda: len(reading.states) == 1)
        cursor = reading.text.split("id: ")[-1].split("\n")[0]
    await finish(database, ids[1])
    async with ann.reading("/events", cursor) as reading:
        await until(lambda: {session_id for session_id, _ in reading.states} >= set(ids[:2]))
        await finish(database, ids[2])
        await until(lambda: ids[2] in {session_id for session_id, _ in reading.states})


async def test_sessions_that_commit_late_are_told(stack: Stack, database: Database, dsn: str) -> None:
    """A verdict that another overtakes has an older instant, and is told all the same."""
    ann = await stack.caller()
    slow, quick = await ann.started(), await ann.started()
    async with ann.reading("/events") as reading:
        await reading.begun()
        async with database.transaction() as late:
            await late.execute(
                "UPDATE airunner.generation_sessions SET state = 'done', finished_at = airunner.instant() "
                "WHERE id = $1::text::uuid",
                slow,
            )
            await finish(database, quick)
            await until(lambda: reading.states == [(quick, "done")])
            await late.execute("SELECT pg_notify('session_completed', $1)", slow)
        await until(lambda: reading.states == [(quick, "done"), (slow, "done")])


async def test_news_cross_processes(stack: Stack, dsn: str, database: Database) -> None:
    """Two servers on one database, and keys of the same name at both."""
    async with a_stack(dsn) as other:
        here, there = await stack.caller(), await other.caller()
        session_id = await here.started()
        async with there.reading(f"/{session_id}/events") as one, there.reading("/events") as everything:
            await one.begun()
            await everything.begun()
            await finish(database, session_id)
            await until(lambda: one.states == everything.states == [(session_id, "done")])


@pytest.mark.parametrize("path", ["/{id}/events", "/events"])
async def test_a_stream_of_a_key_that_was_revoked_tells_nothing_more(
    stack: Stack, database: Database, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr("airunner.rpc.auth._TRUSTED_MS", 0)
    ann = await stack.caller()
    session_id = await ann.started()
    async with ann.reading(path.format(id=session_id)) as reading:
        await reading.begun()
        for key in await stack.services.store.list_keys():
            await stack.services.store.revoke_key(key.key_id, 1)
        await begin(database, session_id)
        await until(lambda: reading.is_over)
    assert (reading.states, "event: end" in reading.text) == ([], False)


async def test_a_server_that_shuts_down_does_not_call_it_the_end(stack: Stack) -> None:
    ann = await stack.caller()
    session_id = await ann.started()
    async with ann.reading(f"/{session_id}/events") as one, ann.reading("/events") as everything:
        await one.begun()
        await everything.begun()
        await stack.services.stop()
        await until(lambda: one._task.done() and everything._task.done())
    assert "event: end" not in one.text + everything.text
    assert stack.services.admission.streams == 0


def test_a_server_without_a_database_does_not_offer_them() -> None:
    settings = load_settings(
        environ={}, flags={"services": "jobs,generations", "store.type": "memory"}
    ).settings
    with pytest.raises(ConfigError, match=r"postgres\.dsn"):
        build_server(settings)


async def test_a_schema_that_is_not_migrated_is_refused(empty_dsn: str) -> None:
    clock = SystemClock()
    with pytest.raises(FailedPrecondition, match="airunner outbox migrate"):
        async with opened(make_services(MemoryStore(clock), clock), empty_dsn):
            raise AssertionError
