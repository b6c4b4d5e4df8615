"""Who waits for jobs of SQS is served in the order of arrival, whatever messages come to nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from airunner.stores.aws.claim import ClaimedJobs
from airunner.stores.aws.polling.gate import QueueGate
from airunner.stores.aws.polling.receive import Receiver
from airunner.stores.records import Demand
from airunner.testing.clock import ManualClock
from tests.support.consumers import turns


class Script:
    """Messages, claims and rows in one, as a test tells them."""

    def __init__(self) -> None:
        self.arriving: asyncio.Queue[list[Any]] = asyncio.Queue()
        self.claims: list[str] = []
        self.in_vain = 0

    def check_queue(self, queue: str) -> str:
        return queue

    async def receive(self, queue: str, count: int, wait_seconds: int) -> list[Any]:
        return await self.arriving.get()

    async def look(self, queue: str, received: Sequence[Any]) -> tuple[bool, list[Any]]:
        return False, [SimpleNamespace(handler_key="", message=message) for message in received]

    async def claim(self, queue: str, candidates: Sequence[Any], demand: Demand, room: int) -> ClaimedJobs:
        self.claims.append(demand.worker_id)
        if self.in_vain:
            self.in_vain -= 1
            return ClaimedJobs(jobs=(), room=room)
        jobs: Any = [candidate.message for candidate in candidates]
        return ClaimedJobs(jobs=jobs, room=room)

    async def show_again(self, queue: str, receipts: Sequence[str]) -> None:
        assert not receipts

    async def pass_on(self, queue: str, candidates: Sequence[Any]) -> None:
        assert not candidates

    async def read_many(self, keys: Sequence[str]) -> dict[str, Any]:
        return {}

    def is_paused(self, item: Any) -> bool:
        return False


async def test_messages_that_come_to_nothing_put_nobody_behind_the_others() -> None:
    script: Any = Script()
    clock = ManualClock()
    receiver = Receiver(messages=script, claimer=script, gate=QueueGate(script, clock), real_clock=clock)
    waiting: list[asyncio.Task[Any]] = []
    for name in ("first", "second"):
        demand = Demand(queues=("builds",), max_jobs=1, visibility_seconds=60, worker_id=name)
        waiting.append(asyncio.create_task(receiver.dequeue(demand)))
        await turns()
    script.in_vain = 3
    for _ in range(3):
        script.arriving.put_nowait(["taken elsewhere"])
        await turns()
    assert script.claims == ["first"] * 3
    script.arriving.put_nowait(["a job"])
    await turns()
    assert [call.done() for call in waiting] == [True, False]
    script.arriving.put_nowait(["another job"])
    async with asyncio.timeout(20):
        assert await asyncio.gather(*waiting) == [["a job"], ["another job"]]
    await receiver.close()
