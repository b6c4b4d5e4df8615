"""A Consumer over the MessageSource of a queue: every way to end, and bodies that nobody can process."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from airunner.domain.errors import PermanentFailure
from airunner.domain.retry import RetryPolicy
from airunner.queues.base import ConsumerOptions
from airunner.queues.consumer import Consumer
from airunner.queues.messages import MessageSource, UnhandledMessage
from airunner.queues.task_runner import TaskRunner
from airunner.testing.conditions import until
from airunner.testing.conformance.queues.backend import SHORT_WAIT_SECONDS, VISIBILITY_SECONDS, RecordedQueue

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from airunner.queues.base import Delivery
    from airunner.queues.messages import Received
    from airunner.testing.conformance.queues.backend import QueueUnderTest

DELAY_SECONDS: Final = 60
_STEADY: Final = RetryPolicy(first_seconds=DELAY_SECONDS, factor=1, max_seconds=DELAY_SECONDS, jitter=0)
_DRAIN_SECONDS: Final = 5
_LIMIT_SECONDS: Final = 20


class Work:
    """A consumer at work, whose deliveries end as the test says."""

    def __init__(self, site: QueueUnderTest, concurrency: int) -> None:
        self.queue = RecordedQueue(site.queue)
        self.processed: list[tuple[str, int, bool]] = []
        """Name, receive count and whether it was the last one, of everything that was processed."""
        self.cancelled: list[str] = []
        self.ends: dict[str, asyncio.Future[None]] = {}
        self.source = MessageSource(
            self.queue,
            decode,
            clock=site.clock,
            visibility_seconds=VISIBILITY_SECONDS,
            wait_seconds=SHORT_WAIT_SECONDS,
        )
        self.consumer: Consumer[Received[str], None] = Consumer(
            self.source,
            TaskRunner(self._process),
            clock=site.clock,
            options=ConsumerOptions(
                concurrency=concurrency, redelivery=_STEADY, drain_seconds=_DRAIN_SECONDS
            ),
        )

    def end(self, name: str) -> asyncio.Future[None]:
        """Return what the processing of this name waits for."""
        return self.ends.setdefault(name, asyncio.get_running_loop().create_future())

    async def _process(self, delivery: Delivery[Received[str]]) -> None:
        received = delivery.body
        self.processed.append((received.value, delivery.attempt, received.message.last_receive))
        try:
            await asyncio.shield(self.end(received.value))
        except asyncio.CancelledError:
            self.cancelled.append(received.value)
            raise


def decode(body: str) -> str:
    """Return the name in a body; nobody handles one that begins with "odd"."""
    name: str = json.loads(body)["name"]
    if name.startswith("odd"):
        raise UnhandledMessage(f"nobody handles {name}")
    return name


def body_of(name: str) -> str:
    """Return a body that can be decoded."""
    return json.dumps({"name": name})


@asynccontextmanager
async def working(site: QueueUnderTest, *, concurrency: int = 5) -> AsyncIterator[Work]:
    """Let a consumer work on the queue."""
    work = Work(site, concurrency)
    running = asyncio.create_task(work.consumer.run())
    try:
        yield work
    finally:
        work.consumer.kill()
        async with asyncio.timeout(_LIMIT_SECONDS):
            await asyncio.wait({running})
            await work.source.finish()


class ConsumeConformance:
    """What becomes of the messages that a consumer receives."""

    async def test_what_was_processed_is_deleted(self, site: QueueUnderTest) -> None:
        async with working(site) as work:
            work.end("a").set_result(None)
            await site.send(body_of("a"))
            await until(lambda: work.queue.deleted == [body_of("a")])
            assert work.processed == [("a", 1, False)]
        assert (await site.queue.depth()).in_flight == 0

    async def test_a_permanent_failure_is_put_aside(self, site: QueueUnderTest) -> None:
        async with working(site) as work:
            work.end("a").set_exception(PermanentFailure("no_credits", "user 7 has none"))
            await site.send(body_of("a"))
            await until(lambda: work.queue.put_aside == [body_of("a")])
        assert await site.letters() == [(body_of("a"), "no_credits", "user 7 has none")]
        site.advance(VISIBILITY_SECONDS)
        assert list(await site.receive()) == []

    async def test_after_an_error_it_comes_again_when_the_policy_says(self, site: QueueUnderTest) -> None:
        async with working(site) as work:
            work.end("a").set_exception(ValueError("broken"))
            await site.send(body_of("a"))
            await until(lambda: work.queue.released == [body_of("a")])
            site.advance(DELAY_SECONDS - 1)
            assert (await site.queue.depth()).in_flight == 1
            assert len(work.processed) == 1
            work.ends["a"] = settled()
            site.advance(1)
            await until(lambda: work.queue.deleted == [body_of("a")])
            assert work.processed == [("a", 1, False), ("a", 2, False)]

    async def test_the_last_try_is_known(self, site: QueueUnderTest) -> None:
        async with working(site) as work:
            work.end("a").set_exception(ValueError("broken"))
            await site.send(body_of("a"))
            for tries in (1, 2, 3):
                await until(lambda: len(work.queue.released) == tries)  # noqa: B023 - waited for in this turn
                site.advance(DELAY_SECONDS)
            assert work.processed == [("a", 1, False), ("a", 2, False), ("a", 3, True)]
            await letter_comes(site)
        assert await site.letters() == [(body_of("a"), "", "")]

    async def test_bodies_for_nobody_are_put_aside_and_others_processed(self, site: QueueUnderTest) -> None:
        bodies = ["no JSON", body_of("odd one"), body_of("a"), '{"nothing": 1}']
        async with working(site) as work:
            work.end("a").set_result(None)
            await site.send(*bodies)
            await until(lambda: len(work.queue.put_aside) == 3 and work.queue.deleted == [body_of("a")])
            assert [name for name, _, _ in work.processed] == ["a"]
        letters = {body: (reason, error) for body, reason, error in await site.letters()}
        assert letters[bodies[1]] == ("unhandled", "nobody handles odd one")
        assert letters[bodies[0]][0] == letters[bodies[3]][0] == "undecodable"
        assert letters[bodies[3]][1] == "'name'"
        site.advance(VISIBILITY_SECONDS)
        assert list(await site.receive()) == []

    async def test_a_slow_message_delays_no_other_and_stays_ours(self, site: QueueUnderTest) -> None:
        async with working(site, concurrency=2) as work:
            await site.send(body_of("slow"))
            await until(lambda: len(work.processed) == 1)
            for turn in range(4):
                site.advance(VISIBILITY_SECONDS / 3)
                await until(lambda: len(work.queue.extended) > turn)  # noqa: B023 - waited for in this turn
                work.end(f"{turn}").set_result(None)
                await site.send(body_of(f"{turn}"))
                await until(lambda: len(work.queue.deleted) > turn)  # noqa: B023 - waited for in this turn
            assert [name for name, _, _ in work.processed] == ["slow", "0", "1", "2", "3"]
            work.end("slow").set_result(None)
            await until(lambda: work.queue.deleted[-1] == body_of("slow"))
        assert set(work.queue.extended) == {body_of("slow")}

    async def test_what_was_lost_is_cancelled_and_left_alone(self, site: QueueUnderTest) -> None:
        async with working(site, concurrency=1) as work:
            await site.send(body_of("a"))
            await until(lambda: len(work.processed) == 1)
            site.advance(VISIBILITY_SECONDS + 1)
            await until(lambda: work.cancelled == ["a"])
            await until(lambda: len(work.processed) == 2)
            assert (work.queue.released, work.queue.put_aside, work.queue.deleted) == ([], [], [])

    async def test_a_stopped_consumer_gives_back_what_it_holds(self, site: QueueUnderTest) -> None:
        async with working(site) as work:
            await site.send(body_of("a"))
            await until(lambda: len(work.processed) == 1)
            work.consumer.stop()
            site.advance(_DRAIN_SECONDS)
            await until(lambda: work.queue.released == [body_of("a")])
            message = await site.receive_at_last()
        assert message.body == body_of("a")
        assert message.receive_count > 1


def settled() -> asyncio.Future[None]:
    """Return a future that is done."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    future.set_result(None)
    return future


async def letter_comes(site: QueueUnderTest) -> None:
    """Wait until the queue has put a message aside by itself: at the next receive."""
    async with asyncio.timeout(_LIMIT_SECONDS):
        while not (await site.dead_letters.depth()).visible:  # noqa: ASYNC110  nothing here knows of it
            await asyncio.sleep(0)
