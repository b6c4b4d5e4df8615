"""A consumer whose deliveries have a head start: finished without a task, or handed over to one."""

from __future__ import annotations

from airunner.queues.base import Hold
from tests.support.consumers import ScriptedSprint, turns, working


async def test_what_the_sprint_finishes_is_acked_together_and_never_handled() -> None:
    fast_path = ScriptedSprint()
    async with working(fast_path=fast_path, concurrency=10) as bench:
        one, two = bench.source.deliver("one", "two")
        await turns()
        assert (bench.consumer.running, bench.gates.started) == (2, [])
        fast_path.finish([(one, "first"), (two, "second")])
        assert bench.consumer.running == 0
        await turns()
        assert bench.source.acked == [[("one", "first"), ("two", "second")]]
        assert bench.gates.started == []


async def test_what_the_sprint_leaves_is_handled_as_usual() -> None:
    fast_path = ScriptedSprint()
    async with working(fast_path=fast_path, concurrency=10) as bench:
        bench.source.deliver("usual", "quick")
        await turns()
        assert bench.gates.started == ["usual"]
        bench.gates.end("usual")
        await turns()
        assert bench.source.acked == [[("usual", "done")]]


async def test_what_is_handed_over_ends_by_its_handler_alone() -> None:
    fast_path = ScriptedSprint()
    async with working(fast_path=fast_path, concurrency=10) as bench:
        (slow,) = bench.source.deliver("slow")
        await turns()
        fast_path.hand_over(slow)
        fast_path.hand_over(slow)
        fast_path.finish([(slow, "too late")])
        await turns()
        assert bench.gates.started == ["slow"]
        bench.gates.end("slow", "by the handler")
        await turns()
        assert bench.source.acked == [[("slow", "by the handler")]]
        assert bench.consumer.running == 0


async def test_a_sprint_takes_its_slots() -> None:
    fast_path = ScriptedSprint()
    async with working(fast_path=fast_path, concurrency=2) as bench:
        one, *_ = bench.source.deliver("one", "two", "three")
        await turns()
        assert [delivery.key for delivery in fast_path.begun] == ["one", "two"]
        fast_path.finish([(one, "done")])
        await turns()
        assert [delivery.key for delivery in fast_path.begun] == ["one", "two", "three"]


async def test_a_stop_hands_over_what_is_to_be_cancelled() -> None:
    fast_path = ScriptedSprint()
    async with working(fast_path=fast_path, concurrency=2, drain_seconds=5) as bench:
        bench.source.deliver("one")
        await turns()
        bench.consumer.stop()
        await turns()
        assert bench.gates.started == []
        bench.clock.advance(5)
        await turns()
        assert (bench.gates.started, bench.gates.cancelled) == (["one"], ["one"])
        assert bench.source.released == [("one", 0, "")]


async def test_a_sprint_that_was_lost_is_handed_over_and_cancelled() -> None:
    fast_path = ScriptedSprint()
    async with working(fast_path=fast_path, concurrency=2) as bench:
        (one,) = bench.source.deliver("one")
        await turns()
        bench.source.answer_extend("one", Hold.LOST)
        bench.clock.advance(1)
        await turns()
        assert one.lost
        assert (bench.gates.cancelled, bench.source.acked, bench.source.released) == (["one"], [], [])
        fast_path.finish([(one, "too late")])
        await turns()
        assert bench.source.acked == []
