"""A worker as this process: it waits for a server, drains at the first signal and serves its pages."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, nullcontext, suppress
from typing import TYPE_CHECKING

from airunner.cli.event_loop import run_on_uvloop
from airunner.cli.metrics import collected_metrics, served_probes, worker_instruments
from airunner.cli.printing import announce, say
from airunner.cli.signals import on_shutdown_signals

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from contextlib import AbstractContextManager

    from airunner.client import AsyncClient
    from airunner.config import Loaded, Settings
    from airunner.fleet.runner.runner import FleetRunner
    from airunner.worker.worker import Worker


def run_worker(loaded: Loaded, serve: Callable[[Settings], Coroutine[object, object, None]]) -> None:
    """Run, with logs and metrics, what serves jobs as the settings describe."""
    from airunner import telemetry
    from airunner.config import raise_descriptor_limit
    from airunner.worker.secrets.concealment import warn_of_exposure

    settings = loaded.settings
    telemetry.set_up_logs(settings.log_level, settings.log_format)
    raise_descriptor_limit()
    warn_of_exposure(settings.client.api_key_text, loaded.file_of("client.api_key"))
    with _metrics(settings):
        run_on_uvloop(serve(settings))


async def serve_jobs(settings: Settings, *, once: bool = False, runner: FleetRunner | None = None) -> None:
    """Do jobs until a signal, or one. A runner ends also when EC2 takes its machine away, and reports.

    An error of the worker comes after the report.
    """
    from airunner.app import build_client, build_worker
    from airunner.config import AWS_CREDENTIALS
    from airunner.domain.retry import RetryPolicy
    from airunner.generation.job_verdicts import open_job_verdicts

    async with (
        open_job_verdicts(settings) as verdicts,
        build_client(settings, retry=RetryPolicy(attempts=1)) as quick_client,
        build_client(settings) as client,
        AsyncExitStack() as beside,
    ):
        jobs = runner.observe(client) if runner else None
        withheld = AWS_CREDENTIALS if runner else ()
        worker = build_worker(
            settings, client, once=once, job_verdicts=verdicts, jobs=jobs, withheld=withheld
        )
        waiting = asyncio.create_task(wait_for_server(quick_client, settings.worker.queues[0]))
        stop = _stop_of(worker, waiting)
        on_shutdown_signals(stop, worker.kill)

        def state() -> str:
            is_away = verdicts is not None and verdicts.gate.is_closed
            return "waiting" if is_away or not waiting.done() else "ok"

        await beside.enter_async_context(served_probes("worker", settings.worker.metrics_listen, state))
        if runner:
            await beside.enter_async_context(runner.watching(stop))
        try:
            with suppress(asyncio.CancelledError):
                await waiting
                announce(f"airunner worker serves {', '.join(settings.worker.queues)}")
                await worker.run()
        finally:
            # Before anything is closed: what hangs there must not cost the report.
            if runner:
                await runner.report()


async def wait_for_server(client: AsyncClient, queue: str) -> None:
    """Return once a server answers and lets us work; say once that we wait, and raise if it refuses us."""
    from airunner.domain.clock import SystemClock
    from airunner.domain.errors import AirunnerError, DeadlineExceeded, InvalidArgument, Unavailable
    from airunner.domain.requests import UpdateRequest
    from airunner.domain.retry import RetryPolicy, retry

    async def ask() -> None:
        try:
            await client.update_job(UpdateRequest(queue=queue, task_token="none"))  # noqa: S106  no token at all
        except InvalidArgument:
            return  # the token was looked at, so the key is right

    def on_failure(error: Exception, failures: int) -> None:
        if failures == 1 and isinstance(error, AirunnerError):
            say(f"waiting for a server: {error.text}")

    away = (Unavailable, DeadlineExceeded)
    await retry(
        RetryPolicy(),
        SystemClock(),
        ask,
        retry_if=lambda error: isinstance(error, away),
        on_failure=on_failure,
    )


def _metrics(settings: Settings) -> AbstractContextManager[None]:
    """Collect metrics if anybody will ever see them."""
    from airunner import telemetry
    from airunner.config import process_environment

    worker = settings.worker
    if worker.metrics_listen is None and not telemetry.otlp_is_wanted(process_environment()):
        return nullcontext()
    return collected_metrics("airunner-worker", worker_instruments(settings), worker.worker_id)


def _stop_of(worker: Worker, waiting: asyncio.Task[None]) -> Callable[[], None]:
    """Return what ends the worker in good order, or the wait for a server if that is all it does yet."""

    def stop() -> None:
        if not waiting.done():
            waiting.cancel()
        else:
            worker.stop()

    return stop
