"""What the conformance tests are given: the services under test, the clock they run on, and short calls."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from airunner.domain.answers import Enqueued
from airunner.domain.errors import AirunnerError
from airunner.domain.requests import (
    CompleteRequest,
    DequeueRequest,
    ReleaseRequest,
    StreamRequest,
    UpdateRequest,
)
from airunner.testing.conditions import until
from airunner.testing.factories import make_request, make_success

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence
    from contextlib import AbstractAsyncContextManager

    from airunner.domain.answers import DequeuedJob, HeldJob, Published
    from airunner.domain.event import Event
    from airunner.domain.job import Job, JobResult, JobState
    from airunner.domain.requests import Abilities, EnqueueRequest
    from airunner.services.api import EventsApi, JobsApi
    from airunner.services.composition import ServiceRules, Services
    from airunner.stores.base import Capabilities
    from airunner.testing.clock import ManualClock

T = TypeVar("T")
QUEUE = "builds"


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """One store under test, reached in process or over the wire. `services` are the server's."""

    jobs: JobsApi
    events: EventsApi
    clock: ManualClock
    services: Services

    @property
    def capabilities(self) -> Capabilities:
        """Where the store under test may differ from others."""
        return self.services.store.capabilities

    async def advance(self, seconds: float) -> None:
        """Let time pass, with one pass of maintenance at the end of it."""
        self.clock.advance(seconds)
        await self.services.maintenance.run_once()

    async def lapse(self, seconds: float) -> None:
        """Let a visibility or a delay of `seconds` pass so far that the store must have noticed."""
        await self.advance(seconds + self.capabilities.redelivery_slack_seconds)

    async def started(self, call: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Begin a call that has to wait, and return once it does."""
        before = self.clock.waiting
        task = asyncio.create_task(call)
        await until(lambda: task.done() or self.clock.waiting > before)
        return task

    async def enqueue(self, request: EnqueueRequest | None = None, *, queue: str = QUEUE) -> str:
        """Add one job and return its id; a refusal is raised."""
        (outcome,) = await self.jobs.enqueue_jobs([request or make_request(queue)])
        if isinstance(outcome, AirunnerError):
            raise outcome
        assert isinstance(outcome, Enqueued)
        return outcome.job_id

    async def enqueue_many(self, count: int, *, queue: str = QUEUE) -> list[str]:
        """Add jobs one after the other; return their ids in that order."""
        return [await self.enqueue(queue=queue) for _ in range(count)]

    async def dequeue(
        self,
        queue: str = QUEUE,
        *,
        max_jobs: int = 1,
        wait_seconds: int = 0,
        visibility_seconds: int = 60,
        worker_id: str = "",
        more_queues: Sequence[str] = (),
        first_lease_seconds: int = 0,
        abilities: Abilities | None = None,
    ) -> Sequence[DequeuedJob]:
        """Claim jobs; unless told to, without waiting."""
        return await self.jobs.dequeue_jobs(
            DequeueRequest(
                queue=queue,
                more_queues=more_queues,
                max_jobs=max_jobs,
                wait_seconds=wait_seconds,
                visibility_timeout_seconds=visibility_seconds,
                worker_id=worker_id,
                first_lease_seconds=first_lease_seconds,
                abilities=abilities,
            )
        )

    async def claim(self, queue: str = QUEUE, *, visibility_seconds: int = 60) -> DequeuedJob:
        """Claim the one job that must be there."""
        (held,) = await self.dequeue(queue, visibility_seconds=visibility_seconds)
        return held

    async def new_claim(
        self, request: EnqueueRequest | None = None, *, visibility_seconds: int = 60
    ) -> DequeuedJob:
        """Add a job and claim it."""
        await self.enqueue(request)
        return await self.claim(visibility_seconds=visibility_seconds)

    async def publish(self, held: DequeuedJob, *events: Event) -> Published:
        """Append events to the held attempt."""
        return await self.events.publish_events(held.task_token, events)

    async def beat(self, held: DequeuedJob, seconds: int = 0) -> HeldJob:
        """Extend the visibility of a held job."""
        return await self.jobs.update_job(
            UpdateRequest(
                queue=held.job.queue, task_token=held.task_token, visibility_timeout_seconds=seconds
            )
        )

    async def complete(
        self, held: DequeuedJob, result: JobResult | None = None, *events: Event, job_id: str = ""
    ) -> JobState:
        """End a held job; a refusal is raised."""
        request = CompleteRequest(
            task_token=held.task_token, result=result or make_success(), events=events, job_id=job_id
        )
        (outcome,) = await self.jobs.complete_jobs([request])
        if isinstance(outcome, AirunnerError):
            raise outcome
        return outcome

    async def release(
        self,
        held: DequeuedJob,
        *events: Event,
        delay_seconds: int = 0,
        unstarted: bool = False,
        error: str = "",
    ) -> JobState:
        """Give a held job back."""
        return await self.jobs.release_job(
            ReleaseRequest(
                task_token=held.task_token,
                delay_seconds=delay_seconds,
                unstarted=unstarted,
                error=error,
                events=events,
            )
        )

    async def job(self, held: DequeuedJob) -> Job:
        """Return a held job as everybody sees it."""
        return await self.jobs.get_job(held.job.job_id)

    async def stored(self, job_id: str) -> list[tuple[int, int]]:
        """Return attempt and sequence of every event that is stored now."""
        events = await self.read(StreamRequest(job_id=job_id, follow=False))
        return [(event.attempt, event.sequence) for event in events]

    async def read(self, request: StreamRequest) -> list[Event]:
        """Return all that a stream yields until it ends."""
        return [event async for event in self.events.stream_events(request)]

    async def watch(self, request: StreamRequest, seen: list[Event]) -> None:
        """Add what a stream yields to a list, as it comes."""
        async for event in self.events.stream_events(request):
            seen.append(event)  # noqa: PERF401  shows what has arrived while the stream goes on


class OpenApi(Protocol):
    """Opens the services under test with rules of the operator."""

    def __call__(self, rules: ServiceRules) -> AbstractAsyncContextManager[Api]: ...
