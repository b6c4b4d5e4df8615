"""`airunner generation`: doing the work that applications enqueue for the generation queue."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from airunner.cli.metrics import collected_metrics, served_probes
from airunner.cli.options import DEFAULT_DATABASE, DatabaseOptions, LogFormat, LogLevel, MetricsListen
from airunner.cli.printing import announce

if TYPE_CHECKING:
    from airunner.config import Settings

generation = App(name="generation", help="Process the work of the generation queue.")


@generation.command
def worker(
    *,
    handlers: Annotated[
        tuple[str, ...],
        Parameter(help="Module, package, file or folder of Python handlers. Repeatable."),
    ] = (),
    concurrency: Annotated[
        int | None, Parameter(help="Number of handlers that run at the same time, 1 to 10. Default: 5")
    ] = None,
    metrics_listen: MetricsListen = None,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
    database: DatabaseOptions = DEFAULT_DATABASE,
) -> None:
    """Process the work of the generation queue until SIGTERM or SIGINT.

    The first signal drains: the worker receives nothing more, handlers may finish (generation.drain_seconds),
    and the rest is given back. A second signal ends it at once, and its work is tried again elsewhere.
    """
    from airunner import telemetry
    from airunner.cli.event_loop import run_on_uvloop
    from airunner.config import check_handler_origins, process_environment

    loaded = database.load_with_origins({
        "generation.handlers": ",".join(handlers) if handlers else None,
        "generation.concurrency": concurrency,
        "generation.metrics_listen": metrics_listen,
        "log_level": log_level,
        "log_format": log_format,
    })  # fmt: skip
    check_handler_origins(loaded)
    settings = loaded.settings
    telemetry.set_up_logs(settings.log_level, settings.log_format)
    is_measured = settings.generation.metrics_listen or telemetry.otlp_is_wanted(process_environment())
    metrics = collected_metrics("airunner-generation", telemetry.GENERATION_METRICS)
    with metrics if is_measured else nullcontext():
        run_on_uvloop(_work(settings))


async def _work(settings: Settings) -> None:
    from airunner.app import build_generation_worker
    from airunner.cli.signals import on_shutdown_signals

    worker = build_generation_worker(settings)
    running = asyncio.create_task(worker.run())
    on_shutdown_signals(worker.stop, worker.kill)
    async with served_probes("generation", settings.generation.metrics_listen, lambda: worker.state):
        announce("airunner generation worker serves the queue of generation")
        with suppress(asyncio.CancelledError):
            await running
