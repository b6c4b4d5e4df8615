"""`airunner fleet assign` and `airunner fleet undrain`: what operators do with one instance."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

from cyclopts import Parameter

from airunner.cli.options import ConfigFile, load
from airunner.cli.printing import say

if TYPE_CHECKING:
    from airunner.config import Settings

InstanceId = Annotated[str, Parameter(help="The id of the instance.")]


def assign(
    instance: InstanceId,
    *,
    queue: Annotated[str, Parameter(help="The queue that its runner serves.")],
    config_file: ConfigFile = None,
) -> None:
    """Assign an instance of the fleet to a queue, so that it runs one job of it.

    Its runner gets client.server, fleet.runner_api_key and the queue. Assigning again is harmless, and
    completes an interrupted assignment. An instance that is draining, or not of the fleet, is refused.
    """
    settings = load(config_file, {}).settings
    _warn_of_loopback(settings)
    asyncio.run(_assign(settings, instance, queue))
    say(f"{instance} is assigned to {queue}")


def undrain(instance: InstanceId, *, config_file: ConfigFile = None) -> None:
    """Remove the mark that an instance is about to be terminated, so that it gets jobs again.

    A run of orphaned_instances that is about to terminate it may be faster.
    """
    settings = load(config_file, {}).settings
    was_draining = asyncio.run(_undrain(settings, instance))
    say(f"{instance} is no longer draining" if was_draining else f"{instance} is not draining")


async def _assign(settings: Settings, instance: str, queue: str) -> None:
    from airunner.app import build_fleet_connection
    from airunner.domain.clock import SystemClock
    from airunner.fleet.assignment import Assignments, RunnerAccess

    access = RunnerAccess(servers=settings.client.server, api_key=settings.fleet.runner_api_key_text)
    async with build_fleet_connection(settings, clients=["dynamodb", "ec2", "ssm"]) as fleet:
        await fleet.check_table()
        ports = (fleet.instances, fleet.records, fleet.parameters)
        await Assignments(*ports, access, SystemClock()).assign(instance, queue)


async def _undrain(settings: Settings, instance: str) -> bool:
    from airunner.app import build_fleet_connection
    from airunner.fleet.assignment import check_instance_id

    async with build_fleet_connection(settings, clients=["dynamodb"]) as fleet:
        await fleet.check_table()
        return await fleet.records.undrain(check_instance_id(instance))


def _warn_of_loopback(settings: Settings) -> None:
    from airunner.domain.limits import is_loopback

    for server in settings.client.server:
        if is_loopback(urlsplit(server).hostname or ""):
            say(f"warning: a runner on another machine cannot reach {server} (client.server)")
