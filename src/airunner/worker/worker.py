"""A worker, put together from its parts."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from airunner import telemetry
from airunner.domain import limits
from airunner.domain.errors import InvalidArgument, PermissionDenied, Unauthenticated
from airunner.domain.requests import Abilities
from airunner.handlers.capture import captured
from airunner.handlers.registry import Registry
from airunner.queues.base import ConsumerOptions
from airunner.queues.consumer import Consumer
from airunner.queues.task_runner import TaskRunner
from airunner.services.periodic import Periodic
from airunner.telemetry.logs import get_logger
from airunner.worker.attempt import REFUSED_TOKEN_SECONDS
from airunner.worker.disk_thread import DiskThread
from airunner.worker.handlers.fast_path import HandlerFastPath
from airunner.worker.handlers.processes import HandlerProcesses
from airunner.worker.metrics import AttemptMetrics
from airunner.worker.runner import AttemptEnvironment, JobRunner
from airunner.worker.source import JobSource, Subscription
from airunner.worker.watchdog import LoopWatchdog

if TYPE_CHECKING:
    from collections.abc import Callable

    from airunner.domain.clock import Clock
    from airunner.services.api import EventsApi, HoldingApi
    from airunner.worker.attempt import Attempt, JobOutcome
    from airunner.worker.source import ClosedQueues
    from airunner.worker.watchdog import StackDumps

_log = get_logger("airunner.worker")

# After their grace period stopped processes are gone; so long the last events and releases may take.
_REPORT_SECONDS: Final = 10.0
_SWEEP_SECONDS: Final = 3600.0
# So that small jobs wait neither for the round trip that brings the next ones nor for another's report; and
# calls that are on their way together share a commit of the server.
_HANDLER_RECEIVERS: Final = 3
_HANDLER_SETTLERS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """What a worker serves, and how it stops."""

    queues: tuple[str, ...] = ("default",)
    concurrency: int = 1
    once: bool = False
    worker_id: str = ""
    instance_id: str = ""
    visibility_timeout_seconds: int = 0
    """Zero leaves it to the server."""
    refused_token_seconds: float = REFUSED_TOKEN_SECONDS
    """How long every answer may refuse the task token of an attempt before that is lost."""
    drain_seconds: float = 30.0
    """How long jobs may go on after `stop`."""
    handlers: Registry | None = None
    """The Python functions that do jobs; what they print and log goes to their jobs while the worker runs."""
    closed_queues: ClosedQueues | None = None
    """Asked before each dequeue: from which queues nothing is to be taken now."""
    overdue_elsewhere: Callable[[], int] | None = None
    """How many handlers go on that the given ones called and wait for no more; each still takes a slot."""
    handler_processes: int = 0
    """How many processes run the sync handlers, each one at a time; with 0 they run in threads."""
    handler_sources: tuple[str, ...] = ()
    """Where these processes load the handlers from."""
    environment: AttemptEnvironment = field(default_factory=AttemptEnvironment)
    """What each attempt gets."""
    stacks: StackDumps | None = None
    """Shows what keeps the loop from its turns; the worker closes it. It is the whole process's, so only a
    program that is nothing but a worker gives one."""


class Worker:
    """Dequeues jobs, does them and reports how they ended, over the services or a client of theirs."""

    def __init__(self, jobs: HoldingApi, events: EventsApi, clock: Clock, options: WorkerOptions) -> None:
        self._options = options
        runner = self._runner = JobRunner(events, clock, options.environment)
        self._fast_path = HandlerFastPath(
            options.handlers or Registry(),
            TaskRunner(AttemptMetrics(runner.process, clock).process),
            clock,
            threads=options.handler_processes or options.concurrency,
            processes=self._handler_processes(),
            redactor_for=runner.redactor_for,
        )
        subscription = Subscription(
            queues=options.queues,
            worker_id=options.worker_id,
            instance_id=options.instance_id,
            visibility_timeout_seconds=options.visibility_timeout_seconds,
            refused_token_seconds=options.refused_token_seconds,
            abilities=_abilities(options),
            closed_queues=options.closed_queues,
        )
        self._watchdog = LoopWatchdog(
            options.stacks,
            clock,
            visibility_seconds=options.visibility_timeout_seconds or limits.DEFAULT_VISIBILITY_SECONDS,
            suspects=self._fast_path.suspects,
        )
        self._consumer: Consumer[Attempt, JobOutcome] = Consumer(
            JobSource(jobs, subscription, clock=clock, on_visibility=self._watchdog.narrow),
            self._fast_path,
            clock=clock,
            options=self._consumer_options(),
        )
        self._spool_told = False
        self._disk = DiskThread("sweeping")
        self._sweeping = Periodic(
            "sweeping",
            self._sweep,
            clock=clock,
            interval_seconds=_SWEEP_SECONDS,
            failure_event="sweep.failed",
            at_once=True,
        )

    async def run(self) -> None:
        """Work until stopped, or for one job with `once`; raise when the server will not have us."""
        options = self._options
        _log.info("worker.start", queues=options.queues, concurrency=options.concurrency)
        self._sweeping.start()
        gauges = (
            telemetry.worker_slots.follow(lambda: options.concurrency),
            telemetry.attempts_running.follow(lambda: self._consumer.running),
            telemetry.handlers_overdue.follow(self._overdue),
        )
        if options.handlers and options.handler_processes:
            self._runner.reaper.ensure()
        self._watchdog.start()
        try:
            with captured() if options.handlers else nullcontext():
                await self._consumer.run()
        finally:
            self._watchdog.stop()
            self._fast_path.close()
            for end in gauges:
                end()
            await self._sweeping.stop()
            self._disk.close()
            await asyncio.to_thread(self._runner.close)
        _log.info("worker.end")

    def stop(self) -> None:
        """Take no more jobs, let the running ones finish for a while, give back the rest."""
        self._consumer.stop()
        _log.info("worker.stop", drain_seconds=self._options.drain_seconds)

    def kill(self) -> None:
        """End at once; what was running is delivered again when its visibility lapses."""
        self._consumer.kill()
        _log.warning("worker.kill")

    async def _sweep(self) -> None:
        """Remove what workers that died left behind, and report it: others have begun their jobs again."""
        await self._sweep_spool()
        for folder in await self._disk.call(self._runner.folders.sweep):
            _log.warning("work_folder.left_behind", folder=str(folder))

    def _handler_processes(self) -> HandlerProcesses | None:
        options = self._options
        if not (options.handler_processes and options.handlers):
            return None
        environment = {**options.environment.base_environment, **self._runner.reaper.environment}
        return HandlerProcesses(options.handler_sources, environment)

    def _slots(self) -> int:
        """How many attempts may be at work: a handler that outlives its attempt still takes its slot."""
        return self._options.concurrency - self._overdue()

    def _overdue(self) -> int:
        elsewhere = self._options.overdue_elsewhere
        return self._fast_path.overdue + (elsewhere() if elsewhere else 0)

    def _consumer_options(self) -> ConsumerOptions:
        options = self._options
        return ConsumerOptions(
            concurrency=self._slots if options.handlers else options.concurrency,
            receivers=_HANDLER_RECEIVERS if options.handlers and options.concurrency > 1 else 1,
            settlers=_HANDLER_SETTLERS if options.handlers else 1,
            max_deliveries=1 if options.once else None,
            drain_seconds=options.drain_seconds,
            release_seconds=options.environment.grace_seconds + _REPORT_SECONDS,
            # A key that is not good enough does not become so by waiting.
            fatal=(Unauthenticated, PermissionDenied, InvalidArgument),
        )

    async def _sweep_spool(self) -> None:
        folder = self._options.environment.spool_folder
        try:
            leftovers = await self._disk.call(folder.sweep)
        except OSError as error:
            if not self._spool_told:
                self._spool_told = True
                _log.warning("spool.unusable", folder=str(folder.path), error=error.strerror)
            return
        for left in leftovers:
            _log.warning(
                "spool.left_behind",
                job_id=left.job_id,
                attempt=left.attempt,
                events=left.events,
                bytes=left.size_bytes,
            )


def _abilities(options: WorkerOptions) -> Abilities:
    handlers = options.handlers or Registry()
    return Abilities(
        handlers=tuple(handler.name for handler in handlers.values()),
        commands=options.environment.runs_commands,
    )
