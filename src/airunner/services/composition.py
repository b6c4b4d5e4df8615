"""All services on one store, wired together."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from airunner.domain.clock import SystemClock
from airunner.domain.errors import Unavailable
from airunner.services.admin import AdminService
from airunner.services.admission import Admission, AdmissionLimits
from airunner.services.call_log import write_waiting
from airunner.services.dispatcher import Dispatcher
from airunner.services.events import EventService
from airunner.services.fleet import FleetService
from airunner.services.job_requests import JobRules
from airunner.services.jobs import JobService
from airunner.services.maintenance import Maintenance, PartsWatch
from airunner.services.notifier import Notifier
from airunner.services.queue_names import QueueNames
from airunner.services.replicas.news import ChangeFeed, ReplicaNews
from airunner.services.replicas.ringer import Ringer
from airunner.services.replicas.signed_bells import SignedBells
from airunner.services.settings.execution import LiveExecution
from airunner.services.settings.service import RunTimeSettings
from airunner.services.watchers import Watchers
from airunner.services.worker_registry import WorkerRegistry
from airunner.stores.records import Retention

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airunner.domain.clock import Clock
    from airunner.domain.token import TokenSigner
    from airunner.services.jobs import InstanceGate
    from airunner.services.periodic import Periodic
    from airunner.services.replicas.ringer import BellPost
    from airunner.stores.base import JobStore


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceRules:
    """What the operator decides about the services."""

    jobs: JobRules = JobRules()
    retention: Retention = Retention()
    admission: AdmissionLimits = AdmissionLimits()
    max_streams_per_job: int = 10
    maintenance_interval_seconds: float = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One of several servers of a store: where others reach it, and how it reaches them."""

    address: str
    post: BellPost


class Services:
    """The services of one server. Use as an async context: the store is opened and closed with it."""

    def __init__(
        self,
        store: JobStore,
        clock: Clock,
        signer: TokenSigner,
        rules: ServiceRules | None = None,
        replica: Replica | None = None,
        instance_gate: InstanceGate | None = None,
    ) -> None:
        """With `replica`, others that share the store, if it can be shared, and this one ring each other."""
        rules = rules or ServiceRules()
        self.store = store
        self.clock = clock
        self.admission = Admission(rules.admission, clock)
        self.queue_names = QueueNames(store, self.admission, clock)
        self.bells = SignedBells(signer, clock) if replica and store.shared else None
        self.ringer = (
            Ringer(replica.address, post=replica.post, bells=self.bells, clock=SystemClock())
            if replica and self.bells
            else None
        )
        self.notifier = Notifier(clock, self.ringer)
        self.watchers = Watchers(self.notifier, rules.max_streams_per_job)
        self.dispatcher = Dispatcher(store, clock)
        workers = WorkerRegistry()
        execution = LiveExecution(rules.jobs.execution)
        self.settings = RunTimeSettings(
            store, clock, configured=execution.configured, on_values=execution.apply
        )
        self.jobs = JobService(
            store=store,
            clock=clock,
            signer=signer,
            notifier=self.notifier,
            watchers=self.watchers,
            dispatcher=self.dispatcher,
            workers=workers,
            admission=self.admission,
            queue_names=self.queue_names,
            execution=execution,
            rules=rules.jobs,
            instance_gate=instance_gate,
        )
        self.events = EventService(
            store=store,
            clock=clock,
            signer=signer,
            notifier=self.notifier,
            watchers=self.watchers,
            workers=workers,
            looks_again=store.shared is None,
        )
        self.fleet = FleetService()
        self.admin = AdminService(store)
        self.replica_news = (
            ReplicaNews(store.shared, clock=clock, notifier=self.notifier, watchers=self.watchers)
            if store.shared
            else None
        )
        self.change_feed = (
            ChangeFeed(store.changes, clock=clock, notifier=self.notifier) if store.changes else None
        )
        self.maintenance = Maintenance(
            store=store,
            clock=clock,
            notifier=self.notifier,
            workers=workers,
            retention=rules.retention,
            interval_seconds=rules.maintenance_interval_seconds,
        )
        background = (self.maintenance, self.replica_news, self.change_feed)
        self._loops = [part.periodic() for part in background if part]
        if store.parts:
            self._loops += PartsWatch(store.parts, clock).loops()
        self._named_unwell: list[Callable[[], list[str]]] = []
        self._named_waiting: list[Callable[[], list[str]]] = []
        self._stopping = False
        self._on_stop: list[Callable[[], None]] = []

    async def __aenter__(self) -> Self:
        """Open the store, look which queues and settings it has, then start the background loops."""
        await self.store.open()
        await self.queue_names.open()
        await self.settings.open()
        for loop in self._loops:
            loop.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """End all waiting, then the loops, then close the store, whatever the others did."""
        async with AsyncExitStack() as endings:
            endings.callback(write_waiting)
            endings.push_async_callback(self.store.close)
            if self.ringer:
                endings.push_async_callback(self.ringer.close)
            endings.push_async_callback(self._stop_loops)
            await self.stop()

    @property
    def stuck_loops(self) -> list[str]:
        """The names of the background loops, and of what runs beside them, that make no progress."""
        stuck = [loop.name for loop in self._loops if not loop.healthy]
        return stuck + [name for unwell in self._named_unwell for name in unwell()]

    @property
    def waiting(self) -> list[str]:
        """The names of what runs beside the loops and waits for something that does not answer."""
        return [name for waiting in self._named_waiting for name in waiting()]

    @property
    def troubles(self) -> Mapping[str, str]:
        """What is wrong with each part of the store that may be away without harm to all else; see there."""
        return self.store.parts.troubles if self.store.parts else {}

    def add_loop(self, loop: Periodic) -> None:
        """Let a loop run as long as the services do. Before they are opened."""
        self._loops.append(loop)

    def on_stop(self, callback: Callable[[], None]) -> None:
        """Have something else told when streams are to end; all bells ring after that."""
        self._on_stop.append(callback)

    def watch(self, unwell: Callable[[], list[str]], *, waiting: Callable[[], list[str]]) -> None:
        """Count what a function names among the stuck loops, too, and what another names as waiting."""
        self._named_unwell.append(unwell)
        self._named_waiting.append(waiting)

    def leave(self) -> None:
        """Say from now on that this server is not ready, while it still answers."""
        self._stopping = True

    async def check(self) -> None:
        """Raise if the services cannot serve."""
        if self._stopping:
            raise Unavailable("the server is shutting down")
        await self.store.check()

    async def stop(self) -> None:
        """Let streams and long polls end at once; everything else goes on."""
        self.leave()
        self.jobs.stop()
        self.events.stop()
        for callback in self._on_stop:
            callback()
        self.notifier.ring_all()
        await self.dispatcher.stop()

    async def _stop_loops(self) -> None:
        await asyncio.gather(*(loop.stop() for loop in self._loops))
