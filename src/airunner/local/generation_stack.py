"""A whole generation queue on this machine: PostgreSQL, an emulated SQS, a server, a relay and a worker."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from airunner.config import environment_without_settings
from airunner.local.aws_plan import emulated
from airunner.local.child_stack import ChildStack, start_loopback
from airunner.local.children import AIRUNNER, run_to_end
from airunner.local.emulator import EmulatorProcess
from airunner.local.postgres import LocalPostgres

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from airunner.local.children import ChildProcess

APPLICATION: Final = "shop"
"""The role and the database of the application, which owns all that is in it."""
_STEP_SECONDS: Final = 60.0
_DATA: Final = ("--data-dir", "data")
# What a person who looks on would wait for in vain: half a minute until the second try.
_IMPATIENT: Final = {"AIRUNNER_GENERATION__RETRY_FIRST_SECONDS": "1"}


class GenerationStack(ChildStack):
    """What a demo of the generation queue stands on; each part is a process.

    `variables` are what all of them have besides. First `prepare`, then `start_services`, then whatever the
    application consists of, with `start`.
    """

    def __init__(self, folder: Path, variables: Mapping[str, str]) -> None:
        super().__init__(folder)
        self.postgres = LocalPostgres()
        self.emulator = EmulatorProcess()
        self.api_key = ""
        """Reads the sessions of the application."""
        self.environment = {**environment_without_settings(), **_IMPATIENT, **variables}
        # Its folder is there from now on.
        self._started.callback(self.postgres.stop)

    async def prepare(self) -> None:
        """Start PostgreSQL and SQS; make the database and its schema, the queues, and a key."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._prepare_database())
                group.create_task(self._prepare_queues())
                group.create_task(self._make_key())
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def start_services(self, *handlers: str) -> tuple[ChildProcess, ChildProcess, ChildProcess]:
        """Return a server, a relay and a worker that are ready; the worker has these handlers."""
        options = ("--listen", "127.0.0.1:0", *_DATA, "--services", "jobs,events,generations")
        sources = [word for source in handlers for word in ("--handlers", source)]
        children = (
            await self._service("server", *options, awaited="airunner server listening on"),
            await self._service("outbox", "relay", awaited="airunner outbox relay sends"),
            await self._service(
                "generation", "worker", *sources, awaited="airunner generation worker serves"
            ),
        )
        for child in children:
            await child.ready()
        return children

    async def run(self, *arguments: str, purpose: str, module: str = AIRUNNER) -> str:
        """Run a command in the folder of the stack to its end; return what it prints."""
        return await run_to_end(
            *arguments,
            folder=self.folder,
            environment=self.environment,
            seconds=_STEP_SECONDS,
            purpose=purpose,
            module=module,
        )

    async def _service(self, *arguments: str, awaited: str) -> ChildProcess:
        return await self.start(*arguments, awaited=awaited, environment=self.environment)

    async def _prepare_database(self) -> None:
        from airunner.postgres.pool import Database, PostgresOptions

        await start_loopback(self._started, self.postgres)
        async with Database(PostgresOptions(dsn=self.postgres.dsn())) as database:
            await database.execute(f"CREATE ROLE {APPLICATION} LOGIN")
            await database.execute(f"CREATE DATABASE {APPLICATION} OWNER {APPLICATION}")
        self.environment["DATABASE_URL"] = self.postgres.dsn(APPLICATION, user=APPLICATION)
        await self.run("outbox", "migrate", purpose="the schema of the outbox")

    async def _prepare_queues(self) -> None:
        await start_loopback(self._started, self.emulator)
        self.environment |= emulated(self.emulator.url)
        # All that is started in this folder reads the file.
        options = ("--generation", "--env", "demo", "--env-file", ".env")
        await self.run("aws", "provision", *options, purpose="the queues")

    async def _make_key(self) -> None:
        options = ("--scope", "jobs:read", "--init", *_DATA)
        printed = await self.run("keys", "create", f"sql:{APPLICATION}", *options, purpose="a key")
        self.api_key = printed.split()[0]
