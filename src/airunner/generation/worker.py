"""The generation worker: a consumer over the message queue of generation."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airunner import telemetry
from airunner.domain.retry import RetryPolicy
from airunner.generation.output import LoggedOutput
from airunner.generation.source import GenerationSource
from airunner.generation.work import GenerationWork, WorkOptions, WorkTry
from airunner.handlers.context import Context
from airunner.handlers.loop_callbacks import LoopCallbacks
from airunner.outbox.schema import GENERATION_QUEUE
from airunner.queues.base import ConsumerOptions
from airunner.queues.consumer import Consumer
from airunner.queues.task_runner import TaskRunner

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airunner.domain.clock import Clock
    from airunner.generation.bodies import WorkRequest
    from airunner.generation.sessions import SessionTable
    from airunner.generation.verdict import GenerationSession
    from airunner.handlers.context import OutputSink
    from airunner.handlers.registry import Handler
    from airunner.queues.base import Delivery
    from airunner.queues.messages import Message, MessageQueue, Received

MAX_RECEIVE = 10
# PostgreSQL that does not answer has its deadlines, then SQS that does not answer has four tries of 30 s: to
# wait for them is no standstill.
_PATIENCE_SECONDS = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationOptions:
    """How a generation worker works."""

    work: WorkOptions = WorkOptions()
    visibility_seconds: int = 120
    wait_seconds: int = 20
    idle_seconds: float = 0.0
    """How long it waits after an empty poll."""
    redelivery: RetryPolicy = RetryPolicy(first_seconds=30.0, max_seconds=900.0)
    """How long work waits for its next try."""
    drain_seconds: float = 30.0


class GenerationConsumer:
    """Does the work of a queue from `run` to `stop`; `concurrency` is asked each time."""

    def __init__(
        self,
        queue: MessageQueue,
        sessions: SessionTable,
        handlers: Mapping[str, Handler],
        clock: Clock,
        options: GenerationOptions,
        *,
        concurrency: Callable[[], int],
    ) -> None:
        self._clock = clock
        self._patience_seconds = _PATIENCE_SECONDS + options.idle_seconds
        self._work = GenerationWork(sessions, clock, options.work)
        self._concurrency = concurrency
        self._callbacks: LoopCallbacks | None = None
        self.source = GenerationSource(
            queue,
            sessions,
            handlers,
            clock=clock,
            visibility_seconds=options.visibility_seconds,
            wait_seconds=options.wait_seconds,
            idle_seconds=options.idle_seconds,
        )
        self._consumer: Consumer[Received[WorkRequest], str] = Consumer(
            self.source,
            TaskRunner(self._process),
            clock=clock,
            options=ConsumerOptions(
                # A handler that nobody waits for any more still takes a slot.
                concurrency=lambda: self._concurrency() - self._work.overdue,
                max_receive=MAX_RECEIVE,
                drain_seconds=options.drain_seconds,
                redelivery=options.redelivery,
            ),
        )

    @property
    def running(self) -> int:
        """How many handlers run, those included that nobody waits for any more."""
        return self._consumer.running + self._work.overdue

    @property
    def healthy(self) -> bool:
        """Whether its receives come to their ends, those included that fail because something is away."""
        began_at = self._consumer.receive_began_at
        return began_at is None or self._clock.monotonic() - began_at <= self._patience_seconds * 1000

    async def run(self) -> None:
        """Work until `stop`, then drain."""
        self._callbacks = LoopCallbacks(asyncio.get_running_loop())
        stop_gauge = telemetry.generation_running.follow(lambda: self.running)
        try:
            await self._consumer.run()
            await self.source.finish()
        finally:
            stop_gauge()
            self._work.close()

    def stop(self) -> None:
        """Receive no more, let handlers go on for a while, give the rest back."""
        self._consumer.stop()

    def kill(self) -> None:
        """End at once, and settle nothing more."""
        self._consumer.kill()

    async def _process(self, delivery: Delivery[Received[WorkRequest]]) -> str:
        message, work = delivery.body.message, delivery.body.value
        attempt = WorkTry(
            id=work.id,
            handler=work.handler,
            payload_json=work.payload_json,
            attempt=message.receive_count,
            last_try=message.last_receive,
        )
        return await self._work.run(attempt, lambda session: self._make_context(message, session))

    def _make_context(self, message: Message, session: GenerationSession) -> tuple[OutputSink, Context]:
        callbacks = self._callbacks or LoopCallbacks(asyncio.get_running_loop())
        output = LoggedOutput(callbacks, session.id, session.name)
        context = Context(
            job_id=session.id,
            queue=GENERATION_QUEUE,
            attempt=message.receive_count,
            request_id=session.id,
            last_try=message.last_receive,
            metadata=dict(message.attributes),
            owner=session.principal,
            output=output,
        )
        return output, context
