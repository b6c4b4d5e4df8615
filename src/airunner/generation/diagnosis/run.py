"""Sends one real item the whole way, and tells how far it came.

Whatever becomes of it, the item is left as it is: a relay or a worker that comes later still does it.
"""

from __future__ import annotations

import asyncio
import uuid
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final

from airunner.config import ConfigError
from airunner.domain.errors import AirunnerError, InvalidArgument, error_text
from airunner.generation.diagnosis.hops import Diagnosis, Hop, HopName, judge
from airunner.generation.diagnosis.item_table import ItemTable
from airunner.generation.diagnosis.server_calls import ServerCalls, ServerTrouble
from airunner.generation.diagnosis.watch import ItemLost, ItemWatch
from airunner.outbox.schema import check_outbox
from airunner.outbox.start import open_database

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from airunner.config import Settings
    from airunner.domain.clock import Clock
    from airunner.postgres.pool import Database

DEFAULT_SECONDS: Final = 60.0


async def diagnose_queue(
    settings: Settings, clock: Clock, *, timeout_seconds: float = DEFAULT_SECONDS
) -> Diagnosis:
    """Send an item and return what became of it, after `timeout_seconds` and a little more at the latest.

    ConfigError for settings with which nothing can be sent. What is broken is no error, but the answer.
    """
    check_diag_settings(settings, timeout_seconds)
    async with AsyncExitStack() as stack:
        return await _ItemJourney(settings, clock, stack, timeout_seconds).run()


def check_diag_settings(settings: Settings, timeout_seconds: float) -> None:
    """Refuse settings that lack something, with ConfigError, and a timeout that is none."""
    if not timeout_seconds > 0:
        raise InvalidArgument("timeout must be more than 0 seconds")
    problems = []
    if not settings.diag.user_id:
        problems.append("diag.user_id: must be set, there or as INTEGRATION_TEST_USER_ID")
    if not settings.postgres.dsn_text:
        problems.append("postgres.dsn: must be set, there or as DATABASE_URL")
    if problems:
        raise ConfigError(problems)


class _Broken(Exception):
    """The item did not pass a hop; the text says why."""

    def __init__(self, name: HopName, text: str) -> None:
        super().__init__(text)
        self.name = name


class _ItemJourney:
    """One item on its way."""

    def __init__(
        self, settings: Settings, clock: Clock, stack: AsyncExitStack, timeout_seconds: float
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._stack = stack
        self._loop = asyncio.get_running_loop()
        self._give_up_at = clock.monotonic() + round(timeout_seconds * 1000)
        self._session_id = ""
        self._hops: list[Hop] = []

    async def run(self) -> Diagnosis:
        """Send it, and follow it as far as it comes."""
        try:
            await self._travel()
        except _Broken as broken:
            self._hops.append(Hop(name=broken.name, is_ok=False, text=str(broken)))
        return Diagnosis(session_id=self._session_id, hops=self._hops)

    async def _travel(self) -> None:
        client = self._settings.client
        address = self._settings.diag.base_url or client.server[0]
        server = ServerCalls(address, client.api_key_text, client.ca_file)
        await self._stack.enter_async_context(server)
        await self._pass(HopName.SERVER, server.check_health(), "GET /healthz")
        database = open_database(self._settings)
        table = ItemTable(database, self._settings.postgres.schema)
        watch = ItemWatch(self._settings, self._clock, table, server)
        await self._pass(HopName.DATABASE, self._open(database, watch), "connected")
        await self._pass(HopName.OUTBOX, self._send(database, table, server), "POST /v1/generations")
        try:
            self._hops += judge(await watch.run(self._session_id, self._give_up_at))
        except ItemLost as error:
            self._hops = [hop for hop in self._hops if hop.name is not error.hop]
            raise _Broken(error.hop, str(error)) from None

    async def _pass(self, name: HopName, step: Awaitable[None], text: str) -> None:
        """Do a step within what is left of the time, and note how long it took."""
        began = self._loop.time()
        try:
            async with asyncio.timeout(max(0, self._give_up_at - self._clock.monotonic()) / 1000):
                await step
        except TimeoutError:
            raise _Broken(name, "there was no answer in time") from None
        except ServerTrouble as error:
            raise _Broken(name, str(error)) from None
        except AirunnerError as error:
            raise _Broken(name, error_text(error)) from None
        self._hops.append(Hop(name=name, seconds=self._loop.time() - began, text=text))

    async def _open(self, database: Database, watch: ItemWatch) -> None:
        await self._stack.enter_async_context(database)
        await watch.listen(self._stack)

    async def _send(self, database: Database, table: ItemTable, server: ServerCalls) -> None:
        await check_outbox(database, self._settings.postgres.schema)
        await table.measure_clock()
        session_id = str(uuid.uuid4())
        diag = self._settings.diag
        payload: dict[str, Any] = {"user_id": diag.user_id, "outputs": diag.outputs or 1}
        if diag.use_mock is not None:
            payload["use_mock"] = diag.use_mock
        await server.start(diag.job_type, payload, session_id)
        self._session_id = session_id
