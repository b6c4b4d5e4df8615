"""A real server process with API keys, and what can be seen of it from outside."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from airunner.client import AsyncClient
from airunner.domain.clock import SystemClock
from airunner.domain.retry import RetryPolicy
from airunner.rpc.auth import Scope, mint_key
from airunner.stores.sqlite.store import SqliteStore
from airunner.testing.conditions import until
from tests.support.processes import LIMIT_SECONDS, RunningProcess, unused_port
from tests.support.scraping import scrape

PRINTER = "printer"
_LOOK_AGAIN_SECONDS = 0.02
_IMPATIENT = RetryPolicy(first_seconds=0.001, max_seconds=0.02)


class KeyedServer:
    """The address and process of a server, and the key of each principal; `PRINTER` may submit and work."""

    def __init__(self, process: RunningProcess, url: str, keys: dict[str, str]) -> None:
        self.process = process
        self.url = url
        self.keys = keys

    @property
    def pid(self) -> int:
        return self.process.pid

    def client(self, principal: str, url: str = "") -> AsyncClient:
        """Return a client of a principal, at the server itself or at another address of it."""
        return AsyncClient(
            url or self.url, api_key=self.keys[principal], retry=_IMPATIENT, timeout_seconds=LIMIT_SECONDS
        )

    async def streams(self) -> int:
        """How many streams the server says are open."""
        return int((await asyncio.to_thread(scrape, self.url)).value("airunner_streams_active"))

    async def until_streams(self, count: int, limit_seconds: float = LIMIT_SECONDS) -> None:
        """Return once so many streams are open; what it last said is in the failure."""
        found = -1
        try:
            async with asyncio.timeout(limit_seconds):
                while (found := await self.streams()) != count:
                    # Asked without a pause, the server would have no time for what is waited for.
                    await asyncio.sleep(_LOOK_AGAIN_SECONDS)
        except TimeoutError:
            raise AssertionError(f"{found} streams are open, not {count}") from None

    def sockets(self) -> int:
        """How many sockets the server has open."""
        return sum(target.startswith("socket:") for target in self._descriptors())

    def descriptors(self) -> int:
        """How many descriptors of any kind the server has open."""
        return len(self._descriptors())

    async def until_sockets(self, count: int) -> None:
        await until(lambda: self.sockets() <= count, limit_seconds=LIMIT_SECONDS)

    def _descriptors(self) -> list[str]:
        found = []
        for entry in Path(f"/proc/{self.pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # closed while we looked
                found.append(str(entry.readlink()))
        return found


@asynccontextmanager
async def keyed_server(folder: Path, readers: Sequence[str]) -> AsyncIterator[KeyedServer]:
    """Run a server on a folder; each reader may read jobs, and do nothing else."""
    scopes = {PRINTER: (Scope.SUBMIT, Scope.WORKER), **dict.fromkeys(readers, (Scope.READ,))}
    keys = await _make_keys(folder / "data", scopes)
    listen = f"127.0.0.1:{unused_port()}"
    process = RunningProcess(
        "server", "--listen", listen, "--data-dir", str(folder / "data"), log=folder / "server.log"
    )
    try:
        await process.until_said("listening on")
        yield KeyedServer(process, f"http://{listen}", keys)
    except BaseException:
        print(process.printed())  # noqa: T201  pytest shows it with the failure
        raise
    finally:
        process.abandon()


async def _make_keys(data_dir: Path, scopes: dict[str, tuple[Scope, ...]]) -> dict[str, str]:
    clock = SystemClock()
    store = SqliteStore(data_dir, clock, owner=False)
    await store.open()
    try:
        texts = {}
        for name, wanted in scopes.items():
            minted = mint_key(name, wanted, (), clock.now())
            await store.add_key(minted.key)
            texts[name] = minted.text
        return texts
    finally:
        await store.close()
