"""A Publisher on the real services in memory, with a network that the test can hold up and break."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager

from airunner.domain.answers import Published
from airunner.domain.event import Event, Output
from airunner.domain.requests import DequeueRequest, StreamRequest
from airunner.domain.retry import RetryPolicy
from airunner.services.composition import Services
from airunner.stores.memory import MemoryStore
from airunner.testing.clock import ManualClock
from airunner.testing.factories import make_request, make_services
from airunner.worker.attempt import Attempt
from airunner.worker.publishing.background_spool import BackgroundSpool
from airunner.worker.publishing.publisher import Publisher
from airunner.worker.publishing.unpublished import MEMORY_BYTES


class Network:
    """EventsApi over the real service: counts calls, holds them up, loses requests and answers."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self.calls: list[list[Event]] = []
        self.lost_requests: deque[Exception] = deque()
        self.lost_answers: deque[Exception] = deque()
        self.open = asyncio.Event()
        self.open.set()

    async def publish_events(self, task_token: str, events: Sequence[Event]) -> Published:
        self.calls.append(list(events))
        await self.open.wait()
        if self.lost_requests:
            raise self.lost_requests.popleft()
        answer = await self._services.events.publish_events(task_token, events)
        if self.lost_answers:
            raise self.lost_answers.popleft()
        return answer

    def stream_events(self, request: StreamRequest) -> AsyncGenerator[Event, None]:
        return self._services.events.stream_events(request)


class Bench:
    def __init__(self, services: Services, clock: ManualClock, attempt: Attempt) -> None:
        self.services = services
        self.clock = clock
        self.attempt = attempt
        self.network = Network(services)
        self.cancelled = asyncio.Event()
        self.publisher = self.new_publisher()

    def new_publisher(
        self, waiting_bytes: int = MEMORY_BYTES, spool: BackgroundSpool | None = None
    ) -> Publisher:
        self.publisher = Publisher(
            self.attempt,
            events=self.network,
            clock=self.clock,
            on_cancel=self.cancelled.set,
            policy=RetryPolicy(first_seconds=1, jitter=0),
            waiting_bytes=waiting_bytes,
            spool=spool,
        )
        return self.publisher

    async def stored(self) -> list[Event]:
        request = StreamRequest(job_id=self.attempt.job.job_id, follow=False)
        return [event async for event in self.services.events.stream_events(request)]

    async def stored_output(self) -> bytes:
        return b"".join(event.data.output for event in await self.stored() if isinstance(event.data, Output))


@asynccontextmanager
async def publishing() -> AsyncIterator[Bench]:
    clock = ManualClock()
    async with make_services(MemoryStore(clock), clock) as services:
        await services.jobs.enqueue_jobs([make_request("q")])
        (dequeued,) = await services.jobs.dequeue_jobs(DequeueRequest(queue="q", wait_seconds=0))
        bench = Bench(services, clock, Attempt(job=dequeued.job, task_token=dequeued.task_token))
        try:
            yield bench
        finally:
            await bench.publisher.abandon()


def lines(count: int, size: int = 10) -> list[bytes]:
    return [b"%0*d\n" % (size - 1, number) for number in range(count)]
