"""The application of docs/from-an-application.md, as it is printed there: with FastAPI and with Django."""

from __future__ import annotations

import json
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import httpx
import pytest

from airunner.generation.diagnosis.hops import HopName
from airunner.local.postgres import LocalPostgres
from airunner.testing.conditions import until
from tests.acceptance.command_line import LIMIT_SECONDS, CommandLine, Started, eventually
from tests.doubles.aws.emulator import ACCESS_KEY, REGION, SECRET_KEY, EmulatorProcess
from tests.support.postgres import administer, new_database
from tests.support.processes import RunningProcess, unused_port

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "application"
PAGE = (ROOT / "docs" / "from-an-application.md").read_text()
COMMANDS = {
    "fastapi": ("-m", "uvicorn", "--app-dir", str(EXAMPLE), "shop_fastapi:app", "--port", "PORT"),
    "django": (str(EXAMPLE / "shop_django.py"), "runserver", "--noreload", "127.0.0.1:PORT"),
}
RICH, POOR = 1, 2
HOPS = [name.value for name in HopName]
_BOTH_SCOPES = ("--scope", "jobs:submit", "--scope", "jobs:read")
# Roles are the whole server's: another test may have made them.
_ROLE = """
DO $$BEGIN CREATE ROLE {name} LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END$$
"""


def test_the_code_of_the_page_is_that_of_the_example() -> None:
    files = [file.read_text() for file in EXAMPLE.glob("*.py")]
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 4
    assert [block for block in blocks if not any(block in file for file in files)] == []


@pytest.fixture(params=COMMANDS)
async def shop(request: pytest.FixtureRequest, unshared_dsn: str, tmp_path: Path) -> AsyncIterator[Shop]:
    await make_tables(unshared_dsn)
    async with opened_shop(request.param, unshared_dsn, tmp_path) as opened:
        yield opened


async def test_work_is_ordered_with_the_rest_of_a_transaction_or_not_at_all(shop: Shop) -> None:
    key = str(uuid4())
    for _ in range(2):
        ordered = await shop.order("a boat", key)
        assert (ordered.status_code, ordered.json()) == (202, {"id": key})
    assert (await shop.order("a house", key)).status_code == 409
    assert (await shop.order("a boat", key, user=POOR)).status_code == 409
    assert (await shop.order("a boat", str(uuid4()), user=POOR)).status_code == 402
    assert await shop.rows("SELECT id::text, account, state FROM reservations") == [(key, RICH, "reserved")]
    assert await shop.rows("SELECT credits FROM accounts ORDER BY id") == [(4,), (0,)]
    ((body, user_id),) = await shop.rows(
        "SELECT payload::text, user_id FROM airunner.outbox JOIN airunner.generation_sessions USING (id)"
    )
    assert (json.loads(body), user_id) == (
        {"id": key, "name": "paint", "payload": {"prompt": "a boat", "user_id": "1"}},
        "1",
    )


@pytest.mark.slow
async def test_the_page_from_its_first_command_to_the_browser(
    postgres: LocalPostgres, emulator: EmulatorProcess, aws_env: str, tmp_path: Path
) -> None:
    await administer(postgres, *(_ROLE.format(name=name) for name in ("shop", "airunner_server")))
    async with new_database(postgres, "template0") as owner_dsn:
        database = owner_dsn.partition("?")[0].rpartition("/")[2]
        listen = f"127.0.0.1:{unused_port()}"
        person = CommandLine(
            folder=tmp_path,
            variables={
                "DATABASE_URL": owner_dsn,
                "AWS_REGION": REGION,
                "AWS_ENDPOINT_URL": emulator.url,
                "AWS_ACCESS_KEY_ID": ACCESS_KEY,
                "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            },
        )
        person.text("outbox", "migrate", "--app-role", "shop", "--server-role", "airunner_server")
        await make_tables(
            owner_dsn, "GRANT SELECT, INSERT, UPDATE ON accounts, reservations TO shop, airunner_server"
        )
        person.text("aws", "provision", "--generation", "--env", aws_env, "--env-file", ".env")
        key = person.text(
            "keys", "create", "sql:shop", "--scope", "jobs:read", "--data-dir", "data", "--init"
        )
        checker = person.text("keys", "create", "diag", *_BOTH_SCOPES, "--data-dir", "data").split()[-1]
        person.variables["DATABASE_URL"] = postgres.dsn(database, user="airunner_server")
        where = ("--listen", listen, "--data-dir", "data")
        with (
            person.start("server", "--services", "jobs,events,generations", *where) as server,
            person.start("outbox", "relay"),
            person.start("generation", "worker", "--handlers", EXAMPLE / "painting.py"),
        ):
            server.wait_for("airunner server listening on")
            variables = {"AIRUNNER_SERVER": f"http://{listen}", "AIRUNNER_API_KEY": key.split()[-1]}
            shop_dsn = postgres.dsn(database, user="shop")
            async with opened_shop("fastapi", shop_dsn, tmp_path, variables) as shop:
                await check_pictures(shop, tmp_path)
            check_hops(person, f"http://{listen}", checker, server)


def check_hops(person: CommandLine, url: str, key: str, server: Started) -> None:
    """Have an item pass all processes, as operators do, and a server named that is gone."""
    person.variables.update({
        "INTEGRATION_TEST_USER_ID": "1",
        "INTEGRATION_BASE_URL": url,
        "AIRUNNER_API_KEY": key,
    })  # fmt: skip
    told: list[bytes] = []

    def passes() -> bool:
        done = person.run("diag", "queue", "--json")
        told.append(done.stdout)
        return done.returncode == 0

    # A machine that is busy may tell a verdict late, which is a broken hop too.
    eventually(passes, "an item passes all hops")
    found = json.loads(told[-1])
    assert (found["broken"], [hop["hop"] for hop in found["hops"]]) == ("", HOPS)
    server.send(signal.SIGTERM)
    assert server.ended() == 0
    broken = person.run("diag", "queue")
    assert broken.returncode == 1
    assert "server is broken: " in broken.stderr.decode()


async def check_pictures(shop: Shop, folder: Path) -> None:
    events = await shop.events_of("a boat")
    assert [event for event, _ in events if event != "running"] == ["done", "end"]
    place = Path(json.loads(dict(events)["done"])["result"]["place"])
    assert (folder / place).read_text().startswith("a boat, painted for ")
    events = await shop.events_of(" ")
    assert json.loads(dict(events)["failed"])["code"] == "empty_prompt"
    assert await shop.rows("SELECT state FROM reservations ORDER BY 1") == [("captured",), ("refunded",)]
    assert await shop.rows("SELECT credits FROM accounts WHERE id = 1") == [(4,)]
    nobodys = f"/pictures/{uuid4()}/events"
    assert (await shop.client.get(nobodys, headers=shop.headers(""))).status_code == 404


class Shop:
    """The application, its database and somebody who buys."""

    def __init__(self, framework: str, client: httpx.AsyncClient, connection: asyncpg.Connection) -> None:
        self.framework = framework
        self.client = client
        self.connection = connection

    async def order(self, prompt: str, key: str, user: int = RICH) -> httpx.Response:
        where = "params" if self.framework == "fastapi" else "data"
        given: Any = {where: {"prompt": prompt}}
        return await self.client.post("/pictures", headers=self.headers(key, user), **given)

    async def events_of(self, prompt: str) -> list[tuple[str, str]]:
        """Order a picture, and return what a browser hears of it until the end."""
        key = str(uuid4())
        assert (await self.order(prompt, key)).status_code == 202
        answer = await self.client.get(f"/pictures/{key}/events", headers=self.headers(key))
        assert answer.headers["content-type"].startswith("text/event-stream")
        return re.findall(r"^event: (\w+)\ndata: (.*)$", answer.text, re.MULTILINE)

    async def rows(self, query: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in await self.connection.fetch(query)]

    def headers(self, key: str, user: int = RICH) -> dict[str, str]:
        return {"x-user": str(user), "idempotency-key": key}


@asynccontextmanager
async def opened_shop(
    framework: str, dsn: str, folder: Path, variables: dict[str, str] | None = None
) -> AsyncIterator[Shop]:
    port = unused_port()
    arguments = [argument.replace("PORT", str(port)) for argument in COMMANDS[framework]]
    process = RunningProcess(
        *arguments,
        log=folder / "shop.log",
        environment={"DATABASE_URL": dsn, **(variables or {})},
        command=[sys.executable],
    )
    connection = await asyncpg.connect(dsn)
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=LIMIT_SECONDS) as client:
            await until(lambda: _listens(port) or process.exit_code is not None, limit_seconds=LIMIT_SECONDS)
            assert process.exit_code is None, process.printed()
            yield Shop(framework, client, connection)
            process.send(signal.SIGINT)
            await process.ended()
    finally:
        process.abandon()
        await connection.close()


async def make_tables(dsn: str, *more: str) -> None:
    """Do what the application's own migrations do."""
    connection = await asyncpg.connect(dsn)
    # The owner of test databases is called as our schema is, into which its tables would go.
    script = (EXAMPLE / "shop.sql").read_text()
    for statement in (
        "SET search_path = public",
        script,
        "INSERT INTO accounts VALUES (1, 5), (2, 0)",
        *more,
    ):
        await connection.execute(statement)
    await connection.close()


def _listens(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0
