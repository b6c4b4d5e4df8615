"""The parts of a fleet, from settings: as processes of their own, or in a server."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from airunner.app.exporters import build_export_loop, build_fleet_exporter
from airunner.app.services import build_services
from airunner.app.signers import build_signer
from airunner.app.stores import open_store_beside
from airunner.domain.clock import SystemClock
from airunner.domain.errors import error_text
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractAsyncContextManager

    from airunner.config import FleetPart, Settings
    from airunner.domain.clock import Clock
    from airunner.domain.fleet import HousekeepingRun, TaskType
    from airunner.domain.token import TokenSigner
    from airunner.fleet.aws.connection import FleetConnection
    from airunner.fleet.process import FleetProcess
    from airunner.server.companions import CompanionKind
    from airunner.services.composition import Services

_log = get_logger("airunner.fleet")

_FLEET_EXPORT = "cloudwatch.fleet"


def fleet_of_server(settings: Settings) -> FleetConnection | None:
    """Return what a server needs of a fleet that the settings name: its records and queues, no machines."""
    if not (settings.fleet.table or settings.fleet.run):
        return None
    return build_fleet_connection(settings, clients=["dynamodb", "sqs"])


def fleet_companions(settings: Settings, services: Services, signer: TokenSigner) -> list[CompanionKind]:
    """Return the parts of a fleet that work in the process of a server."""
    if not settings.fleet.run:
        return []
    from airunner.server.companions import CompanionKind

    _check_fleet(settings)

    def kind(part: FleetPart) -> CompanionKind:
        return CompanionKind(
            name=f"fleet.{part.value}", build=lambda: _fleet_process(settings, part, services, signer)
        )

    return [kind(part) for part in settings.fleet.run]


def build_fleet_process(settings: Settings, part: FleetPart) -> FleetProcess:
    """Return a part of a fleet's work for a process of its own, on the store and the keys of the servers.

    ConfigError where the store is inside a server, which is then the only place for what needs jobs.
    """
    from airunner.config import ClusterSettings, ConfigError, FleetPart, StoreType

    if part is FleetPart.SCHEDULE:
        _check_fleet(settings)
        from airunner.fleet.start import make_schedule

        return make_schedule(settings, SystemClock())
    if settings.store.type is not StoreType.AWS:
        raise ConfigError([
            f"fleet.run: with store.type {settings.store.type} a fleet runs in the process of the server: "
            f"set fleet.run to {part.value} there"
        ])  # fmt: skip
    _check_fleet(settings)
    signer = build_signer(settings)
    # It serves nobody, so nobody has to reach it.
    alone = settings.but(cluster=ClusterSettings())
    clock = SystemClock()
    services = build_services(alone, clock, signer)
    resources: list[AbstractAsyncContextManager[object]] = [services]
    if exporter := build_fleet_exporter(settings, clock):
        services.add_loop(build_export_loop(exporter, clock, _FLEET_EXPORT))
        # Around the services, since one of their loops sends with it.
        resources.insert(0, exporter)
    return _fleet_process(settings, part, services, signer, resources=resources)


def build_fleet_connection(settings: Settings, *, clients: Sequence[str] = ()) -> FleetConnection:
    """Return the ports of a fleet, still to be opened; `clients` are the services of AWS to call, or all."""
    _check_fleet(settings)
    from airunner.aws.clients import OF_A_FLEET
    from airunner.fleet.aws.connection import FleetConnection

    return FleetConnection(settings, SystemClock(), clients=clients or OF_A_FLEET)


async def run_fleet_task(
    settings: Settings, task: TaskType, *, dry_run: bool = False, limit: int = 0, force: bool = False
) -> HousekeepingRun:
    """Run a task of housekeeping here, on the store of the settings, whether or not a server runs on it.

    LeaseTaken, which names it, where another process runs the task. What was counted is sent to CloudWatch
    before it returns, as processors do once a minute; whether that succeeds changes nothing else.
    """
    clock = SystemClock()
    fleet = build_fleet_connection(settings)
    store = open_store_beside(settings, must_exist=True)
    from airunner.fleet.messages.housekeeping import HousekeepingMessage
    from airunner.fleet.start import make_housekeeper

    message = HousekeepingMessage(task_type=task, timestamp=clock.now(), dry_run=dry_run, limit=limit)
    async with AsyncExitStack() as stack:
        await _open_exporter(stack, settings, clock)
        await stack.enter_async_context(fleet)
        await fleet.check_table()
        stack.push_async_callback(store.close)
        await store.open()
        return await make_housekeeper(settings, fleet, store, clock).run(message, force=force)


async def _open_exporter(stack: AsyncExitStack, settings: Settings, clock: Clock) -> None:
    """Have the metrics of a fleet sent when the stack ends, within seconds, if they have a namespace."""
    try:
        if exporter := build_fleet_exporter(settings, clock):
            await stack.enter_async_context(exporter)
    except Exception as error:  # noqa: BLE001  whatever it is, the work does not need it
        _log.warning("metrics.export_failed", error=error_text(error))


def _fleet_process(
    settings: Settings,
    part: FleetPart,
    services: Services,
    signer: TokenSigner,
    *,
    resources: Sequence[AbstractAsyncContextManager[object]] = (),
) -> FleetProcess:
    from airunner.fleet.start import FleetJobs, make_process

    jobs = FleetJobs(ends=services.jobs, store=services.store, signer=signer.terminations())
    return make_process(part, settings, jobs, SystemClock(), resources=resources)


def _check_fleet(settings: Settings) -> None:
    """Refuse at once what a fleet cannot work with: no SDK, no region, a job queue that is one of its own."""
    from airunner.aws.connect import find_region, need_sdk

    need_sdk()
    find_region(settings)
    from airunner.fleet.aws.connection import check_apart

    check_apart(settings)
