"""A relay with all that it needs, from settings: for its own process, for a server, for an application."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

from airunner import telemetry
from airunner.config import ConfigError, load_settings
from airunner.domain.clock import SystemClock
from airunner.domain.errors import AirunnerError, FailedPrecondition, Unavailable, error_text
from airunner.domain.retry import RetryPolicy, StoppableRetry
from airunner.outbox.relay import Relay, RelayOptions
from airunner.outbox.schema import GENERATION_QUEUE, WAKE_UP_CHANNEL, check_outbox
from airunner.outbox.table import OutboxTable
from airunner.outbox.upkeep import OutboxUpkeep
from airunner.services.periodic import Periodic
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from airunner.config import Settings
    from airunner.domain.clock import Clock
    from airunner.outbox.rows import Sink
    from airunner.outbox.table import OutboxStatus
    from airunner.postgres.listening import Listener
    from airunner.postgres.pool import Database, PostgresOptions
    from airunner.services.api import JobsApi

_log = get_logger("airunner.outbox")

UPKEEP_SECONDS: Final = 60.0
METRICS_SECONDS: Final = 15.0
_SILENCE_MS: Final = 30_000


async def start_outbox_relay(settings: Mapping[str, object] | None = None) -> OutboxRelay:
    """Start a relay in this process and return it; `await relay.stop()` ends it in good order.

    It works by the settings of airunner, as commands find them, `DATABASE_URL` included; those given here, by
    their dotted names, count before all others: `{"generation.queue_url": "https://..."}`. Settings that
    cannot work are an error at once; a database that is away is waited for in the background.
    """
    loaded = load_settings(flags=settings or {}, with_database=True)
    relay = OutboxRelay(loaded.settings, SystemClock())
    await relay.start()
    return relay


class OutboxRelay:
    """A relay, its listener, and what is done every minute.

    `run` is all of it, until `drain`; `start` and `stop` do the same in a task of its own.
    """

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        *,
        sink: Sink | None = None,
        more_loops: Callable[[Database, JobsApi | None], Sequence[Periodic]] = lambda _database, _jobs: (),
    ) -> None:
        """Make one; `more_loops` are begun with it, on its database and, with sink `jobs`, its client."""
        if not settings.postgres.dsn_text:
            raise ConfigError(["postgres.dsn: must be set, or DATABASE_URL"])
        self._settings = settings
        self._clock = clock
        self._stack = AsyncExitStack()
        self._given_sink = sink
        self._more_loops = more_loops
        self._jobs: JobsApi | None = None
        self._relay: Relay | None = None
        self._loops: list[Periodic] = []
        self._opening = StoppableRetry()
        self._task: asyncio.Task[None] | None = None
        self.relay_id = f"{socket.gethostname()}-{os.getpid()}-{os.urandom(3).hex()}"

    @property
    def healthy(self) -> bool:
        """Whether it goes on: it waits for the database, or sends, and its loops come to their ends."""
        is_running = self._task is None or not self._task.done()
        return is_running and all(loop.healthy for loop in self._loops)

    @property
    def state(self) -> str:
        """What it does, in a word: `ok`, or `waiting` for a database that has not answered for a while."""
        answered_at = self._relay.last_answer_at if self._relay else None
        is_heard = answered_at is not None and self._clock.monotonic() - answered_at < _SILENCE_MS
        return "ok" if is_heard else "waiting"

    async def run(self) -> None:
        """Open everything, waiting for a database that is away, and send until `drain`."""
        try:
            await self._opening.run(
                RetryPolicy(),
                self._clock,
                self._open,
                retry_if=lambda error: isinstance(error, Unavailable),
                on_failure=_log_waiting,
            )
            if self._relay and not self._opening.is_stopped:
                await self._relay.run()
                # What is being sent still needs the sink, and the database for its marks.
                await self._relay.drain()
        finally:
            await self._close()

    async def drain(self) -> None:
        """End what `run` does: nothing more is claimed, what is being sent is finished.

        A database that is away is not waited for any more.
        """
        self._opening.stop()
        if self._relay:
            await self._relay.drain()

    async def start(self) -> None:
        """Begin in the background; raises what the settings or the schema lack."""
        try:
            await self._open()
        except Unavailable as error:
            _log_waiting(error, 1)
        except BaseException:
            await self._close()
            raise
        self._task = asyncio.create_task(self.run(), name="outbox.relay")
        self._task.add_done_callback(_log_end)

    async def stop(self) -> None:
        """End it in good order. Harmless when repeated."""
        await self.drain()
        task, self._task = self._task, None
        if task:
            await asyncio.wait({task})

    async def _open(self) -> None:
        """Open everything once; what was opened when something fails is closed with the rest."""
        if self._relay:
            return
        async with AsyncExitStack() as stack:
            database = await stack.enter_async_context(open_database(self._settings))
            await check_outbox(database, self._settings.postgres.schema)
            sink = self._given_sink or await self._open_sink(stack)
            relay, listener = self._compose(database, sink)
            self._loops += self._more_loops(database, self._jobs)
            stack.push_async_callback(listener.stop)
            listener.start()
            for loop in self._loops:
                stack.push_async_callback(loop.stop)
                loop.start()
            self._stack = stack.pop_all()
        self._relay = relay

    def _compose(self, database: Database, sink: Sink) -> tuple[Relay, Listener]:
        from airunner.postgres.listening import Listener

        schema = self._settings.postgres.schema
        table = OutboxTable(database, schema)
        upkeep = OutboxUpkeep(database, schema, session_days=self._settings.generation.session_days)
        self._loops = [
            Periodic(name, run_once, clock=self._clock, interval_seconds=seconds, at_once=True)
            for name, run_once, seconds in (
                ("outbox.upkeep", upkeep.run_once, UPKEEP_SECONDS),
                ("outbox.metrics", _Measuring(table).run_once, METRICS_SECONDS),
            )
        ]
        relay = Relay(
            table,
            sink,
            self._clock,
            RelayOptions(relay_id=self.relay_id),
            can_hear=lambda: listener.is_connected,
        )
        listener = Listener(
            listen_options(self._settings),
            [WAKE_UP_CHANNEL],
            on_payload=lambda _channel, _payload: relay.wake(),
            on_gap=relay.wake,
            clock=self._clock,
        )
        return relay, listener

    async def _open_sink(self, stack: AsyncExitStack) -> Sink:
        if self._settings.outbox.sink == "jobs":
            from airunner.client.async_client import AsyncClient
            from airunner.outbox.jobs_sink import JobsSink

            client = self._settings.client
            jobs = AsyncClient(
                client.server,
                api_key=client.api_key_text or None,
                ca_file=client.ca_file,
                timeout_seconds=client.timeout_seconds,
            )
            self._jobs = await stack.enter_async_context(jobs)
            return JobsSink(self._jobs)
        return await _open_sqs(stack, self._settings, self._clock)

    async def _close(self) -> None:
        stack, self._stack = self._stack, AsyncExitStack()
        self._relay = None
        self._loops = []
        await stack.aclose()


def postgres_options(settings: Settings) -> PostgresOptions:
    """Return the way to the application's database that the settings describe."""
    try:
        from airunner.postgres.pool import PostgresOptions
    except ModuleNotFoundError as error:
        raise FailedPrecondition(
            "PostgreSQL needs an extra of airunner: pip install 'airunner-jobs[postgres]'"
        ) from error
    postgres = settings.postgres
    return PostgresOptions(
        dsn=postgres.dsn_text,
        application_name="airunner outbox",
        is_pooled=postgres.listen_dsn is not None,
    )


def open_database(settings: Settings, *, statement_seconds: float = 10.0) -> Database:
    """Return the application's database, still to be opened."""
    from dataclasses import replace

    if not settings.postgres.dsn_text:
        raise ConfigError(["postgres.dsn: must be set, or DATABASE_URL"])
    options = postgres_options(settings)
    from airunner.postgres.pool import Database

    return Database(replace(options, statement_seconds=statement_seconds))


def listen_options(settings: Settings) -> PostgresOptions:
    """Return the way to it on which notifications arrive."""
    from dataclasses import replace

    return replace(postgres_options(settings), dsn=settings.postgres.listen_dsn_text)


def queue_addresses(settings: Settings) -> dict[str, str]:
    """Return the URL of each queue that rows may name."""
    of_generation = settings.generation.queue_url
    return {**settings.outbox.queues, **({GENERATION_QUEUE: of_generation} if of_generation else {})}


class _Measuring:
    """Shows how much is in the outbox."""

    def __init__(self, table: OutboxTable) -> None:
        self._table = table

    async def run_once(self) -> None:
        status: OutboxStatus = await self._table.status()
        telemetry.outbox_pending.show({(): status.pending})
        telemetry.outbox_parked.show({(): status.parked})
        telemetry.outbox_oldest_age.show({(): status.oldest_due_seconds})


async def _open_sqs(stack: AsyncExitStack, settings: Settings, clock: Clock) -> Sink:
    from airunner.aws.connect import build_aws

    addresses = queue_addresses(settings)
    aws = build_aws(settings, clock, clients=["sqs"]) if addresses else None
    from airunner.outbox.sqs_sink import SqsSink
    from airunner.queues.sqs import SqsQueue

    if aws is None:
        return SqsSink({})
    await stack.enter_async_context(aws)
    return SqsSink({name: SqsQueue(aws, url, clock=clock) for name, url in addresses.items()})


def _log_waiting(error: Exception, failures: int) -> None:
    _log.warning("outbox.database_failed", failures=failures, error=error_text(error))


def _log_end(task: asyncio.Task[None]) -> None:
    error = None if task.cancelled() else task.exception()
    if error:
        surprise = None if isinstance(error, AirunnerError) else error
        _log.error("outbox.relay_ended", error=error_text(error), exc_info=surprise)
