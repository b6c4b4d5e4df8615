from __future__ import annotations

import asyncio
from collections import deque

from airunner.queues.base import ConsumerOptions, Delivery, Hold
from airunner.queues.consumer import Consumer
from airunner.queues.task_runner import TaskRunner
from airunner.testing.clock import ManualClock
from airunner.testing.conditions import until
from tests.support.consumers import ScriptedSource, turns, working


async def test_it_ends_by_itself_after_its_last_delivery() -> None:
    async with working(concurrency=4, receivers=2, max_deliveries=3) as bench:
        bench.source.deliver("a", "b", "c", "d")
        await until(lambda: len(bench.gates.running) == 3)
        bench.clock.advance(3600)
        await turns()
        assert not bench.work.done(), "the last deliveries have all the time they need"
        for key in "abc":
            bench.gates.end(key)
        await until(bench.work.done)
        assert bench.gates.started == ["a", "b", "c"]
        assert sorted(pair for call in bench.source.acked for pair in call) == [(k, "done") for k in "abc"]


async def test_drain_waits_while_extending_then_cancels_then_releases() -> None:
    async with working(concurrency=2, drain_seconds=30) as bench:
        bench.source.deliver("a", "b")
        await until(lambda: len(bench.gates.running) == 2)
        bench.consumer.stop()
        bench.clock.advance(1)
        await until(lambda: sorted(bench.source.extended) == ["a", "b"])
        bench.gates.end("a")
        await until(lambda: bench.source.acked == [[("a", "done")]])
        bench.source.answer_extend("b", Hold.HELD)
        await until(lambda: bench.source.extended.count("b") == 2)
        bench.clock.advance(28.9)
        await turns()
        assert bench.gates.cancelled == []
        bench.clock.advance(0.1)
        await until(bench.work.done)
        assert bench.gates.cancelled == ["b"]
        assert bench.source.released == [("b", 0, "")]
        bench.work.result()


async def test_stop_withdraws_the_receive_that_is_on_its_way() -> None:
    async with working() as bench:
        await until(lambda: bool(bench.source.waiting))
        bench.consumer.stop()
        await until(bench.work.done)
        assert bench.source.withdrawn == 1


async def test_what_a_receive_returns_after_stop_is_released_unstarted() -> None:
    async with working() as bench:
        await until(lambda: bool(bench.source.waiting))
        bench.source.too_late.append(Delivery(body="late", key="late"))
        bench.consumer.stop()
        await until(bench.work.done)
        assert bench.gates.started == []
        assert bench.source.released == [("late", 0, "")]


async def test_processing_that_ends_in_its_own_way_when_cancelled_is_acked() -> None:
    clock, source = ManualClock(), ScriptedSource()

    async def stubborn(delivery: Delivery[str]) -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "ended well"
        return ""

    consumer = Consumer(source, TaskRunner(stubborn), clock=clock, options=ConsumerOptions(drain_seconds=0))
    work = asyncio.create_task(consumer.run())
    source.deliver("a")
    await until(lambda: source.ready == deque())
    await turns()
    consumer.stop()
    await until(work.done)
    assert source.acked == [[("a", "ended well")]]


async def test_the_second_signal_cancels_at_once_and_settles_nothing() -> None:
    async with working() as bench:
        (delivery,) = bench.source.deliver("a")
        await until(lambda: bool(bench.gates.running))
        bench.consumer.stop()
        await turns()
        assert bench.gates.cancelled == []
        bench.consumer.kill()
        await until(bench.work.done)
        assert bench.gates.cancelled == ["a"]
        assert delivery.lost
        assert bench.source.released == []
        assert bench.source.acked == []


async def test_settlements_that_never_come_through_are_given_up() -> None:
    async with working(drain_seconds=5, release_seconds=7) as bench:
        bench.source.release_gate.clear()
        bench.source.deliver("a")
        await until(lambda: bool(bench.gates.running))
        bench.consumer.stop()
        bench.clock.advance(5)
        await until(lambda: bool(bench.gates.cancelled))
        bench.clock.advance(6.9)
        await turns()
        assert not bench.work.done()
        bench.clock.advance(0.1)
        await until(bench.work.done)
        assert bench.source.released == []


async def test_settlement_survives_cancelling_the_consumer() -> None:
    async with working(drain_seconds=5) as bench:
        bench.source.ack_gate.clear()
        bench.gates.end("a")
        bench.source.deliver("a")
        await turns()
        bench.work.cancel()
        await turns()
        assert not bench.work.done()
        bench.source.ack_gate.set()
        await until(bench.work.done)
        assert bench.work.cancelled()
        assert bench.source.acked == [[("a", "done")]]
