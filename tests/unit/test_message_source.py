"""MessageSource over a queue that answers as the test says: repeats, refusals, and the order of calls."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

import pytest
from structlog.testing import capture_logs

from airunner.domain.errors import (
    AirunnerError,
    FailedPrecondition,
    InternalError,
    MessageTooLarge,
    PermanentFailure,
    ResourceExhausted,
    Unavailable,
)
from airunner.domain.retry import RetryPolicy
from airunner.queues.base import Delivery, Hold
from airunner.queues.memory import MemoryQueue
from airunner.queues.messages import Message, MessageSource, NewMessage, Received
from airunner.testing.clock import ManualClock
from airunner.testing.conditions import until

STEADY = RetryPolicy(first_seconds=1, factor=1, jitter=0)
VISIBILITY_SECONDS = 30


class FaultyQueue(MemoryQueue):
    """A queue whose next calls fail, or wait."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock, max_receive_count=3)
        self.errors: deque[AirunnerError] = deque()
        self.delete_errors: deque[list[AirunnerError | None]] = deque()
        self.extend_gate = asyncio.Event()
        self.extend_gate.set()
        self.calls: list[str] = []

    async def extend(self, message: Message, visibility_seconds: int) -> bool:
        self.calls.append("extend begins")
        await self.extend_gate.wait()
        self._fail()
        self.calls.append("extend ends")
        return await super().extend(message, visibility_seconds)

    async def release(self, message: Message, delay_seconds: float) -> None:
        self.calls.append("release")
        self._fail()
        await super().release(message, delay_seconds)

    async def delete(self, messages: Sequence[Message]) -> Sequence[AirunnerError | None]:
        self.calls.append(f"delete {len(messages)}")
        errors = self.delete_errors.popleft() if self.delete_errors else [None] * len(messages)
        pairs = zip(messages, errors, strict=True)
        await super().delete([message for message, error in pairs if error is None])
        return errors

    async def dead_letter(self, message: Message, failure: PermanentFailure) -> None:
        self.calls.append("dead_letter")
        self._fail()
        await super().dead_letter(message, failure)

    def _fail(self) -> None:
        if self.errors:
            raise self.errors.popleft()


class Bench:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.queue = FaultyQueue(self.clock)
        self.source: MessageSource[int] = MessageSource(
            self.queue, int, clock=self.clock, visibility_seconds=VISIBILITY_SECONDS, policy=STEADY
        )

    async def deliver(self, *bodies: str) -> Sequence[Delivery[Received[int]]]:
        await self.queue.send([NewMessage(body=body) for body in bodies])
        return await self.source.receive(10)

    async def letters(self) -> list[tuple[str, str]]:
        assert self.queue.dead_letters
        found = await self.queue.dead_letters.receive(10)
        return [(message.body, message.attributes["reason"]) for message in found]


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def test_a_delivery_says_what_its_message_is(bench: Bench) -> None:
    (delivery,) = await bench.deliver("7")
    assert delivery.body.value == 7
    assert (delivery.key, delivery.attempt) == (delivery.body.message.message_id, 1)
    assert delivery.extend_after_seconds == VISIBILITY_SECONDS / 3


async def test_extending_takes_a_third_of_the_visibility_timeout(bench: Bench) -> None:
    (delivery,) = await bench.deliver("7")
    extending = asyncio.create_task(bench.source.extend(delivery))
    await until(lambda: bench.clock.waiting == 1)
    assert bench.queue.calls == ["extend begins", "extend ends"]
    bench.clock.advance(VISIBILITY_SECONDS / 3 - 0.1)
    await until(lambda: True)
    assert not extending.done()
    bench.clock.advance(0.1)
    assert await extending is Hold.HELD


async def test_what_is_not_held_any_more_is_lost_at_once(bench: Bench) -> None:
    (delivery,) = await bench.deliver("7")
    bench.clock.advance(VISIBILITY_SECONDS)
    assert await bench.source.extend(delivery) is Hold.LOST


async def test_an_unreachable_queue_is_an_error_of_extend(bench: Bench) -> None:
    (delivery,) = await bench.deliver("7")
    bench.queue.errors.append(Unavailable())
    with pytest.raises(Unavailable):
        await bench.source.extend(delivery)


async def test_a_release_waits_for_the_extension_that_is_on_its_way(bench: Bench) -> None:
    (delivery,) = await bench.deliver("7")
    bench.queue.extend_gate.clear()
    extending = asyncio.create_task(bench.source.extend(delivery))
    await until(lambda: bench.queue.calls == ["extend begins"])
    releasing = asyncio.create_task(bench.source.release(delivery, 0, "broken"))
    await until(lambda: True)
    assert bench.queue.calls == ["extend begins"]
    bench.queue.extend_gate.set()
    await releasing
    assert bench.queue.calls == ["extend begins", "extend ends", "release"]
    assert len(await bench.queue.receive(1)) == 1
    extending.cancel()


async def test_no_extension_begins_during_a_release(bench: Bench) -> None:
    (delivery,) = await bench.deliver("7")
    bench.queue.errors.append(Unavailable())
    releasing = asyncio.create_task(bench.source.release(delivery, 0, ""))
    await until(lambda: bench.queue.calls == ["release"])
    extending = asyncio.create_task(bench.source.extend(delivery))
    await until(lambda: bench.clock.waiting == 2)
    bench.clock.advance(1)
    await releasing
    assert bench.queue.calls == ["release", "release"]
    bench.clock.advance(VISIBILITY_SECONDS / 3)
    assert await extending is Hold.HELD


@pytest.mark.parametrize("error", [Unavailable(), ResourceExhausted()], ids=repr)
async def test_settlements_are_repeated_while_the_queue_is_away(bench: Bench, error: AirunnerError) -> None:
    first, second = await bench.deliver("7", "8")
    bench.queue.errors.extend([error] * 3)
    releasing = asyncio.create_task(bench.source.release(first, 5, "broken"))
    for _ in range(3):
        await until(lambda: bench.clock.waiting == 1)
        bench.clock.advance(1)
    await releasing
    assert bench.queue.calls == ["release"] * 4
    bench.queue.errors.append(error)
    burying = asyncio.create_task(bench.source.dead_letter(second, PermanentFailure("broken")))
    await until(lambda: bench.clock.waiting == 1)
    bench.clock.advance(1)
    await burying
    assert await bench.letters() == [("8", "broken")]


@pytest.mark.parametrize(
    "error", [FailedPrecondition("no queue"), InternalError(), MessageTooLarge()], ids=repr
)
async def test_a_settlement_that_is_refused_is_given_up_and_the_message_comes_again(
    bench: Bench, error: AirunnerError
) -> None:
    (delivery,) = await bench.deliver("7")
    bench.queue.errors.append(error)
    with capture_logs() as logs:
        await bench.source.dead_letter(delivery, PermanentFailure("broken"))
    assert [(line["event"], line["key"]) for line in logs] == [("settlement.given_up", delivery.key)]
    bench.clock.advance(VISIBILITY_SECONDS)
    assert [again.body.value for again in await bench.source.receive(1)] == [7]


async def test_acks_are_one_call_and_what_failed_is_deleted_again(bench: Bench) -> None:
    deliveries = await bench.deliver("1", "2", "3", "4")
    bench.queue.delete_errors += [
        [None, Unavailable(), InternalError(), Unavailable()],
        [None, Unavailable()],
    ]
    with capture_logs() as logs:
        acking = asyncio.create_task(bench.source.ack([(delivery, None) for delivery in deliveries]))
        for _ in range(2):
            await until(lambda: bench.clock.waiting == 1)
            bench.clock.advance(1)
        await acking
    assert bench.queue.calls == ["delete 4", "delete 2", "delete 1"]
    refused = [line["key"] for line in logs if line["event"] == "settlement.given_up"]
    assert refused == [deliveries[2].key]
    bench.clock.advance(VISIBILITY_SECONDS)
    assert [again.body.value for again in await bench.source.receive(10)] == [3]


async def test_bodies_that_cannot_be_decoded_are_put_aside_while_others_are_delivered(bench: Bench) -> None:
    deliveries = await bench.deliver("nonsense", "7")
    assert [delivery.body.value for delivery in deliveries] == [7]
    await bench.source.finish()
    assert await bench.letters() == [("nonsense", "undecodable")]


async def test_a_decoder_says_under_which_code_a_body_is_put_aside() -> None:
    bench = Bench()

    def refuse(body: str) -> int:
        raise PermanentFailure("unknown_task", f"nobody knows {body}")

    bench.source = MessageSource(bench.queue, refuse, clock=bench.clock)
    assert await bench.deliver("dusting") == []
    await bench.source.finish()
    assert await bench.letters() == [("dusting", "unknown_task")]


async def test_a_body_that_cannot_be_put_aside_comes_again(bench: Bench) -> None:
    bench.queue.errors.append(Unavailable("away"))
    with capture_logs() as logs:
        assert await bench.deliver("nonsense") == []
        await bench.source.finish()
    assert [(line["event"], line["error"]) for line in logs] == [("dlq.forward_failed", "away")]
    assert await bench.letters() == []
    bench.clock.advance(VISIBILITY_SECONDS)
    assert await bench.source.receive(1) == []
    await bench.source.finish()
    assert await bench.letters() == [("nonsense", "undecodable")]
