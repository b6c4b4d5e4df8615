"""A generation worker with all that it needs, from settings: for its own process, or for a server."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

from airunner import telemetry
from airunner.config import ConfigError
from airunner.domain.errors import AirunnerError, Unavailable, error_text
from airunner.domain.retry import RetryPolicy, StoppableRetry
from airunner.generation.concurrency import Concurrency
from airunner.generation.layout import check_apart
from airunner.generation.lost import lost_loops
from airunner.generation.sessions import SessionTable
from airunner.generation.work import WorkOptions
from airunner.generation.worker import GenerationConsumer, GenerationOptions
from airunner.handlers.capture import captured
from airunner.outbox.schema import GENERATION_QUEUE, check_outbox
from airunner.outbox.start import open_database, queue_addresses
from airunner.services.periodic import Periodic
from airunner.services.settings.registry import MAX_GENERATION_CONCURRENCY
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from airunner.config import Settings
    from airunner.domain.clock import Clock
    from airunner.handlers.registry import Registry
    from airunner.postgres.pool import Database
    from airunner.queues.sqs import SqsQueue

_log = get_logger("airunner.generation")

PING: Final = "airunner.ping"
"""The handler that every generation worker has; it returns its payload."""
METRICS_SECONDS: Final = 60.0
# Long polls have connections of their own: other calls do not wait behind them.
_QUEUE_CLIENTS: Final = ("sqs", "polls")
_SILENCE_MS: Final = 60_000


class GenerationWorker:
    """A consumer of the generation queue, the setting of its concurrency, and the pass over lost work.

    `run` is all of it, until `stop`: it is a companion of a server as well.
    """

    def __init__(self, settings: Settings, handlers: Registry, clock: Clock) -> None:
        """Raise ConfigError for settings, and HandlerError for hooks, that cannot work."""
        check_settings(settings)
        self._settings = settings
        self._clock = clock
        self._handlers = prepare_handlers(handlers)
        self._stack = AsyncExitStack()
        self._consumer: GenerationConsumer | None = None
        self._loops: list[Periodic] = []
        self._opening = StoppableRetry()
        self._task: asyncio.Task[None] | None = None

    @property
    def healthy(self) -> bool:
        """Whether receives and loops come to their ends; to wait for PostgreSQL or SQS is no failure."""
        is_receiving = self._consumer is None or self._consumer.healthy
        return is_receiving and all(loop.healthy for loop in self._loops)

    @property
    def state(self) -> str:
        """What it does, in a word: `ok`, or `waiting` while PostgreSQL or the queue does not answer."""
        if self._consumer is None:
            return "waiting"
        silence = self._clock.monotonic() - self._consumer.source.last_answer_at
        # One whose slots are all taken asks nobody.
        return "ok" if silence < _SILENCE_MS or self._consumer.running else "waiting"

    async def run(self) -> None:
        """Open everything, waiting for what is away, and work until `stop`. Call it once."""
        self._task = asyncio.current_task()
        try:
            consumer = await self._opening.run(
                RetryPolicy(first_seconds=0.5, max_seconds=10.0),
                self._clock,
                self._open,
                retry_if=lambda error: isinstance(error, Unavailable),
                on_failure=_log_waiting,
            )
            if consumer and not self._opening.is_stopped:
                with captured():
                    await consumer.run()
        finally:
            await self._close()

    def stop(self) -> None:
        """End what `run` does: nothing more is received, handlers may go on for a while. May be repeated.

        What is away is not waited for any more.
        """
        self._opening.stop()
        if self._consumer:
            self._consumer.stop()

    async def drain(self) -> None:
        """Do the same; `run` returns when all is over."""
        self.stop()

    def kill(self) -> None:
        """End it at once, and settle nothing more."""
        self._opening.stop()
        if self._consumer:
            self._consumer.kill()
        elif self._task:
            self._task.cancel()

    async def _open(self) -> GenerationConsumer:
        """Open everything once; what was opened when something fails is closed with the rest."""
        async with AsyncExitStack() as stack:
            database = await stack.enter_async_context(open_database(self._settings))
            await check_outbox(database, self._settings.postgres.schema)
            queue = await self._open_queue(stack)
            consumer = self._compose(database, queue)
            for loop in self._loops:
                stack.push_async_callback(loop.stop)
                loop.start()
            self._stack = stack.pop_all()
        self._consumer = consumer
        self._log_start()
        return consumer

    async def _open_queue(self, stack: AsyncExitStack) -> SqsQueue:
        from airunner.aws.connect import build_aws

        aws = build_aws(self._settings, self._clock, clients=_QUEUE_CLIENTS)
        from airunner.queues.sqs import SqsQueue

        await stack.enter_async_context(aws)
        url = queue_addresses(self._settings)[GENERATION_QUEUE]
        dead_url = self._settings.generation.dead_letter_url or ""
        queue = SqsQueue(aws, url, clock=self._clock, dead_letter_url=dead_url)
        redrive = await queue.redrive_policy()
        if redrive is None:
            raise ConfigError([
                f"generation.queue_url: queue {queue.name} has no redrive policy, "
                "so its messages would never be dead letters: "
                "create it with 'airunner aws provision', or give it a dead-letter queue"
            ])  # fmt: skip
        dead_letters = SqsQueue(aws, dead_url or redrive.dead_letter_url, clock=self._clock)
        self._loops = [
            Periodic(
                "generation.metrics",
                _depth_reader(queue, dead_letters),
                clock=self._clock,
                interval_seconds=METRICS_SECONDS,
                at_once=True,
            )
        ]
        return queue

    def _compose(self, database: Database, queue: SqsQueue) -> GenerationConsumer:
        generation, schema = self._settings.generation, self._settings.postgres.schema
        concurrency = Concurrency(database, schema, generation.concurrency)
        refresh_seconds = generation.settings_refresh_millis / 1000
        self._loops += [
            Periodic(
                "generation.settings",
                concurrency.run_once,
                clock=self._clock,
                interval_seconds=refresh_seconds,
                at_once=True,
            ),
            *lost_loops(database, schema, self._handlers, self._clock),
        ]
        return GenerationConsumer(
            queue,
            SessionTable(database, schema),
            self._handlers,
            self._clock,
            options_of(self._settings),
            concurrency=lambda: concurrency.current,
        )

    async def _close(self) -> None:
        stack, self._stack = self._stack, AsyncExitStack()
        self._consumer = None
        self._loops = []
        await stack.aclose()

    def _log_start(self) -> None:
        for handler in self._handlers.values():
            _log.info("handler.registered", handler=handler.name, source=handler.source)
        generation = self._settings.generation
        _log.info(
            "worker.init",
            queue=queue_addresses(self._settings).get(GENERATION_QUEUE, ""),
            concurrency=generation.concurrency,
            handlers=len(self._handlers),
        )


def check_settings(settings: Settings) -> None:
    """Refuse, with ConfigError, settings with which no generation worker can work."""
    problems = []
    if not settings.postgres.dsn_text:
        problems.append("postgres.dsn: must be set, there or as DATABASE_URL")
    if GENERATION_QUEUE not in queue_addresses(settings):
        problems.append("generation.queue_url: must be set, there or as SQS_MAIN_QUEUE_URL")
    if settings.outbox.sink != "sqs":
        problems.append("outbox.sink: with sink jobs, 'airunner worker' does the work")
    if problems:
        raise ConfigError(problems)
    check_apart(settings)


def prepare_handlers(handlers: Registry) -> Registry:
    """Return handlers whose hooks can be called, with the one that every generation worker has."""
    for handler in handlers.values():
        handler.hooks.check(handler.source)
    prepared = handlers.mapped(lambda handler: handler)
    if PING not in prepared:
        prepared.add(PING, _ping, "airunner")
    return prepared


def options_of(settings: Settings) -> GenerationOptions:
    """Return how a generation worker works by the settings."""
    generation = settings.generation
    return GenerationOptions(
        work=WorkOptions(
            deadline_seconds=generation.handler_deadline_seconds,
            visibility_seconds=generation.visibility_seconds,
            threads=MAX_GENERATION_CONCURRENCY,
        ),
        visibility_seconds=generation.visibility_seconds,
        idle_seconds=generation.idle_delay_millis / 1000,
        redelivery=RetryPolicy(
            first_seconds=generation.retry_first_seconds, max_seconds=generation.retry_max_seconds
        ),
        drain_seconds=generation.drain_seconds,
    )


async def _ping(payload: object) -> object:
    return payload


def _depth_reader(queue: SqsQueue, dead_letters: SqsQueue) -> Callable[[], Awaitable[None]]:
    async def measure() -> None:
        depths = {"generation": await queue.depth(), "generation-dlq": await dead_letters.depth()}
        telemetry.generation_messages.show(
            {(name,): depth.visible + depth.in_flight + depth.delayed for name, depth in depths.items()}
        )

    return measure


def _log_waiting(error: Exception, failures: int) -> None:
    text = error_text(error) if isinstance(error, AirunnerError) else type(error).__name__
    _log.warning("worker.loop_error", failures=failures, error=text)
