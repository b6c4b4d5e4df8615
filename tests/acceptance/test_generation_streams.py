"""Streams of sessions with a real worker behind them, in another process than the server that tells them."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import asyncpg
import pytest

from airunner.aws.calls import Aws
from airunner.aws.clients import OF_A_QUEUE
from airunner.config import load_settings
from airunner.domain.clock import SystemClock
from airunner.outbox.start import OutboxRelay
from airunner.testing.conditions import until
from tests.doubles.aws.emulator import ACCESS_KEY, REGION, SECRET_KEY
from tests.doubles.aws.strict import StrictProxy
from tests.support.aws_queues import make_queues
from tests.support.aws_stores import options_of
from tests.support.generations import MESSAGE, news_in
from tests.support.http_client import HttpClient
from tests.support.processes import LIMIT_SECONDS, RunningProcess

HANDLERS = """
import asyncio
from pathlib import Path

from airunner import PermanentFailure, handler

FOLDER = Path(__file__).parent


@handler("paint")
async def paint(payload: dict) -> dict:
    while not (FOLDER / payload["go"]).exists():
        await asyncio.sleep(0.01)
    return {"went": payload["go"]}


@handler("spoil")
async def spoil(payload: dict) -> None:
    raise PermanentFailure("nsfw", "no such pictures")
"""
END = "event: end\ndata: {}\n\n"


class Site:
    """The address of a server, and the folder in which its worker's handlers wait for files."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url = f"{url}/v1/generations"
        self._folder = folder
        self._readers: list[asyncio.Task[None]] = []

    def go(self, name: str) -> None:
        (self._folder / name).touch()

    async def start(self, name: str, **payload: object) -> str:
        content = json.dumps({"name": name, "payload": payload}).encode()
        headers = {"content-type": "application/json"}
        answer = await HttpClient().post(self._url, headers=headers, content=content)
        assert answer.status == 202
        return str(json.loads(bytes(answer.content))["id"])

    def read(self, path: str, last_seen: str = "") -> Stream:
        stream = Stream()
        headers = {"last-event-id": last_seen} if last_seen else {}
        self._readers.append(asyncio.create_task(stream.read(f"{self._url}{path}", headers)))
        return stream

    async def close(self) -> None:
        for reader in self._readers:
            reader.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)


class Stream:
    """What came so far."""

    def __init__(self) -> None:
        self.text = ""

    async def read(self, url: str, headers: dict[str, str]) -> None:
        async with HttpClient().stream("GET", url, headers=headers) as answer:
            assert answer.status == 200
            async for chunk in answer.content:
                self.text += bytes(chunk).decode()

    @property
    def states(self) -> list[str]:
        return [event for event, _ in news_in(self.text)]

    def told(self) -> set[tuple[str, str]]:
        return {(data["id"], event) for event, data in news_in(self.text)}

    async def until_begun(self) -> None:
        await until(lambda: bool(self.text), limit_seconds=LIMIT_SECONDS)

    async def until_over(self) -> None:
        await until(lambda: self.text.endswith(END), limit_seconds=LIMIT_SECONDS)


@pytest.fixture
async def site(dsn: str, aws: StrictProxy, aws_env: str, tmp_path: Path) -> AsyncIterator[Site]:
    """A server and a worker as processes, and a relay."""
    (tmp_path / "handlers.py").write_text(HANDLERS)
    async with AsyncExitStack() as stack:
        account = await stack.enter_async_context(Aws(replace(options_of(aws.url), clients=OF_A_QUEUE)))
        _, queue_url = await make_queues(account, aws_env, 5)
        environment = {
            "DATABASE_URL": dsn,
            "SQS_MAIN_QUEUE_URL": queue_url,
            "AWS_REGION": REGION,
            "AWS_ENDPOINT_URL": aws.url,
            "AIRUNNER_STORE__AWS__ACCESS_KEY_ID": ACCESS_KEY,
            "AIRUNNER_STORE__AWS__SECRET_ACCESS_KEY": SECRET_KEY,
        }
        commands = {
            "worker": ("generation", "worker", "--handlers", str(tmp_path / "handlers.py")),
            "server": (
                *("server", "--no-auth", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "data")),
                *("--services", "jobs,events,generations"),
            ),
        }
        processes = {
            name: RunningProcess(*command, log=tmp_path / f"{name}.log", environment=environment)
            for name, command in commands.items()
        }
        for process in processes.values():
            stack.callback(process.abandon)
        settings = load_settings(environ=environment, with_database=True).settings
        relay = OutboxRelay(settings, SystemClock())
        await relay.start()
        stack.push_async_callback(relay.stop)
        await processes["server"].until_said("listening on")
        await processes["worker"].until_said("worker.init")
        found = re.search(r"listening on (\S+)", processes["server"].printed())
        assert found
        made = Site(found[1], tmp_path)
        stack.push_async_callback(made.close)
        yield made
        await made.close()
        for process in processes.values():
            process.send(signal.SIGTERM)
            assert await process.ended() == 0


@pytest.mark.slow
async def test_streams_tell_what_a_worker_elsewhere_does(site: Site, dsn: str) -> None:
    all_of_them = site.read("/events")
    await all_of_them.until_begun()
    first = await site.start("paint", go="first")
    one = site.read(f"/{first}/events")
    await until(lambda: one.states == ["running"], limit_seconds=LIMIT_SECONDS)
    site.go("first")
    await one.until_over()
    assert one.states == ["running", "done"]
    assert news_in(one.text)[-1][1]["result"] == {"went": "first"}

    spoilt = await site.start("spoil")
    other = site.read(f"/{spoilt}/events")
    await other.until_over()
    assert other.states == ["running", "failed"]
    assert news_in(other.text)[-1][1]["code"] == "nsfw"

    # Whoever comes back goes on where it was, after the end too.
    running_id = MESSAGE.findall(one.text)[0][0]
    again = site.read(f"/{first}/events", running_id)
    await again.until_over()
    assert again.states == ["done"]

    # Without its listener, the server reads again every five seconds, and as soon as it listens again.
    last = await site.start("paint", go="last")
    cut = site.read(f"/{last}/events")
    await until(lambda: cut.states == ["running"], limit_seconds=LIMIT_SECONDS)
    await _cut_listeners(dsn)
    site.go("last")
    await cut.until_over()
    assert cut.states == ["running", "done"]

    wanted = {(session_id, "running") for session_id in (first, spoilt, last)}
    wanted |= {(first, "done"), (spoilt, "failed"), (last, "done")}
    await until(lambda: all_of_them.told() >= wanted, limit_seconds=LIMIT_SECONDS)
    first_id = MESSAGE.findall(all_of_them.text)[0][0]
    resumed = site.read("/events", first_id)
    await until(
        lambda: resumed.told() >= {(first, "done"), (spoilt, "failed"), (last, "done")},
        limit_seconds=LIMIT_SECONDS,
    )


async def _cut_listeners(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    cut = await connection.fetchval(
        "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity "
        "WHERE application_name = 'airunner generations listener' AND datname = current_database()"
    )
    await connection.close()
    assert cut == 1
