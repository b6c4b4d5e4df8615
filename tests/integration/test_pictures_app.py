"""The application of examples/generation on a real PostgreSQL, with a real server and its own handlers."""

from __future__ import annotations

import asyncio
import json
import re
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from airunner import PermanentFailure
from airunner.domain.clock import SystemClock
from airunner.generation.sessions import SessionTable
from airunner.handlers.loading import load_handlers
from airunner.outbox.table import OutboxTable
from airunner.postgres.pool import Database
from airunner.queues.memory import MemoryQueue
from airunner.rpc.auth import Scope, mint_key
from airunner.server.asgi import AppOptions
from airunner.stores.memory import MemoryStore
from airunner.testing.conditions import until
from airunner.testing.factories import make_services
from pictures import app as application
from pictures import database as tables
from pictures import painting
from pictures.provider import MockProvider, ProviderFailed
from pictures.storage import S3Storage, storage_at
from tests.doubles.aws.emulator import ACCESS_KEY, REGION, SECRET_KEY, EmulatorProcess
from tests.support import aws
from tests.support.faulty_proxy import unused_url
from tests.support.generation import enqueue, letters, make_consumer, send_all, until_sessions, working
from tests.support.generations import news_in, opened
from tests.support.http_client import HttpClient
from tests.support.postgres import rows_of
from tests.support.serving import serve

JSON = {"content-type": "application/json"}
USER = "airunner"  # who the tests are to PostgreSQL
BAD_ORDERS = [
    (b" " * 10_001, 413),
    (b"not JSON", 400),
    (b"[" * 9_000, 400),
    (b'["a boat"]', 400),
    (b'{"id": "7", "prompt": "a boat"}', 400),
    (b'{"id": "NEW", "prompt": " "}', 400),
    (b'{"id": "NEW", "prompt": 7}', 400),
    (b'{"id": "NEW", "prompt": "a \\u0000 boat"}', 400),
    (b'{"id": "NEW", "prompt": "a \\ud800 boat"}', 400),
    (b'{"id": "NEW", "prompt": "' + b"x" * 501 + b'"}', 400),
]
NEW_TABLES = f"DROP TABLE IF EXISTS pictures, accounts; {tables.TABLES}"


class StumblingProvider(MockProvider):
    """Raises each of these once, and paints then."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.keys: list[str] = []

    async def paint(self, prompt: str, *, idempotency_key: str) -> bytes:
        self.keys.append(idempotency_key)
        if self.errors:
            raise self.errors.pop(0)
        return await super().paint(prompt, idempotency_key=idempotency_key)


class Site:
    """The application at an address, its database, and the worker of its queue."""

    def __init__(self, url: str, database: Database) -> None:
        self.url = url
        self.database = database
        self.queue = MemoryQueue(SystemClock(), max_receive_count=5)

    async def order(self, prompt: str, picture: str = "") -> tuple[int, str]:
        """Return the status, and the id of the picture."""
        picture = picture or str(uuid.uuid4())
        status, _ = await self.post(json.dumps({"id": picture, "prompt": prompt}).encode())
        return status, picture

    async def post(self, body: bytes, headers: dict[str, str] = JSON) -> tuple[int, str]:
        answer = await HttpClient().post(f"{self.url}/pictures", headers=headers, content=body)
        return answer.status, json.loads(bytes(answer.content)).get("error", "")

    async def get(self, path: str) -> tuple[int, bytes]:
        answer = await HttpClient().get(f"{self.url}{path}")
        return answer.status, bytes(answer.content)

    async def account(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((await self.get("/pictures"))[1])
        return found

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """Send what is in the outbox, and do it for as long as the context lasts."""
        await send_all(self.database, self.queue)
        sessions = SessionTable(self.database, "airunner")
        async with working(make_consumer(self.queue, sessions, load_handlers(["pictures.handlers"]))):
            yield


@asynccontextmanager
async def serving_application() -> AsyncIterator[str]:
    """Serve it by the variables of this process."""
    application.app.state.url = "http://test"
    server = uvicorn.Server(uvicorn.Config(application.app, port=0, loop="none", log_config=None))
    server.capture_signals = nullcontext  # type: ignore[method-assign,assignment]  # they are the test's
    task = asyncio.create_task(server.serve())
    try:
        await until(lambda: server.started or task.done())
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        await task


@pytest.fixture
async def airunner_url(dsn: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    """A server with generations, whose key the application has."""
    clock = SystemClock()
    services = make_services(MemoryStore(clock), clock)
    async with (
        opened(services, dsn) as generations,
        serve(services, AppOptions(no_auth=False), generations=generations) as url,
    ):
        minted = mint_key(f"sql:{USER}", (Scope.READ,), (), 0)
        await services.store.add_key(minted.key)
        monkeypatch.setenv("AIRUNNER_API_KEY", minted.text)
        yield url


@pytest.fixture
async def site(
    dsn: str, database: Database, airunner_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Site]:
    await database.execute(NEW_TABLES)
    monkeypatch.setenv("DATABASE_URL", dsn)
    monkeypatch.setenv("AIRUNNER_SERVER", airunner_url)
    monkeypatch.setenv("PICTURES_STORAGE", str(tmp_path))
    # Of a worker: it reads them when it loads its handlers, which this process does once.
    monkeypatch.setenv("INTEGRATION_USE_MOCK", "true")
    load_handlers(["pictures.handlers"])
    monkeypatch.setattr("pictures.handlers.storage", storage_at(str(tmp_path)))
    async with serving_application() as url:
        yield Site(url, database)


async def test_an_order_becomes_a_picture_and_its_credit_is_captured(site: Site) -> None:
    status, picture = await site.order("a <b>boat</b>")
    assert status == 202
    assert (await site.account())["credits"] == 9
    assert (await site.get(f"/pictures/{picture}/image"))[0] == 404
    async with site.at_work():
        status, text = await site.get(f"/pictures/{picture}/events")
    assert status == 200
    assert [event for event, _ in news_in(text.decode())][-1] == "done"
    assert text.endswith(b"event: end\ndata: {}\n\n")
    assert await site.get(f"/pictures/{picture}/image") == (200, painting.paint("a <b>boat</b>"))
    account = await site.account()
    assert account["credits"] == 9
    assert account["pictures"] == [
        {"id": picture, "prompt": "a <b>boat</b>", "state": "captured", "reason": ""}
    ]
    (image,) = await rows_of(site.database, "*", "images")
    assert image["place"].endswith(f"{picture}.png")


async def test_a_reader_that_comes_back_hears_only_what_it_has_not_heard(site: Site) -> None:
    _, picture = await site.order("a boat")
    async with site.at_work():
        _, text = await site.get(f"/pictures/{picture}/events")
    *_, last = re.findall(r"^id: (.+)$", text.decode(), re.MULTILINE)
    answer = await HttpClient().get(f"{site.url}/pictures/{picture}/events", headers={"last-event-id": last})
    assert bytes(answer.content) == b"event: end\ndata: {}\n\n"


async def test_a_picture_that_fails_for_good_is_refunded_once(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = PermanentFailure("content_policy", "not this")
    monkeypatch.setattr("pictures.handlers.provider", StumblingProvider(refused))
    _, picture = await site.order("a banknote")
    async with site.at_work():
        _, text = await site.get(f"/pictures/{picture}/events")
        # A copy of the message has no second effect.
        await site.database.execute("UPDATE airunner.outbox SET state = 'pending'")
        await send_all(site.database, site.queue)
        await until_empty(site.queue)
    event, told = news_in(text.decode())[-1]
    assert (event, told["code"], told["error"]) == ("failed", "content_policy", "not this")
    account = await site.account()
    assert (account["credits"], account["pictures"][0]["state"]) == (10, "refunded")
    (letter,) = await letters(site.queue)
    assert letter["failure"]["code"] == "content_policy"


async def test_a_refunded_picture_that_is_run_again_is_paid_for_and_shown(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pictures.handlers.provider", StumblingProvider(PermanentFailure("not_today")))
    _, refunded = await site.order("a boat")
    async with site.at_work():
        await until_sessions(site.database, failed=1)
    assert (await site.account())["credits"] == 10
    again = await OutboxTable(site.database, "airunner").rerun(refunded)
    assert again
    async with site.at_work():
        await until_sessions(site.database, failed=1, done=1)
    account = await site.account()
    states = {picture["id"]: picture["state"] for picture in account["pictures"]}
    assert (account["credits"], states) == (9, {refunded: "refunded", again.row_id: "captured"})
    assert (await site.get(f"/pictures/{again.row_id}/image"))[0] == 200


async def test_work_that_nobody_can_pay_for_is_not_done(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    provider = StumblingProvider()
    monkeypatch.setattr("pictures.handlers.provider", provider)
    await site.database.execute("UPDATE accounts SET credits = 0")
    for user in ("demo", "nobody"):
        await enqueue(site.database, "paint", {"user_id": user, "prompt": "a boat"})
    async with site.at_work():
        found = await until_sessions(site.database, failed=2)
    assert {row["code"] for row in found} == {"out_of_credits"}
    assert (provider.keys, await site.account()) == ([], {"credits": 0, "pictures": []})


async def test_a_provider_that_fails_is_asked_again_with_the_same_key(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = StumblingProvider(ProviderFailed("busy"))
    monkeypatch.setattr("pictures.handlers.provider", provider)
    _, picture = await site.order("hills")
    async with site.at_work():
        _, text = await site.get(f"/pictures/{picture}/events")
    assert news_in(text.decode())[-1][1]["attempts"] == 2
    assert provider.keys == [picture, picture]
    assert (await site.account())["credits"] == 9


async def test_a_diagnosis_of_the_queue_is_painted_without_the_provider_and_touches_no_credit(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pictures.handlers.provider", StumblingProvider(ProviderFailed("away")))
    for outputs in (2, 9):
        await enqueue(site.database, "paint", {"user_id": "42", "outputs": outputs, "use_mock": True})
    async with site.at_work():
        await until_sessions(site.database, done=1, failed=1)
    found = {row["place"] for row in await rows_of(site.database, "*", "images")}
    assert len(found) == 2
    assert await site.account() == {"credits": 10, "pictures": []}


async def test_an_order_that_is_sent_twice_is_one_and_its_id_is_nobody_else_s(site: Site) -> None:
    _, picture = await site.order("a boat")
    assert await site.order("a boat", picture) == (202, picture)
    assert (await site.order("a ship", picture))[0] == 409
    account = await site.account()
    assert (account["credits"], len(account["pictures"])) == (9, 1)
    assert len(await rows_of(site.database)) == 1


async def test_without_credits_nothing_is_enqueued(site: Site) -> None:
    await site.database.execute("UPDATE accounts SET credits = 0")
    assert (await site.order("a boat"))[0] == 402
    assert (await site.account())["pictures"] == []
    assert await rows_of(site.database) == []


async def test_bad_orders_are_refused_and_cost_nothing(site: Site) -> None:
    for body, status in BAD_ORDERS:
        found, reason = await site.post(body.replace(b"NEW", str(uuid.uuid4()).encode()))
        assert (found, bool(reason)) == (status, True), body
    assert (await site.post(b"{}", {"content-type": "text/plain"}))[0] == 415
    assert await site.account() == {"credits": 10, "pictures": []}


async def test_pictures_of_others_are_not_there(site: Site) -> None:
    other = str(uuid.uuid4())
    await site.database.execute("INSERT INTO accounts VALUES ('other', 1)")
    await site.database.execute(
        "INSERT INTO pictures (id, account, prompt, state) VALUES ($1::text::uuid, 'other', 'a', 'captured')",
        other,
    )
    for path in ("image", "events"):
        assert (await site.get(f"/pictures/{other}/{path}"))[0] == 404


async def test_a_page_is_served_with_a_strict_policy_and_to_this_machine_alone(site: Site) -> None:
    answer = await HttpClient().get(f"{site.url}/")
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'")
    assert "unsafe" not in policy
    assert b"<script>" not in bytes(answer.content)
    foreign = await HttpClient().get(f"{site.url}/", headers={"host": "evil.example"})
    assert foreign.status == 400


async def test_a_server_that_is_away_is_said_to_be(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    _, picture = await site.order("a boat")
    for url, key in ((unused_url(), "airk_a_b"), (None, "airk_not_this")):
        if url:
            monkeypatch.setenv("AIRUNNER_SERVER", url)
        monkeypatch.setenv("AIRUNNER_API_KEY", key)
        async with serving_application() as other:
            answer = await HttpClient().get(f"{other}/pictures/{picture}/events")
        assert answer.status == 502


async def test_a_bucket_keeps_pictures_too(
    emulator: EmulatorProcess, aws_env: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "AWS_ENDPOINT_URL": emulator.url,
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
    }.items():
        monkeypatch.setenv(name, value)
    async with aws.client("s3", emulator.url) as s3:
        await s3.create_bucket(Bucket=aws_env, CreateBucketConfiguration={"LocationConstraint": REGION})
    storage = storage_at(f"s3://{aws_env}/shop")
    assert isinstance(storage, S3Storage)
    for content in (b"first", b"second"):
        assert await storage.put("a.png", content) == f"s3://{aws_env}/shop/a.png"
    assert await storage.get("a.png") == b"second"


async def until_empty(queue: MemoryQueue) -> None:
    async with asyncio.timeout(20):
        while (depth := await queue.depth()).visible or depth.in_flight:
            await asyncio.sleep(0.01)
