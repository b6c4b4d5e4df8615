"""What travels in the clear: which servers may serve so, who warns, and what goes through a proxy."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from airunner.app import build_server
from airunner.client import AsyncClient
from airunner.client.transport import _warn_once
from airunner.config import ListenAddress, ServerSettings, Settings, StoreSettings, StoreType
from airunner.domain.clock import SystemClock
from airunner.domain.errors import FailedPrecondition
from airunner.server.asgi import AppOptions
from airunner.server.run import ServeOptions, Server, check_plaintext
from airunner.stores.memory import MemoryStore
from airunner.testing.factories import make_services
from tests.support.serving import serve

KEYED = AppOptions(no_auth=False)
LOOPBACK = ("127.0.0.1", "127.9.9.9", "::1", "localhost", "LOCALHOST")
OTHERS = (
    "0.0.0.0",  # noqa: S104  nothing is bound
    "::",
    "10.0.0.1",
    "jobs.example",
    "localhost.example",
)
# Calls servers, each once and quickly; no name is resolved, since a proxy would do that.
CALLS = """
import asyncio, sys
from airunner.client import AsyncClient
from airunner.domain.errors import AirunnerError
from airunner.domain.retry import RetryPolicy

async def call(url):
    client = AsyncClient(url, api_key="airk_hush", retry=RetryPolicy(attempts=1), timeout_seconds=20)
    async with client:
        try:
            await client.list_queues()
            [event async for event in client.monitor("0190f5a4-7c1e-7b3a-9d2f-1b6e5c4d3a21")]
        except AirunnerError as error:
            print(url, type(error).__name__)

for url in sys.argv[1:]:
    asyncio.run(call(url))
"""


@pytest.mark.parametrize("host", LOOPBACK)
def test_loopback_is_served_without_tls(host: str) -> None:
    check_plaintext(ServeOptions(host=host, port=0, app=KEYED))


@pytest.mark.parametrize("host", OTHERS)
def test_other_addresses_need_tls_or_a_word(host: str) -> None:
    plain = ServeOptions(host=host, port=0, app=KEYED)
    with pytest.raises(FailedPrecondition, match=f"^{re.escape(host)} is not loopback.*server.behind_proxy"):
        check_plaintext(plain)
    check_plaintext(replace(plain, allow_plaintext=True))
    check_plaintext(replace(plain, cert_file=Path("server.pem"), key_file=Path("server.key")))


async def test_a_server_that_may_not_serve_so_does_not_even_listen() -> None:
    clock = SystemClock()
    services = make_services(MemoryStore(clock), clock)
    server = Server(services, ServeOptions(host="192.0.2.1", port=1, app=KEYED))
    with pytest.raises(FailedPrecondition, match="without TLS"):
        await server.run()


@pytest.mark.parametrize(
    ("given", "allowed"),
    [({}, False), ({"behind_proxy": True}, True), ({"insecure_plaintext": True}, True)],
)
async def test_what_the_settings_say(given: dict[str, bool], allowed: bool) -> None:
    settings = Settings(
        listen=ListenAddress("192.0.2.1:1"),
        store=StoreSettings(type=StoreType.MEMORY),
        server=ServerSettings(**given),
    )
    # Where it goes on, it fails at an address that this machine does not have.
    with pytest.raises(FailedPrecondition, match="cannot listen" if allowed else "without TLS"):
        await build_server(settings).run()


def test_a_client_warns_once_before_it_sends_a_key_in_the_clear() -> None:
    _warn_once.cache_clear()
    with capture_logs() as lines:
        for _ in range(2):
            AsyncClient(
                "http://jobs.example:8080,http://127.0.0.1:8080,https://jobs.example", api_key="airk_x"
            )
        AsyncClient("https://jobs.example", events_servers="http://10.0.0.1:1", api_key="airk_x")
    assert [(line["event"], line["server"]) for line in lines] == [
        ("client.plaintext", "http://jobs.example:8080"),
        ("client.plaintext", "http://10.0.0.1:1"),
    ]
    assert "airk_x" not in str(lines)


def test_a_client_without_a_key_has_nothing_to_warn_of() -> None:
    _warn_once.cache_clear()
    with capture_logs() as lines:
        AsyncClient("http://jobs.example:8080")
    assert lines == []


async def test_what_is_said_on_loopback_goes_through_no_proxy() -> None:
    clock = SystemClock()
    async with (
        make_services(MemoryStore(clock), clock) as services,
        serve(services) as url,
        _recording_proxy() as (proxy, requests),
    ):
        here = [url, url.replace("127.0.0.1", "localhost")]
        names = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
        proxies = {spelt: proxy for name in names for spelt in (name, name.lower())}
        # Some machines set it for everybody, and then the test would prove nothing.
        environment = {name: text for name, text in os.environ.items() if name.lower() != "no_proxy"}
        program = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", CALLS, *here, "http://jobs.example:8080"),
            env={**environment, **proxies},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        printed, errors = await asyncio.wait_for(program.communicate(), 60)
    # The server was reached, and knows no such job; what is elsewhere was asked of the proxy.
    assert printed.decode().splitlines() == [
        *(f"{address} NotFound" for address in here),
        "http://jobs.example:8080 Unavailable",
    ]
    assert {request.split()[1].rpartition(b"/job.v1")[0] for request in requests} == {
        b"http://jobs.example:8080"
    }
    assert errors.count(b"client.plaintext") == 1


@asynccontextmanager
async def _recording_proxy() -> AsyncIterator[tuple[str, list[bytes]]]:
    """A proxy that notes the first line of each request, and can reach nobody."""
    requests: list[bytes] = []

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await reader.readline())
        writer.write(b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", requests
