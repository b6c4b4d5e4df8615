"""Who waits for jobs of SQS, what is received for them and when, and what becomes of the rest."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from airunner.domain.errors import AirunnerError, Unavailable
from airunner.stores.aws.claim import ClaimedJobs
from airunner.stores.aws.polling.gate import QueueGate
from airunner.stores.aws.polling.receive import Receiver
from airunner.stores.records import Demand
from airunner.testing.clock import ManualClock
from tests.support.consumers import turns

LONGEST_AT_HAND_SECONDS = 5
PAUSES_ARE_KNOWN_SECONDS = 2
# How long a failure is followed by nothing, at the most.
LONGEST_PAUSE_SECONDS = 5


@dataclass
class Script:
    """Messages, claims and rows in one, as a test tells them."""

    clock: ManualClock = field(default_factory=ManualClock)
    arriving: defaultdict[str, asyncio.Queue[list[str]]] = field(
        default_factory=lambda: defaultdict(asyncio.Queue)
    )
    receives: list[str] = field(default_factory=list)
    reads: list[str] = field(default_factory=list)
    claims: list[str] = field(default_factory=list)
    shown: list[tuple[list[str], int]] = field(default_factory=list)
    in_vain: int = 0
    paused: bool = False
    failure: AirunnerError | None = None

    def check_queue(self, queue: str) -> str:
        return queue

    async def receive(self, queue: str, count: int, wait_seconds: int) -> list[Any]:
        self.receives.append(queue)
        if not wait_seconds:
            return []
        found = await self.arriving[queue].get()
        return [SimpleNamespace(receipt=message) for message in found]

    async def look(self, queue: str, received: Sequence[Any]) -> tuple[bool, list[Any]]:
        if self.failure:
            raise self.failure
        return False, [SimpleNamespace(handler_key="", message=message) for message in received]

    async def claim(self, queue: str, candidates: Sequence[Any], demand: Demand, room: int) -> ClaimedJobs:
        self.claims.append(demand.worker_id)
        if self.in_vain:
            self.in_vain -= 1
            return ClaimedJobs(jobs=(), room=room)
        jobs: Any = [candidate.message.receipt for candidate in candidates]
        return ClaimedJobs(jobs=jobs, room=room)

    async def show_again(self, queue: str, receipts: Sequence[str], seconds: int = 0) -> None:
        self.shown.append((list(receipts), seconds))

    async def pass_on(self, queue: str, candidates: Sequence[Any]) -> None:
        assert not candidates

    async def read_paused(self, queue: str) -> bool:
        self.reads.append(queue)
        if self.failure:
            raise self.failure
        return self.paused


@dataclass(frozen=True)
class Site:
    script: Any
    receiver: Receiver
    gate: QueueGate

    @property
    def clock(self) -> ManualClock:
        clock: ManualClock = self.script.clock
        return clock

    async def come(self, name: str, *queues: str, waits: bool = True) -> tuple[Demand, asyncio.Task[Any]]:
        """Let a worker ask for one job."""
        demand = Demand(
            queues=queues or ("builds",), max_jobs=1, visibility_seconds=60, worker_id=name, waits=waits
        )
        call = asyncio.create_task(self.receiver.dequeue(demand))
        await turns()
        return demand, call

    async def arrive(self, *messages: str, queue: str = "builds") -> None:
        self.script.arriving[queue].put_nowait(list(messages))
        await turns()

    async def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        await turns()


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    script: Any = Script()
    gate = QueueGate(script, script.clock)
    receiver = Receiver(messages=script, claimer=script, gate=gate, real_clock=script.clock)
    yield Site(script, receiver, gate)
    async with asyncio.timeout(20):
        await receiver.close()


async def test_messages_that_come_to_nothing_put_nobody_behind_the_others(site: Site) -> None:
    waiting = [(await site.come(name))[1] for name in ("first", "second")]
    site.script.in_vain = 3
    for _ in range(3):
        await site.arrive("taken elsewhere")
    assert site.script.claims == ["first"] * 3
    await site.arrive("a job")
    assert [call.done() for call in waiting] == [True, False]
    await site.arrive("another job")
    async with asyncio.timeout(20):
        assert await asyncio.gather(*waiting) == [["a job"], ["another job"]]


@pytest.mark.parametrize("waits", [True, False])
async def test_what_comes_for_nobody_is_at_hand_for_the_next(site: Site, waits: bool) -> None:
    demand, call = await site.come("leaves")
    site.receiver.withdraw(demand)
    await site.arrive("a job")
    assert await call == ()
    _, call = await site.come("comes", waits=waits)
    assert await call == ["a job"]
    assert site.script.receives == ["builds"]
    await site.pass_time(LONGEST_AT_HAND_SECONDS)
    assert [receipts for receipts, _ in site.script.shown if receipts] == []


async def test_what_comes_for_nobody_goes_back_after_seconds_and_no_poll_follows(site: Site) -> None:
    demand, _ = await site.come("leaves")
    site.receiver.withdraw(demand)
    await site.arrive("a job")
    await site.pass_time(0.9)
    assert site.script.shown == []
    await site.pass_time(LONGEST_AT_HAND_SECONDS - 0.9)
    assert site.script.shown == [(["a job"], 0)]
    assert site.script.receives == ["builds"]


async def test_what_is_at_hand_goes_back_when_the_server_ends(site: Site) -> None:
    demand, _ = await site.come("leaves")
    site.receiver.withdraw(demand)
    await site.arrive("a job")
    await site.receiver.close()
    ((receipts, seconds),) = site.script.shown
    assert receipts == ["a job"]
    assert 1 <= seconds <= LONGEST_AT_HAND_SECONDS


async def test_nothing_is_received_while_the_table_does_not_answer(site: Site) -> None:
    _, call = await site.come("waits")
    site.script.failure = Unavailable("away")
    await site.arrive("a job")
    for _ in range(10):
        await site.pass_time(LONGEST_PAUSE_SECONDS)
    assert site.script.receives == ["builds"]
    assert len(site.script.reads) > 10
    with pytest.raises(Unavailable):
        await (await site.come("asks", waits=False))[1]
    assert site.script.receives == ["builds"]
    site.script.failure = None
    await site.pass_time(LONGEST_PAUSE_SECONDS)
    await site.arrive("a job")
    assert await call == ["a job"]


async def test_a_paused_queue_is_not_received_from(site: Site) -> None:
    site.script.paused = True
    _, call = await site.come("waits")
    for _ in range(5):
        await site.pass_time(PAUSES_ARE_KNOWN_SECONDS)
    assert site.script.receives == []
    assert not await (await site.come("asks", waits=False))[1]
    # Resumed elsewhere.
    site.script.paused = False
    await site.pass_time(PAUSES_ARE_KNOWN_SECONDS)
    await site.arrive("a job")
    assert await call == ["a job"]


async def test_a_queue_that_is_resumed_here_is_received_from_at_once(site: Site) -> None:
    site.script.paused = True
    await site.come("waits")
    site.gate.note("builds", is_paused=False)
    await turns()
    assert site.script.receives == ["builds"]


async def test_however_many_wait_the_table_is_read_once(site: Site) -> None:
    for number in range(40):
        await site.come(str(number))
    assert len(site.script.receives) == 4
    assert site.script.reads == ["builds"]


@pytest.mark.parametrize("answers", [True, False])
async def test_a_preferred_queue_has_a_moment_to_answer_first(site: Site, answers: bool) -> None:
    _, call = await site.come("waits", "priority", "builds")
    await site.arrive("one of many")
    assert not call.done()
    if answers:
        await site.arrive("the first", queue="priority")
        assert await call == ["the first"]
    else:
        await site.pass_time(0.5)
        assert await call == ["one of many"]


async def test_a_queue_that_had_its_moment_holds_up_no_other(site: Site) -> None:
    _, call = await site.come("waits", "priority", "builds")
    await site.pass_time(1)
    await site.arrive("one of many")
    assert await call == ["one of many"]
    # The poll of the other queue still waits, and the next need not.
    _, call = await site.come("waits", "priority", "builds")
    await site.arrive("another one")
    assert await call == ["another one"]
    assert site.script.receives == ["priority", "builds", "builds"]


async def test_closing_while_the_table_is_asked_ends_the_calls(site: Site) -> None:
    asked_for_ever = asyncio.Event()

    async def read_paused(queue: str) -> bool:
        await asked_for_ever.wait()
        return False

    site.script.read_paused = read_paused
    _, waiting = await site.come("waits")
    _, asking = await site.come("asks", waits=False)
    await site.receiver.close()
    assert await waiting == ()
    with pytest.raises(Unavailable):
        await asking
