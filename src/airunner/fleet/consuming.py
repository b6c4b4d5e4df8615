"""The consumer of a queue of the fleet: one form for both processors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from airunner.domain.errors import PermanentFailure, error_text
from airunner.domain.retry import RetryPolicy
from airunner.queues.base import ConsumerOptions
from airunner.queues.consumer import Consumer
from airunner.queues.messages import MessageSource, Received
from airunner.queues.task_runner import TaskRunner

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from airunner.domain.clock import Clock
    from airunner.fleet.dependencies import Dependencies
    from airunner.queues.base import Delivery
    from airunner.queues.messages import MessageQueue

T = TypeVar("T")

REDELIVERY: Final = RetryPolicy(first_seconds=30.0, factor=4.0, max_seconds=120.0, jitter=0.0)
"""A message that fails comes again after 30 and 120 s; the queue allows three receives."""


def fleet_consumer(
    queue: MessageQueue,
    decode: Callable[[str], T],
    process: Callable[[T], Awaitable[None]],
    *,
    dependencies: Dependencies,
    clock: Clock,
    concurrency: int,
) -> tuple[Consumer[Received[T], None], MessageSource[T]]:
    """Return what processes the messages of a queue, and its source, to be finished after it has ended.

    A message whose last allowed receive fails is put aside with what went wrong. Nothing is received while a
    dependency is away.
    """

    async def handle(delivery: Delivery[Received[T]]) -> None:
        try:
            with dependencies.progress.message():
                await process(delivery.body.value)
        except PermanentFailure:
            raise
        except Exception as error:
            if delivery.body.message.last_receive:
                raise PermanentFailure("failed", error_text(error)) from error
            raise

    source = MessageSource(queue, decode, clock=clock)
    options = ConsumerOptions(
        concurrency=lambda: concurrency if dependencies.are_there else 0, redelivery=REDELIVERY
    )
    return Consumer(source, TaskRunner(handle), clock=clock, options=options), source
