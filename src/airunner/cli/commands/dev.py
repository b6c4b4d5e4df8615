"""`airunner dev`: a server and a worker in one process, for trying things out."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from airunner.cli.event_loop import run_on_uvloop
from airunner.cli.metrics import collected_metrics, server_instruments, worker_instruments
from airunner.cli.options import ConfigFile, DataDir, LogLevel, load
from airunner.cli.printing import announce, say
from airunner.cli.signals import on_shutdown_signals

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from airunner.config import Settings
    from airunner.local.aws_plan import StackPlan, StackRequest
    from airunner.server.run import Server

_CONCURRENCY = 4


def dev(
    *,
    listen: Annotated[str | None, Parameter(help="HOST:PORT on loopback. Default: 127.0.0.1:8080")] = None,
    data_dir: DataDir = None,
    queue: Annotated[tuple[str, ...], Parameter(help="Queue to serve. Repeatable. Default: default")] = (),
    concurrency: Annotated[
        int | None, Parameter(help="Number of jobs that run at the same time. Default: 4")
    ] = None,
    handlers: Annotated[
        tuple[str, ...],
        Parameter(help="Module, package, file or folder of Python handlers. Repeatable."),
    ] = (),
    aws: Annotated[
        bool, Parameter(help="Run two servers and a worker as processes, on an emulated AWS.")
    ] = False,
    endpoint: Annotated[
        str | None,
        Parameter(
            help="With --aws: URL of another emulator, or the word aws for AWS itself, which costs money."
        ),
    ] = None,
    log_level: LogLevel = None,
    config_file: ConfigFile = None,
) -> None:
    """Run a server and a worker in one process, without API keys, on loopback only, until Ctrl-C."""
    from airunner import telemetry

    flags: dict[str, object] = {
        "listen": listen,
        "data_dir": data_dir,
        "worker.queues": ",".join(queue) if queue else None,
        "worker.concurrency": concurrency,
        "worker.handlers": ",".join(handlers) if handlers else None,
        "log_level": log_level,
    }
    if aws or endpoint:
        _develop_on_aws(config_file, flags, endpoint, requested=aws)
        return
    settings = _for_development(config_file, flags)
    telemetry.set_up_logs(settings.log_level, settings.log_format)
    with collected_metrics("airunner-dev", (*server_instruments(settings), *worker_instruments(settings))):
        run_on_uvloop(_serve_and_work(settings))


def _develop_on_aws(
    config_file: Path | None, flags: Mapping[str, object], endpoint: str | None, *, requested: bool
) -> None:
    from airunner.config import ConfigError, check_handler_origins
    from airunner.local.aws_plan import REAL_AWS, StackRequest

    if not requested:
        raise ConfigError(["--endpoint: needs --aws"])
    real = endpoint == REAL_AWS
    loaded = load(config_file, {**flags, "store.aws.endpoint_url": None if real else endpoint})
    check_handler_origins(loaded)
    if real and loaded.settings.store.aws.endpoint_url:
        origin = loaded.origins["store.aws.endpoint_url"]
        raise ConfigError([f"store.aws.endpoint_url: must not be set with --endpoint aws, but is ({origin})"])
    if loaded.settings.tls.cert_file:
        raise ConfigError(["tls: must not be set, because dev --aws serves without TLS"])
    asyncio.run(_run_aws_stack(StackRequest(loaded=loaded, config_file=config_file, real=real)))


async def _run_aws_stack(request: StackRequest) -> None:
    from airunner.local.aws_stack import AwsStack, StackCallbacks

    callbacks = StackCallbacks(on_ready=_welcome_to_aws, on_line=announce, on_server_lost=say)
    stack = AwsStack(request, callbacks)
    on_shutdown_signals(stack.stop, stack.kill)
    await stack.run()


def _welcome_to_aws(plan: StackPlan, servers: Mapping[str, int]) -> None:
    first, second = servers
    announce(
        f"airunner dev ready on {first} and {second}, jobs and events in {plan.location}; Ctrl-C ends it"
    )
    announce(f"  try: airunner run{_server_option(first)} -- echo hello")
    announce(f"       airunner list --server {first},{second}")
    announce(f"       kill -9 {servers[second]}    # the second server; clients that name both go on")


def _for_development(config_file: Path | None, flags: Mapping[str, object]) -> Settings:
    from airunner.config import ServiceName, TlsSettings, check_handler_origins

    loaded = load(config_file, {**flags, "no_auth": True}, with_database=None)
    check_handler_origins(loaded)
    settings = loaded.settings
    worker = settings.worker
    if loaded.origins["worker.concurrency"] == "default":
        worker = worker.but(concurrency=_CONCURRENCY)
    requested = ServiceName.GENERATIONS in settings.services
    services = [ServiceName.JOBS, ServiceName.EVENTS]
    if requested or settings.postgres.dsn:
        services.append(ServiceName.GENERATIONS)
    return settings.but(worker=worker, tls=TlsSettings(), services=tuple(services))


async def _serve_and_work(settings: Settings) -> None:
    from airunner.app import build_server

    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    server = build_server(settings)
    serving = asyncio.create_task(server.run(on_ready=ready.set_result))
    await asyncio.wait((serving, ready), return_when=asyncio.FIRST_COMPLETED)
    if ready.done():
        try:
            await _work_for(server, settings, ready.result())
        finally:
            server.stop()
    await serving


async def _work_for(server: Server, settings: Settings, url: str) -> None:
    from airunner.app import build_client, build_worker
    from airunner.config import ClientSettings

    settings = settings.but(client=ClientSettings(server=(url,)))
    async with build_client(settings) as client:
        worker = build_worker(settings, client)

        def kill() -> None:
            worker.kill()
            server.stop()

        # First the worker drains, then the server goes; a second signal waits for neither.
        on_shutdown_signals(worker.stop, kill)
        _welcome(url, settings)
        await worker.run()


def _welcome(url: str, settings: Settings) -> None:
    option = _server_option(url)
    announce(f"airunner dev ready on {url}, jobs and events in {settings.data_dir}; Ctrl-C ends it")
    announce(f"  try: airunner run{option} -- echo hello")
    announce(f"       airunner list{option}")


def _server_option(url: str) -> str:
    """Return the option that a command needs to reach this server."""
    from airunner.client import DEFAULT_SERVER

    return "" if url == DEFAULT_SERVER else f" --server {url}"
