from __future__ import annotations

import pytest

from airunner.domain.errors import PermissionDenied
from airunner.queues.base import ConsumerOptions
from airunner.queues.consumer import Consumer
from airunner.queues.task_runner import TaskRunner
from airunner.testing.clock import ManualClock


class RefusingSource:
    async def receive(self, max_deliveries: int) -> list[object]:
        raise PermissionDenied


async def test_a_source_that_refuses_for_good_ends_the_consumer_with_its_error() -> None:
    consumer: Consumer[object, object] = Consumer(
        RefusingSource(),  # type: ignore[arg-type]  # nothing but receive is called
        TaskRunner(_never),
        clock=ManualClock(),
        options=ConsumerOptions(fatal=(PermissionDenied,)),
    )
    with pytest.raises(PermissionDenied):
        await consumer.run()


async def _never(_: object) -> None:
    raise AssertionError
