"""A Consumer over a source that lives in the test, on a clock that stands still."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from airunner.domain.errors import PermanentFailure
from airunner.domain.retry import RetryPolicy
from airunner.queues.base import ConsumerOptions, Delivery, Fail, Finish, Hold, Runner
from airunner.queues.consumer import Consumer
from airunner.queues.task_runner import TaskRunner
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
        self.ack_errors: deque[Exception] = deque()
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
        if self.ack_errors:
            raise self.ack_errors.popleft()
        self.acked.append([(delivery.key, result) for delivery, result in settlements])

    async def release(self, delivery: Delivery[str], delay_seconds: float, error: str) -> None:
        await self.release_gate.wait()
        self.released.append((delivery.key, delay_seconds, error))

    async def dead_letter(self, delivery: Delivery[str], failure: PermanentFailure) -> None:
        self.dead.append((delivery.key, failure.code))


class Gates:
    """Processes deliveries, which end when and how the test says."""

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

    async def process(self, delivery: Delivery[str]) -> str:
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


class ScriptedFastPath:
    """A runner that keeps all deliveries but those called "usual" until the test ends or hands them over."""

    def __init__(self, gates: Gates) -> None:
        self.begun: list[Delivery[str]] = []
        self._kept: set[Delivery[str]] = set()
        self._tasks = TaskRunner(gates.process)

    def begin(self, deliveries: Sequence[Delivery[str]], finish: Finish[str, str], fail: Fail[str]) -> None:
        self._finish, self._fail = finish, fail
        kept = [delivery for delivery in deliveries if delivery.key != "usual"]
        self.begun += kept
        self._kept.update(kept)
        self._tasks.begin([delivery for delivery in deliveries if delivery not in kept], finish, fail)

    def cancel(self, delivery: Delivery[str]) -> None:
        self.hand_over(delivery)
        self._tasks.cancel(delivery)

    def finish(self, results: Sequence[tuple[Delivery[str], str]]) -> None:
        """End deliveries, but for those that were handed over."""
        kept = [(delivery, result) for delivery, result in results if delivery in self._kept]
        self._kept.difference_update(delivery for delivery, _ in kept)
        self._finish(kept)

    def hand_over(self, delivery: Delivery[str]) -> None:
        if delivery in self._kept:
            self._kept.discard(delivery)
            self._tasks.begin([delivery], self._finish, self._fail)


class Bench:
    def __init__(self, *, fast_path: bool = False, **options: Any) -> None:
        self.clock = ManualClock()
        self.source = ScriptedSource()
        self.gates = Gates()
        self.fast_path = ScriptedFastPath(self.gates)
        runner: Runner[str, str] = self.fast_path if fast_path else TaskRunner(self.gates.process)
        options = {"redelivery": EXACT, "reconnect": EXACT} | options
        self.consumer: Consumer[str, str] = Consumer(
            self.source, runner, clock=self.clock, options=ConsumerOptions(**options)
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
