"""`airunner worker`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from airunner.cli.options import ANY_SERVER, ConnectionOptions, LogFormat, LogLevel, MetricsListen


def worker(
    *,
    queue: Annotated[
        tuple[str, ...], Parameter(help="Queue to serve. Repeatable, in order of priority. Default: default")
    ] = (),
    concurrency: Annotated[
        int | None, Parameter(help="Number of jobs that run at the same time. Default: 1")
    ] = None,
    handlers: Annotated[
        tuple[str, ...],
        Parameter(help="Module, package, file or folder of Python handlers. Repeatable."),
    ] = (),
    handler_processes: Annotated[
        int | None,
        Parameter(help="Number of processes that run sync handlers; 0 = they run in threads. Default: 0"),
    ] = None,
    no_commands: Annotated[
        bool, Parameter(help="Run only the jobs of handlers, and start no processes.")
    ] = False,
    once: Annotated[bool, Parameter(help="Run one job and exit.")] = False,
    visibility_timeout: Annotated[
        int | None,
        Parameter(help="Seconds that the worker holds a job without a heartbeat. Default: the server's"),
    ] = None,
    worker_id: Annotated[
        str | None, Parameter(help="Name of this worker. Default: host name and pid")
    ] = None,
    metrics_listen: MetricsListen = None,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
    connection: ConnectionOptions = ANY_SERVER,
) -> None:
    """Run the jobs of queues until SIGTERM or SIGINT.

    The first signal drains: the worker takes no new jobs, running jobs may finish (worker.drain_seconds), and
    the rest are given back. A second signal ends it at once, and its jobs start again elsewhere.
    """
    flags = {
        "worker.queues": ",".join(queue) if queue else None,
        "worker.concurrency": concurrency,
        "worker.handlers": ",".join(handlers) if handlers else None,
        "worker.handler_processes": handler_processes,
        "worker.commands": False if no_commands else None,
        "worker.visibility_timeout_seconds": visibility_timeout,
        "worker.worker_id": worker_id,
        "worker.metrics_listen": metrics_listen,
        "log_level": log_level,
        "log_format": log_format,
    }
    from airunner.cli.worker_process import run_worker, serve_jobs
    from airunner.config import check_handler_origins

    loaded = connection.load_with_origins(flags)
    check_handler_origins(loaded)
    run_worker(loaded, lambda settings: serve_jobs(settings, once=once))
