"""`airunner fleet`: ephemeral instances that run jobs, and what cleans up after them."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING

from cyclopts import App

from airunner.cli.metrics import collected_metrics, served_probes
from airunner.cli.options import ConfigFile, LogFormat, LogLevel, MetricsListen, load
from airunner.cli.printing import announce

if TYPE_CHECKING:
    from pathlib import Path

    from airunner.config import FleetPart, Settings
    from airunner.fleet.process import FleetProcess

fleet = App(name="fleet", help="Run jobs on a fleet of instances, and clean up after it.")

fleet.command("airunner.cli.commands.fleet_runner:runner", name="runner")
fleet.command("airunner.cli.commands.fleet_instances:assign", name="assign")
fleet.command("airunner.cli.commands.fleet_instances:undrain", name="undrain")
fleet.command("airunner.cli.commands.fleet_run:run", name="run")
fleet.command("airunner.cli.commands.fleet_runs:runs", name="runs")
fleet.command("airunner.cli.commands.fleet_report:report", name="report")
fleet.command("airunner.cli.commands.fleet_pools:pools", name="pools")


@fleet.command
def termination(
    *,
    metrics_listen: MetricsListen = None,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
    config_file: ConfigFile = None,
) -> None:
    """Record the ends of attempts on instances, until SIGTERM or SIGINT.

    It needs the store and the token keys of the servers. The first signal drains: it receives no more
    messages, and finishes or gives back those that it holds. A second signal ends it at once.
    """
    from airunner.config import FleetPart

    settings = _load(config_file, metrics_listen, log_level, log_format)
    _work(settings, FleetPart.TERMINATION)


@fleet.command
def housekeeping(
    *,
    metrics_listen: MetricsListen = None,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
    config_file: ConfigFile = None,
) -> None:
    """Run the housekeeping tasks that messages request, until SIGTERM or SIGINT.

    The first signal drains; another process continues a task that was cut off.
    """
    from airunner.config import FleetPart

    settings = _load(config_file, metrics_listen, log_level, log_format)
    _work(settings, FleetPart.HOUSEKEEPING)


@fleet.command
def schedule(
    *,
    metrics_listen: MetricsListen = None,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
    config_file: ConfigFile = None,
) -> None:
    """Send the messages that request housekeeping on schedule, until SIGTERM or SIGINT.

    Any number may run: each time has one message. It is not needed if EventBridge rules send them.
    """
    from airunner.config import FleetPart

    settings = _load(config_file, metrics_listen, log_level, log_format)
    _work(settings, FleetPart.SCHEDULE)


def _load(
    config_file: Path | None, metrics_listen: str | None, log_level: str | None, log_format: str | None
) -> Settings:
    flags = {"fleet.metrics_listen": metrics_listen, "log_level": log_level, "log_format": log_format}
    return load(config_file, flags).settings


def _work(settings: Settings, part: FleetPart) -> None:
    """Run a part of the fleet's work as this process."""
    from airunner import telemetry
    from airunner.app import build_fleet_process
    from airunner.cli.event_loop import run_on_uvloop
    from airunner.config import process_environment
    from airunner.telemetry.fleet_metrics import FLEET_METRICS

    telemetry.set_up_logs(settings.log_level, settings.log_format)
    process = build_fleet_process(settings, part)
    is_measured = settings.fleet.metrics_listen or telemetry.otlp_is_wanted(process_environment())
    metrics = collected_metrics(f"airunner-fleet-{part.value}", (*FLEET_METRICS, *telemetry.SERVER_METRICS))
    with metrics if is_measured else nullcontext():
        run_on_uvloop(_run(settings, process))


async def _run(settings: Settings, process: FleetProcess) -> None:
    from airunner.cli.signals import on_shutdown_signals

    running = asyncio.create_task(process.run())
    on_shutdown_signals(process.stop, process.kill)
    async with served_probes("fleet", settings.fleet.metrics_listen, lambda: process.state):
        announce(f"airunner fleet {process.name} works")
        with suppress(asyncio.CancelledError):
            await running
