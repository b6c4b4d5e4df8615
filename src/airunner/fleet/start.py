"""The processors of a fleet, composed as the settings describe."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from airunner.aws.clients import OF_A_FLEET
from airunner.config import FleetPart
from airunner.domain.errors import FailedPrecondition
from airunner.fleet.aws.connection import FleetConnection
from airunner.fleet.consuming import fleet_consumer
from airunner.fleet.dependencies import Dependencies
from airunner.fleet.housekeeper import Housekeeper
from airunner.fleet.housekeeping.old_jobs import PurgedOldJobs
from airunner.fleet.housekeeping.orphaned_instances import OrphanedInstances
from airunner.fleet.housekeeping.pool_audit import PoolAudits
from airunner.fleet.housekeeping.stale_ssm import StaleParameters
from airunner.fleet.messages.housekeeping import TaskType, parse_housekeeping
from airunner.fleet.messages.termination import parse_termination
from airunner.fleet.prices import ListedPrices
from airunner.fleet.process import FleetProcess, MessageWork
from airunner.fleet.schedule import Schedule
from airunner.fleet.termination import CONCURRENCY, TerminationProcessor, TerminationRules

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from contextlib import AbstractAsyncContextManager, AsyncExitStack

    from airunner.config import Settings
    from airunner.domain.clock import Clock
    from airunner.domain.token import TerminationSigner
    from airunner.fleet.process import FleetWork
    from airunner.fleet.task_run import HousekeepingTask
    from airunner.fleet.termination import AttemptEnds
    from airunner.queues.sqs import SqsQueue
    from airunner.stores.base import JobStore

OF_TERMINATION: Final = ("dynamodb", "sqs", "polls", "ssm")
"""The services that the termination processor calls: it has no business with machines."""
_DAY_MS: Final = 24 * 3600 * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetJobs:
    """The jobs of a fleet: how attempts are ended, where jobs are, and whose reports are believed."""

    ends: AttemptEnds
    store: JobStore
    signer: TerminationSigner


def make_process(
    part: FleetPart,
    settings: Settings,
    jobs: FleetJobs,
    clock: Clock,
    *,
    resources: Sequence[AbstractAsyncContextManager[object]] = (),
) -> FleetProcess:
    """Return a part of a fleet's work, still to be run; `resources` are open as long as it runs."""
    opener = _Opener(settings, jobs, clock)
    opened: dict[FleetPart, Callable[[AsyncExitStack], Awaitable[FleetWork]]] = {
        FleetPart.TERMINATION: opener.termination,
        FleetPart.HOUSEKEEPING: opener.housekeeping,
    }
    if part is FleetPart.SCHEDULE:
        return make_schedule(settings, clock, resources=resources)
    return FleetProcess(part.value, opened[part], clock, resources=resources)


def make_schedule(
    settings: Settings, clock: Clock, *, resources: Sequence[AbstractAsyncContextManager[object]] = ()
) -> FleetProcess:
    """Return what sends the messages of housekeeping at their times; it needs no jobs."""

    async def open_schedule(stack: AsyncExitStack) -> FleetWork:
        clients = ("dynamodb", "sqs")
        fleet = await stack.enter_async_context(FleetConnection(settings, clock, clients=clients))
        await fleet.check_table()
        return Schedule(fleet.slots, await fleet.queue(FleetPart.HOUSEKEEPING), clock)

    return FleetProcess(FleetPart.SCHEDULE.value, open_schedule, clock, resources=resources)


def make_housekeeper(
    settings: Settings,
    fleet: FleetConnection,
    store: JobStore,
    clock: Clock,
    dependencies: Dependencies | None = None,
) -> Housekeeper:
    """Return a housekeeper with all tasks, named by this machine and process."""
    return Housekeeper(
        make_tasks(settings, fleet, store),
        fleet.records,
        clock,
        dependencies=dependencies or Dependencies(clock),
        holder=f"{socket.gethostname()}-{os.getpid()}",
    )


def make_tasks(
    settings: Settings, fleet: FleetConnection, store: JobStore
) -> dict[TaskType, HousekeepingTask]:
    """Return every task of housekeeping, by the rules of the settings."""
    return {
        TaskType.ORPHANED_INSTANCES: OrphanedInstances(
            fleet.instances, fleet.records, store, max_runtime_minutes=settings.fleet.max_runtime_minutes
        ),
        TaskType.STALE_SSM: StaleParameters(fleet.instances, fleet.parameters, fleet.records),
        TaskType.OLD_JOBS: PurgedOldJobs(store, retention_ms=settings.store.job_retention_days * _DAY_MS),
        TaskType.POOL_AUDIT: PoolAudits(
            fleet.instances, fleet.records, store, ListedPrices(settings.fleet.prices)
        ),
    }


class _Opener:
    """Opens a connection on a stack, and the work on that."""

    def __init__(self, settings: Settings, jobs: FleetJobs, clock: Clock) -> None:
        self._settings = settings
        self._jobs = jobs
        self._clock = clock

    async def termination(self, stack: AsyncExitStack) -> FleetWork:
        fleet, queue = await self._connect(stack, FleetPart.TERMINATION, OF_TERMINATION)
        dependencies = Dependencies(self._clock)
        rules = self._settings.fleet
        processor = TerminationProcessor(
            self._jobs.ends,
            fleet.parameters,
            fleet.records,
            self._jobs.signer,
            dependencies=dependencies,
            clock=self._clock,
            rules=TerminationRules(
                require_token=rules.require_token, requeue_interrupted=rules.requeue_interrupted
            ),
        )
        consumer, source = fleet_consumer(
            queue,
            parse_termination,
            processor.process,
            dependencies=dependencies,
            clock=self._clock,
            concurrency=CONCURRENCY,
        )
        return MessageWork(consumer, source, dependencies, self._clock)

    async def housekeeping(self, stack: AsyncExitStack) -> FleetWork:
        fleet, queue = await self._connect(stack, FleetPart.HOUSEKEEPING, OF_A_FLEET)
        dependencies = Dependencies(self._clock)
        housekeeper = make_housekeeper(self._settings, fleet, self._jobs.store, self._clock, dependencies)
        consumer, source = fleet_consumer(
            queue,
            parse_housekeeping,
            housekeeper.process,
            dependencies=dependencies,
            clock=self._clock,
            # One of each task has its turn.
            concurrency=len(TaskType),
        )
        return MessageWork(consumer, source, dependencies, self._clock)

    async def _connect(
        self, stack: AsyncExitStack, part: FleetPart, clients: Sequence[str]
    ) -> tuple[FleetConnection, SqsQueue]:
        connection = FleetConnection(self._settings, self._clock, clients=clients)
        fleet = await stack.enter_async_context(connection)
        await fleet.check_table()
        queue = await fleet.queue(part)
        if await queue.redrive_policy() is None:
            raise FailedPrecondition(
                f"queue {queue.name} has no redrive policy, so its messages would never be dead letters: "
                "create it with 'airunner aws provision --fleet', or give it a dead-letter queue"
            )
        return fleet, queue
