"""Servers that offer generations, as real processes beside one database."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from airunner.cli.commands.dev import _for_development
from airunner.cli.options import load
from airunner.postgres.pool import Database
from tests.support.generations import begin, finish, news_in
from tests.support.http_client import HttpClient
from tests.support.processes import RunningProcess

DSN = "postgresql://shop:very-secret@db/shop"


@pytest.mark.slow
async def test_two_servers_of_one_database_tell_the_same(
    dsn: str, database: Database, tmp_path: Path
) -> None:
    async with AsyncExitStack() as stack:
        urls = [await _serve(stack, dsn, tmp_path / name) for name in ("one", "two")]
        session_id = await _start(urls[0])
        reading = [
            asyncio.create_task(HttpClient().get(f"{url}/v1/generations/{session_id}/events")) for url in urls
        ]
        await begin(database, session_id)
        await finish(database, session_id)
        texts = [bytes((await each).content).decode() for each in reading]
    for text in texts:
        assert [event for event, _ in news_in(text)] == ["running", "done"]
        assert text.endswith("event: end\ndata: {}\n\n")


def test_the_address_of_the_database_means_us_where_generations_are_offered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DATABASE_URL", DSN)
    assert load(None, {}, with_database=None).settings.postgres.dsn is None
    assert load(None, {"services": "jobs,generations"}, with_database=None).settings.postgres.dsn_text == DSN
    assert "generations" not in _for_development(None, {}).services
    monkeypatch.setenv("AIRUNNER_POSTGRES__DSN", DSN)
    assert "generations" in _for_development(None, {}).services


async def _serve(stack: AsyncExitStack, dsn: str, folder: Path) -> str:
    folder.mkdir()
    options = ("--no-auth", "--listen", "127.0.0.1:0", "--data-dir", str(folder))
    server = RunningProcess(
        "server",
        *options,
        "--services",
        "jobs,events,generations",
        log=folder / "log",
        environment={"DATABASE_URL": dsn},
    )
    stack.push_async_callback(_end, server)
    await server.until_said("listening on")
    found = re.search(r"listening on (\S+)", server.printed())
    assert found
    return found[1]


async def _end(server: RunningProcess) -> None:
    server.send(signal.SIGTERM)
    assert await server.ended() == 0


async def _start(url: str) -> str:
    answer = await HttpClient().post(
        f"{url}/v1/generations",
        headers={"content-type": "application/json"},
        content=json.dumps({"name": "paint", "payload": {}}).encode(),
    )
    assert answer.status == 202
    return str(json.loads(bytes(answer.content))["id"])
