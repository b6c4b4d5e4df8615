"""Verdicts for jobs: with sink `jobs`, `airunner worker` does the work of the generation queue.

Handlers are wrapped, so that they act as in a generation worker: the start of a try, the verdict, the hooks
and the pauses between tries are the same. Jobs of other queues are as they were.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager, suppress
from contextvars import Context as Variables
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from airunner.config import ConfigError
from airunner.domain.background import end_wait
from airunner.domain.clock import SystemClock
from airunner.domain.errors import Unavailable, error_text
from airunner.domain.limits import DEFAULT_VISIBILITY_SECONDS
from airunner.domain.retry import RetryPolicy, retry
from airunner.generation.gate import DatabaseGate
from airunner.generation.start import prepare_handlers
from airunner.generation.work import GenerationWork, WorkOptions, WorkTry
from airunner.handlers.arguments import PLAIN_ARGUMENTS
from airunner.outbox.schema import GENERATION_QUEUE
from airunner.queues.base import TryAgain
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine
    from concurrent.futures import Future

    from airunner.config import Settings
    from airunner.handlers.context import Context
    from airunner.handlers.registry import Handler, Registry
    from airunner.postgres.pool import Database

_log = get_logger("airunner.generation")

_AWAY: Final = RetryPolicy(first_seconds=0.5, max_seconds=10.0)


@asynccontextmanager
async def open_job_verdicts(settings: Settings) -> AsyncIterator[JobVerdicts | None]:
    """Give what wraps the handlers of a worker, and says when it dequeues; None unless it serves such jobs.

    ConfigError for settings with which it cannot be done; a database that is away is waited for.
    """
    worker = settings.worker
    serves = GENERATION_QUEUE in worker.queues and bool(worker.handlers)
    # Who names the application's database means its work; without the sink it would be done without verdicts.
    if not serves or (settings.outbox.sink != "jobs" and not settings.postgres.dsn_text):
        yield None
        return
    _check(settings)
    from airunner.generation.sessions import SessionTable

    clock = SystemClock()
    async with await _open_database(settings) as database:
        generation = settings.generation
        options = WorkOptions(
            deadline_seconds=generation.handler_deadline_seconds,
            visibility_seconds=worker.visibility_timeout_seconds or DEFAULT_VISIBILITY_SECONDS,
            threads=worker.concurrency,
        )
        sessions = SessionTable(database, settings.postgres.schema)
        work, gate = GenerationWork(sessions, clock, options), DatabaseGate(sessions, clock)
        redelivery = RetryPolicy(
            first_seconds=generation.retry_first_seconds, max_seconds=generation.retry_max_seconds
        )
        try:
            yield JobVerdicts(work, redelivery, gate)
        finally:
            work.close()
            await gate.close()


class JobVerdicts:
    """Wraps handlers. Made on the loop that the work is done on; handlers are called from others."""

    def __init__(self, work: GenerationWork, redelivery: RetryPolicy, gate: DatabaseGate) -> None:
        self._work = work
        self._redelivery = redelivery
        self.gate = gate
        """Says of which queues nothing is to be dequeued now."""
        self._loop = asyncio.get_running_loop()

    @property
    def overdue(self) -> int:
        """How many handlers go on though their jobs are over; each still takes a slot."""
        return self._work.overdue

    def wrap(self, handlers: Registry) -> Registry:
        """Return handlers whose calls for the generation queue end with a verdict; HandlerError for hooks."""
        return prepare_handlers(handlers).mapped(self._wrap)

    def _wrap(self, handler: Handler) -> Handler:
        async def call_async(payload_json: str, ctx: Context) -> Any:
            if ctx.queue != GENERATION_QUEUE:
                return await handler.function(*handler.arguments.bind(payload_json, ctx))
            return await self._end_of(handler, payload_json, ctx)

        def call(payload_json: str, ctx: Context) -> Any:
            if ctx.queue != GENERATION_QUEUE:
                return handler.function(*handler.arguments.bind(payload_json, ctx))
            return self._begin(self._run(handler, payload_json, ctx)).result()

        function = call_async if handler.is_async else call
        return replace(handler, function=function, arguments=PLAIN_ARGUMENTS)

    def _begin(self, work: Coroutine[Any, Any, Any]) -> Future[Any]:
        """Begin work on its loop, without the variables of the handler that is called.

        With them, what a hook prints there would be output of the job, and wait for room that only this loop
        can make.
        """
        return Variables().run(asyncio.run_coroutine_threadsafe, work, self._loop)

    async def _end_of(self, handler: Handler, payload_json: str, ctx: Context) -> Any:
        """Do work, and return when it is over, also once this is cancelled: its slot is not free before."""
        called_off: asyncio.Future[None] = self._loop.create_future()
        work = self._cancellable(self._run(handler, payload_json, ctx), called_off)
        ended = asyncio.wrap_future(self._begin(work))
        try:
            return await asyncio.shield(ended)
        except asyncio.CancelledError:
            self._loop.call_soon_threadsafe(end_wait, called_off)
            while not ended.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.wait({ended})
            raise

    async def _cancellable(self, work: Coroutine[Any, Any, Any], called_off: asyncio.Future[None]) -> Any:
        if task := asyncio.current_task():
            called_off.add_done_callback(lambda _: task.cancel())
        return await work

    async def _run(self, handler: Handler, payload_json: str, ctx: Context) -> Any:
        work = WorkTry(
            id=ctx.request_id,
            handler=handler,
            payload_json=payload_json,
            attempt=ctx.attempt,
            last_try=ctx.last_try,
        )
        try:
            result = await self._work.run(work, lambda _session: (ctx.output, ctx))
        except TryAgain as error:
            delay_seconds = self._redelivery.delay(ctx.attempt)
            raise TryAgain(str(error), delay_seconds=delay_seconds) from error.__cause__
        return json.loads(result or "null")


def _check(settings: Settings) -> None:
    problems = []
    if settings.outbox.sink != "jobs":
        problems.append("outbox.sink: must be jobs for a worker of the queue generation with postgres.dsn")
    if not settings.postgres.dsn_text:
        problems.append("postgres.dsn: jobs of the queue generation end in the application's database")
    if settings.worker.handler_processes:
        problems.append("worker.handler_processes: must be 0 for jobs of the queue generation")
    if problems:
        raise ConfigError(problems)


async def _open_database(settings: Settings) -> Database:
    """Return the database, which answers, closed again: whoever enters it opens it."""
    from airunner.outbox.schema import check_outbox
    from airunner.outbox.start import open_database

    async def ask() -> None:
        async with open_database(settings) as database:
            await check_outbox(database, settings.postgres.schema)

    await retry(
        _AWAY,
        SystemClock(),
        ask,
        retry_if=lambda error: isinstance(error, Unavailable),
        on_failure=lambda error, failures: _log.warning(
            "worker.loop_error", failures=failures, error=error_text(error)
        ),
    )
    return open_database(settings)
