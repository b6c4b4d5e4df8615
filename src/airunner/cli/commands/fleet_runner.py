"""`airunner fleet runner`: one job on an instance of a fleet."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from airunner.cli.options import ConfigFile, LogFormat, LogLevel, load

if TYPE_CHECKING:
    from airunner.config import Layer, Settings


def runner(
    *,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
    config_file: ConfigFile = None,
) -> None:
    """Run one job on this instance of the fleet, report how it ended, and exit.

    The instance id is AIRUNNER_INSTANCE_ID, or comes from the metadata endpoint. Its configuration is the
    parameter that 'airunner fleet assign' wrote. A signal, or a notice that EC2 reclaims the machine, drains:
    the job may finish (worker.drain_seconds), or else it is given back, and that is reported too.
    """
    from airunner import telemetry
    from airunner.cli.worker_process import run_worker
    from airunner.config import check_handler_origins, check_key_destination, load_settings

    flags: dict[str, object] = {"log_level": log_level, "log_format": log_format}
    settings = load(config_file, flags).settings
    telemetry.set_up_logs(settings.log_level, settings.log_format)
    instance_id, given = asyncio.run(_configure(settings))
    flags["worker.instance_id"] = instance_id
    loaded = load_settings(config_file=config_file, flags=flags, above=given)
    check_key_destination(loaded)
    check_handler_origins(loaded)
    run_worker(loaded, _serve_one)


async def _configure(settings: Settings) -> tuple[str, Layer]:
    """Return which instance this is, and what its parameter says."""
    from airunner.app import build_fleet_connection
    from airunner.domain.clock import SystemClock
    from airunner.fleet.runner.configuration import find_instance_id, read_configuration

    clock = SystemClock()
    instance_id = await find_instance_id(settings, clock)
    async with build_fleet_connection(settings, clients=["ssm"]) as fleet:
        given = await read_configuration(
            fleet.parameters, instance_id, clock, wait_seconds=settings.fleet.runner_wait_seconds
        )
    return instance_id, given


async def _serve_one(settings: Settings) -> None:
    """Do a job of the configuration, and report its end whatever it was."""
    from airunner.app import build_fleet_connection
    from airunner.cli.worker_process import serve_jobs
    from airunner.config import FleetPart
    from airunner.domain.clock import SystemClock
    from airunner.fleet.runner.metadata import InstanceMetadata
    from airunner.fleet.runner.runner import FleetRunner

    clock = SystemClock()
    async with (
        InstanceMetadata(settings.fleet.metadata_url, clock) as metadata,
        build_fleet_connection(settings, clients=["sqs"]) as fleet,
    ):
        # Found before there is a job: without a queue its end could not be told.
        termination = await fleet.queue(FleetPart.TERMINATION)
        runner = FleetRunner(settings.worker.instance_id, metadata, termination, clock)
        await serve_jobs(settings, once=True, runner=runner)
