"""A Consumer over a source that lives in the test, on a clock that stands still."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from airunner.domain.errors import PermanentFailure
from airunner.domain.retry import RetryPolicy
from airunner.queues.base import Delivery, Finish, Hold
from airunner.queues.consumer import Consumer, ConsumerOptions
from airunner.testing.clock import ManualClock

LIMIT_SECONDS = 20
EXACT = RetryPolicy(first_seconds=1, jitter=0)


async def turns(count: int = 50) -> None:
    """Let everything happen that can happen without time passing."""
    for _ in range(count):
        await asyncio.sleep(0)


class ScriptedSource:
    """A source whose deliveries and answers the test decides."""

    def __init__(self) -> None:
        self.ready: deque[Delivery[str]] = deque()
        self.requested: list[int] = []
        self.waiting = 0
        self.withdrawn = 0
        self.too_late: list[Delivery[str]] = []
        self.errors: deque[Exception] = deque()
        self.extended: list[str] = []
        self.extending: set[str] = set()
        self.acked: list[list[tuple[str, str]]] = []
        self.released: list[tuple[str, float, str]] = []
        self.dead: list[tuple[str, str]] = []
        self.ack_gate = asyncio.Event()
        self.ack_gate.set()
        self.release_gate = asyncio.Event()
        self.release_gate.set()
        self._news = asyncio.Event()
        self._holds: dict[str, asyncio.Queue[Hold | Exception]] = {}

    def deliver(self, *bodies: str, attempt: int = 1) -> list[Delivery[str]]:
        deliveries = [Delivery(body=body, key=body, attempt=attempt) for body in bodies]
        self.ready.extend(deliveries)
        self._news.set()
        return deliveries

    def answer_extend(self, key: str, hold: Hold | Exception) -> None:
        self._holds.setdefault(key, asyncio.Queue()).put_nowait(hold)

    async def receive(self, max_deliveries: int) -> Sequence[Delivery[str]]:
        self.requested.append(max_deliveries)
        if self.errors:
            raise self.errors.popleft()
        self.waiting += 1
        try:
            while not self.ready:
                self._news.clear()
                await self._news.wait()
        except asyncio.CancelledError:
            self.withdrawn += 1
            if self.too_late:
                return self.too_late
            raise
        finally:
            self.waiting -= 1
        return [self.ready.popleft() for _ in range(min(max_deliveries, len(self.ready)))]

    async def extend(self, delivery: Delivery[str]) -> Hold:
        self.extended.append(delivery.key)
        self.extending.add(delivery.key)
        try:
            hold = await self._holds.setdefault(delivery.key, asyncio.Queue()).get()
        finally:
            self.extending.discard(delivery.key)
        if isinstance(hold, Exception):
            raise hold
        return hold

    async def ack(self, settlements: Sequence[tuple[Delivery[str], str]]) -> None:
        await self.ack_gate.wait()
        self.acked.append([(delivery.key, result) for delivery, result in settlements])

    async def release(self, delivery: Delivery[str], delay_seconds: float, error: str) -> None:
        await self.release_gate.wait()
        self.released.append((delivery.key, delay_seconds, error))

    async def dead_letter(self, delivery: Delivery[str], failure: PermanentFailure) -> None:
        self.dead.append((delivery.key, failure.code))


class Gates:
    """A handler whose deliveries end when and how the test says."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.running: set[str] = set()
        self.most_at_once = 0
        self.cancelled: list[str] = []
        self._ends: dict[str, asyncio.Future[str]] = {}

    def end(self, key: str, result: str | Exception = "done") -> None:
        future = self._ends.setdefault(key, asyncio.get_running_loop().create_future())
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)

    async def handle(self, delivery: Delivery[str]) -> str:
        key = delivery.key
        self.started.append(key)
        self.running.add(key)
        self.most_at_once = max(self.most_at_once, len(self.running))
        try:
            return await self._ends.setdefault(key, asyncio.get_running_loop().create_future())
        except asyncio.CancelledError:
            self.cancelled.append(key)
            raise
        finally:
            self.running.discard(key)


class ScriptedSprint:
    """A sprint that takes all but what is called "usual", and ends it when the test says."""

    def __init__(self) -> None:
        self.begun: list[Delivery[str]] = []

    def begin(
        self,
        deliveries: Sequence[Delivery[str]],
        finish: Finish[str, str],
        hand_over: Callable[[Delivery[str]], None],
    ) -> Sequence[Delivery[str]]:
        self.finish, self.hand_over = finish, hand_over
        usual = [delivery for delivery in deliveries if delivery.key == "usual"]
        self.begun += [delivery for delivery in deliveries if delivery not in usual]
        return usual


class Bench:
    def __init__(self, *, fast_path: ScriptedSprint | None = None, **options: Any) -> None:
        self.clock = ManualClock()
        self.source = ScriptedSource()
        self.gates = Gates()
        options = {"redelivery": EXACT, "reconnect": EXACT} | options
        self.consumer: Consumer[str, str] = Consumer(
            self.source,
            self.gates.handle,
            clock=self.clock,
            options=ConsumerOptions(**options),
            fast_path=fast_path,
        )
        self.work = asyncio.create_task(self.consumer.run())


@asynccontextmanager
async def working(**options: Any) -> AsyncIterator[Bench]:
    bench = Bench(**options)
    try:
        yield bench
    finally:
        bench.consumer.kill()
        async with asyncio.timeout(LIMIT_SECONDS):
            await asyncio.wait({bench.work})
