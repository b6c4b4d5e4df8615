"""`airunner dev`: a server and a worker in one process, for trying things out."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from airunner.cli.commands.server import run_on_uvloop
from airunner.cli.metrics import collected_metrics
from airunner.cli.options import ConfigFile, DataDir, load
from airunner.cli.printing import announce

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from airunner.config import Settings
    from airunner.server.run import Server
    from airunner.worker.worker import Worker

_CONCURRENCY = 4


def dev(
    *,
    listen: Annotated[str | None, Parameter(help="HOST:PORT on loopback. Default: 127.0.0.1:8080")] = None,
    data_dir: DataDir = None,
    queue: Annotated[tuple[str, ...], Parameter(help="Queue to serve; repeatable. Default: default")] = (),
    concurrency: Annotated[int | None, Parameter(help="Jobs at the same time. Default: 4")] = None,
    aws: Annotated[
        bool, Parameter(help="Two servers and a worker as processes, on an emulated AWS of their own.")
    ] = False,
    endpoint: Annotated[
        str | None,
        Parameter(
            help="With --aws: URL of another emulator; the word aws for AWS itself, which costs money."
        ),
    ] = None,
    log_level: Annotated[str | None, Parameter(help="debug, info, warning or error.")] = None,
    config_file: ConfigFile = None,
) -> None:
    """Serve and work in one process, without API keys and on loopback only, until Ctrl-C."""
    from airunner import telemetry

    flags: dict[str, object] = {
        "listen": listen,
        "data_dir": data_dir,
        "worker.queues": ",".join(queue) if queue else None,
        "worker.concurrency": concurrency,
        "log_level": log_level,
    }
    if aws or endpoint:
        _develop_on_aws(config_file, flags, endpoint, requested=aws)
        return
    settings = _for_development(config_file, flags)
    telemetry.set_up_logs(settings.log_level, settings.log_format)
    with collected_metrics("airunner-dev", (*telemetry.SERVER_METRICS, *telemetry.WORKER_METRICS)):
        run_on_uvloop(_serve_and_work(settings))


def _develop_on_aws(
    config_file: Path | None, flags: Mapping[str, object], endpoint: str | None, *, requested: bool
) -> None:
    from airunner.config import ConfigError
    from airunner.local.aws_plan import REAL_AWS, StackRequest
    from airunner.local.aws_stack import dev_on_aws

    if not requested:
        raise ConfigError(["--endpoint: needs --aws"])
    real = endpoint == REAL_AWS
    loaded = load(config_file, {**flags, "store.aws.endpoint_url": None if real else endpoint})
    place = loaded.settings.store.aws
    if real and place.endpoint_url:
        origin = loaded.origins["store.aws.endpoint_url"]
        raise ConfigError(
            [f"store.aws.endpoint_url: is set ({origin}), and --endpoint aws needs it not to be"]
        )
    if loaded.settings.tls.cert_file:
        raise ConfigError(["tls: dev --aws serves without, so it must not be set"])
    dev_on_aws(StackRequest(loaded=loaded, config_file=config_file, real=real))


def _for_development(config_file: Path | None, flags: Mapping[str, object]) -> Settings:
    from airunner.config import ServiceName, TlsSettings

    loaded = load(config_file, {**flags, "no_auth": True})
    settings = loaded.settings
    worker = settings.worker
    if loaded.origins["worker.concurrency"] == "default":
        worker = worker.model_copy(update={"concurrency": _CONCURRENCY})
    return settings.model_copy(
        update={"worker": worker, "tls": TlsSettings(), "services": tuple(ServiceName)}
    )


async def _serve_and_work(settings: Settings) -> None:
    from airunner.app import build_server

    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    server = build_server(settings)
    serving = asyncio.create_task(server.run(signals=False, on_ready=ready.set_result))
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

    own = settings.model_copy(update={"client": ClientSettings(server=(url,))})
    async with build_client(own) as client:
        worker = build_worker(own, client)
        _catch_signals(worker, server)
        _welcome(url, own)
        await worker.run()


def _welcome(url: str, settings: Settings) -> None:
    from airunner.client import DEFAULT_SERVER

    option = "" if url == DEFAULT_SERVER else f" --server {url}"
    announce(f"airunner dev ready on {url}, jobs and events in {settings.data_dir}; Ctrl-C ends it")
    announce(f"  try: airunner run{option} -- echo hello")
    announce(f"       airunner list{option}")


def _catch_signals(worker: Worker, server: Server) -> None:
    """First the worker drains, then the server goes; a second signal waits for neither."""
    signals = 0

    def stop() -> None:
        nonlocal signals
        signals += 1
        if signals == 1:
            worker.stop()
        else:
            worker.kill()
            server.stop()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
