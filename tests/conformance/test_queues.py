"""Every subject of the conformance suite of message queues, on each of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from airunner.aws.calls import Aws
from airunner.aws.clients import OF_A_QUEUE
from airunner.queues.memory import MemoryQueue
from airunner.queues.sqs import SqsQueue
from airunner.testing.clock import ManualClock
from airunner.testing.conformance.queues.backend import MAX_RECEIVE_COUNT, OpenQueue, QueueUnderTest
from airunner.testing.conformance.queues.consuming import ConsumeConformance
from airunner.testing.conformance.queues.dead_letters import DeadLetterConformance
from airunner.testing.conformance.queues.holding import HoldConformance
from airunner.testing.conformance.queues.receiving import ReceiveConformance
from airunner.testing.conformance.queues.sending import SendConformance
from tests.doubles.aws.emulator import EmulatorProcess
from tests.doubles.aws.strict import StrictProxy
from tests.support.aws_queues import make_queues
from tests.support.aws_stores import options_of


@asynccontextmanager
async def in_memory() -> AsyncIterator[QueueUnderTest]:
    clock = ManualClock()
    queue = MemoryQueue(clock, max_receive_count=MAX_RECEIVE_COUNT)
    assert queue.dead_letters
    yield QueueUnderTest(
        queue=queue,
        dead_letters=queue.dead_letters,
        clock=clock,
        advance_service=lambda _: None,
        count_waits=lambda: clock.waiting,
    )


@pytest.fixture
def on_sqs(aws: StrictProxy, aws_env: str, emulator: EmulatorProcess) -> OpenQueue:
    @asynccontextmanager
    async def opened() -> AsyncIterator[QueueUnderTest]:
        clock = ManualClock()
        async with Aws(replace(options_of(aws.url), clients=OF_A_QUEUE)) as account:
            dead_url, url = await make_queues(account, aws_env, MAX_RECEIVE_COUNT)
            yield QueueUnderTest(
                queue=SqsQueue(account, url, clock=clock),
                dead_letters=SqsQueue(account, dead_url, clock=clock),
                clock=clock,
                advance_service=emulator.advance,
                count_waits=lambda: aws.counts.calls["ReceiveMessage"],
            )

    return opened


@pytest.fixture(params=["memory", "sqs"])
def open_queue(request: pytest.FixtureRequest) -> OpenQueue:
    # Only who needs the emulator starts it.
    opened: OpenQueue = in_memory if request.param == "memory" else request.getfixturevalue("on_sqs")
    return opened


@pytest.fixture
async def site(open_queue: OpenQueue) -> AsyncIterator[QueueUnderTest]:
    async with open_queue() as opened:
        yield opened


class TestSend(SendConformance):
    pass


class TestReceive(ReceiveConformance):
    pass


class TestHold(HoldConformance):
    pass


class TestDeadLetters(DeadLetterConformance):
    pass


class TestConsume(ConsumeConformance):
    pass
