"""A consumer whose runner has a fast path: deliveries are finished without a task, or handed over to one."""

from __future__ import annotations

import pytest

from airunner.queues import consumer
from airunner.queues.base import Hold
from airunner.testing.conditions import until
from tests.support.consumers import turns, working


async def test_what_the_fast_path_finishes_is_acked_together_and_needs_no_task() -> None:
    async with working(fast_path=True, concurrency=10) as bench:
        one, two = bench.source.deliver("one", "two")
        await turns()
        assert (bench.consumer.running, bench.gates.started) == (2, [])
        bench.fast_path.finish([(one, "first"), (two, "second")])
        assert bench.consumer.running == 0
        await turns()
        assert bench.source.acked == [[("one", "first"), ("two", "second")]]
        assert bench.gates.started == []


async def test_what_the_fast_path_leaves_is_processed_as_usual() -> None:
    async with working(fast_path=True, concurrency=10) as bench:
        bench.source.deliver("usual", "quick")
        await turns()
        assert bench.gates.started == ["usual"]
        bench.gates.end("usual")
        await turns()
        assert bench.source.acked == [[("usual", "done")]]


async def test_what_is_handed_over_ends_by_its_task_alone() -> None:
    async with working(fast_path=True, concurrency=10) as bench:
        (slow,) = bench.source.deliver("slow")
        await turns()
        bench.fast_path.hand_over(slow)
        bench.fast_path.hand_over(slow)
        bench.fast_path.finish([(slow, "too late")])
        await turns()
        assert bench.gates.started == ["slow"]
        bench.gates.end("slow", "by the task")
        await turns()
        assert bench.source.acked == [[("slow", "by the task")]]
        assert bench.consumer.running == 0


async def test_the_fast_path_takes_its_slots() -> None:
    async with working(fast_path=True, concurrency=2) as bench:
        one, *_ = bench.source.deliver("one", "two", "three")
        await turns()
        assert [delivery.key for delivery in bench.fast_path.begun] == ["one", "two"]
        bench.fast_path.finish([(one, "done")])
        await turns()
        assert [delivery.key for delivery in bench.fast_path.begun] == ["one", "two", "three"]


async def test_a_stop_hands_over_what_is_to_be_cancelled() -> None:
    async with working(fast_path=True, concurrency=2, drain_seconds=5) as bench:
        bench.source.deliver("one")
        await turns()
        bench.consumer.stop()
        await turns()
        assert bench.gates.started == []
        bench.clock.advance(5)
        await turns()
        assert (bench.gates.started, bench.gates.cancelled) == (["one"], ["one"])
        assert bench.source.released == [("one", 0, "")]


async def test_a_delivery_of_the_fast_path_that_was_lost_is_handed_over_and_cancelled() -> None:
    async with working(fast_path=True, concurrency=2) as bench:
        (one,) = bench.source.deliver("one")
        await turns()
        bench.source.answer_extend("one", Hold.LOST)
        bench.clock.advance(1)
        await turns()
        assert one.lost
        assert (bench.gates.cancelled, bench.source.acked, bench.source.released) == (["one"], [], [])
        bench.fast_path.finish([(one, "too late")])
        await turns()
        assert bench.source.acked == []


async def test_what_was_begun_may_run_before_more_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer, "_LET_BEGIN_SECONDS", 30)
    async with working(fast_path=True, concurrency=200, receivers=2) as bench:
        (one,) = bench.source.deliver("one")
        await turns()
        assert (bench.fast_path.begun, len(bench.source.requested)) == ([one], 2)
        bench.fast_path.finish([(one, "done")])
        await turns()
        assert len(bench.source.requested) == 3


async def test_what_lasts_keeps_nobody_from_asking_for_more() -> None:
    async with working(fast_path=True, concurrency=200, receivers=2) as bench:
        bench.source.deliver("one")
        await until(lambda: len(bench.source.requested) == 3)
        assert bench.consumer.running == 1


async def test_who_receives_alone_asks_for_more_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer, "_LET_BEGIN_SECONDS", 30)
    async with working(fast_path=True, concurrency=200) as bench:
        bench.source.deliver("one")
        await turns()
        assert len(bench.source.requested) == 2
