from __future__ import annotations

import pytest

from airunner.domain.errors import Overloaded, PermanentFailure, Unavailable, VisibilityLost
from airunner.queues.base import Hold
from airunner.testing.clock import ManualClock
from airunner.testing.conditions import until
from tests.support.consumers import turns, working


async def test_receives_no_more_than_its_free_slots() -> None:
    async with working(concurrency=2) as bench:
        bench.source.deliver("a", "b", "c", "d")
        await until(lambda: len(bench.gates.running) == 2)
        await turns()
        assert bench.source.requested == [2]
        bench.gates.end("a")
        await until(lambda: "c" in bench.gates.running)
        assert bench.source.requested == [2, 1]
        assert bench.gates.most_at_once == 2


async def test_a_free_slot_waits_for_one_receive_at_most_while_a_delivery_waits() -> None:
    async with working(concurrency=4) as bench:
        bench.source.deliver("a", "b", "c")
        await until(lambda: len(bench.gates.running) == 3 and bench.source.waiting == 1)
        for key in ("a", "b", "c"):
            bench.gates.end(key)
        await until(lambda: sum(map(len, bench.source.acked)) == 3)
        # Three slots became free while a receive for the fourth was under way: they join the next one.
        assert bench.source.requested == [4, 1]
        bench.source.deliver("d", "e", "f", "g")
        await until(lambda: bench.gates.running == {"d", "e", "f", "g"})
        assert bench.source.requested == [4, 1, 3]


async def test_a_slow_delivery_delays_no_other() -> None:
    async with working(concurrency=2) as bench:
        bench.source.deliver("slow")
        await until(lambda: "slow" in bench.gates.running)
        for number in range(20):
            bench.gates.end(f"quick {number}")
            bench.source.deliver(f"quick {number}")
        await until(lambda: sum(map(len, bench.source.acked)) == 20)
        assert bench.gates.running == {"slow"}


async def test_what_waits_for_settlement_is_bounded() -> None:
    async with working(concurrency=3) as bench:
        bench.source.ack_gate.clear()
        for number in range(20):
            bench.gates.end(f"{number}")
            bench.source.deliver(f"{number}")
        await turns()
        assert len(bench.gates.started) == 6
        bench.source.ack_gate.set()
        await until(lambda: sum(map(len, bench.source.acked)) == 20)


async def test_finished_deliveries_are_acked_together() -> None:
    async with working(concurrency=300, max_receive=300) as bench:
        keys = [str(number) for number in range(250)]
        for key in keys:
            bench.gates.end(key, f"result {key}")
        bench.source.ack_gate.clear()
        bench.source.deliver(*keys)
        await turns()
        bench.source.ack_gate.set()
        await until(lambda: sum(map(len, bench.source.acked)) == 250)
        assert [len(call) for call in bench.source.acked] == [100, 100, 50]
        assert [pair for call in bench.source.acked for pair in call] == [(k, f"result {k}") for k in keys]


async def test_a_single_ack_waits_for_nothing() -> None:
    async with working() as bench:
        bench.gates.end("a")
        bench.source.deliver("a")
        await until(lambda: bench.source.acked == [[("a", "done")]])
        assert bench.clock.now() == ManualClock().now()


async def test_an_ack_that_fails_keeps_no_slot() -> None:
    async with working(concurrency=1) as bench:
        bench.source.ack_errors.extend([RuntimeError("a surprise"), Unavailable("away"), RuntimeError()])
        for key in ("a", "b", "c", "d"):
            bench.source.deliver(key)
            await turns()
            bench.gates.end(key)
            await turns()
        assert bench.gates.started == ["a", "b", "c", "d"]
        assert bench.source.acked == [[("d", "done")]]


async def test_a_permanent_failure_is_dead_lettered() -> None:
    async with working() as bench:
        bench.gates.end("a", PermanentFailure("malformed", "no such thing"))
        bench.source.deliver("a")
        await until(lambda: bench.source.dead == [("a", "malformed")])
        assert bench.source.acked == []
        assert bench.source.released == []


@pytest.mark.parametrize(("attempt", "delay"), [(1, 1), (2, 2), (3, 4)])
async def test_any_other_error_is_a_release_with_a_growing_delay(attempt: int, delay: int) -> None:
    async with working() as bench:
        bench.gates.end("a", ValueError("broken"))
        bench.source.deliver("a", attempt=attempt)
        await until(lambda: bool(bench.source.released))
        assert bench.source.released == [("a", delay, "ValueError: broken")]


async def test_lost_visibility_is_forgotten_when_the_processing_says_so() -> None:
    async with working() as bench:
        bench.gates.end("a", VisibilityLost())
        bench.gates.end("b")
        bench.source.deliver("a", "b")
        await until(lambda: bench.source.acked == [[("b", "done")]])
        assert bench.source.released == []
        assert bench.source.dead == []


async def test_extending_begins_after_a_second_and_never_pauses() -> None:
    async with working(concurrency=2) as bench:
        bench.source.deliver("a", "b")
        await until(lambda: len(bench.gates.running) == 2)
        bench.gates.end("b")
        await until(lambda: bool(bench.source.acked))
        assert bench.source.extended == []
        bench.clock.advance(1)
        await until(lambda: bench.source.extended == ["a"])
        bench.source.answer_extend("a", Hold.HELD)
        await until(lambda: bench.source.extended == ["a", "a"])
        bench.gates.end("a")
        await until(lambda: len(bench.source.acked) == 2)
        assert bench.source.extending == set()


async def test_an_error_of_extend_keeps_the_delivery() -> None:
    async with working() as bench:
        bench.source.deliver("a")
        await until(lambda: bool(bench.gates.running))
        bench.clock.advance(1)
        bench.source.answer_extend("a", RuntimeError("away"))
        await until(lambda: bool(bench.clock.waiting))
        assert bench.source.extended == ["a"]
        bench.clock.advance(1)
        await until(lambda: bench.source.extended == ["a", "a"])
        bench.gates.end("a")
        await until(lambda: bool(bench.source.acked))


async def test_a_lost_delivery_is_cancelled_and_forgotten() -> None:
    async with working() as bench:
        (delivery,) = bench.source.deliver("a")
        await until(lambda: bool(bench.gates.running))
        bench.clock.advance(1)
        bench.source.answer_extend("a", Hold.LOST)
        await until(lambda: bench.gates.cancelled == ["a"])
        assert delivery.lost
        bench.gates.end("b")
        bench.source.deliver("b")
        await until(lambda: bench.source.acked == [[("b", "done")]])
        assert bench.source.released == []


async def test_a_lost_delivery_is_forgotten_though_its_processing_returns() -> None:
    async with working(fast_path=True) as bench:
        (delivery,) = bench.source.deliver("a")
        await until(lambda: bench.fast_path.begun == [delivery])
        delivery.lost = True
        bench.fast_path.finish([(delivery, "done")])
        bench.source.deliver("usual")
        bench.gates.end("usual")
        await until(lambda: bench.source.acked == [[("usual", "done")]])
        assert bench.consumer.running == 0


async def test_lost_while_it_is_being_settled_means_that_the_settlement_was_quicker() -> None:
    async with working() as bench:
        (delivery,) = bench.source.deliver("a")
        await until(lambda: bool(bench.gates.running))
        bench.clock.advance(1)
        await until(lambda: bool(bench.source.extended))
        bench.source.ack_gate.clear()
        bench.gates.end("a")
        await turns()
        bench.source.answer_extend("a", Hold.LOST)
        await turns()
        assert not delivery.lost
        bench.source.ack_gate.set()
        await until(lambda: bool(bench.source.acked))


async def test_a_cancelled_delivery_is_told_and_goes_on_to_its_own_end() -> None:
    async with working() as bench:
        (delivery,) = bench.source.deliver("a")
        await until(lambda: bool(bench.gates.running))
        bench.clock.advance(1)
        bench.source.answer_extend("a", Hold.CANCELLED)
        await until(delivery.cancelled.is_set)
        await until(lambda: bench.source.extended == ["a", "a"])
        assert bench.gates.running == {"a"}
        bench.gates.end("a", "my own end")
        await until(lambda: bench.source.acked == [[("a", "my own end")]])


async def test_receive_errors_back_off_and_never_end_the_loop() -> None:
    async with working() as bench:
        bench.source.errors.extend([Unavailable(), RuntimeError("broken"), Unavailable()])
        for tries, pause in enumerate((1, 2, 4), start=1):
            await until(lambda: bool(bench.clock.waiting))
            bench.clock.advance(pause - 0.001)
            await turns()
            assert len(bench.source.requested) == tries
            bench.clock.advance(0.001)
            await turns()
            assert len(bench.source.requested) == tries + 1
        bench.gates.end("a")
        bench.source.deliver("a")
        await until(lambda: bool(bench.source.acked))


async def test_a_busy_source_is_asked_again_when_it_wants_to_be() -> None:
    async with working() as bench:
        bench.source.errors.append(Overloaded(retry_after_seconds=20))
        await until(lambda: bool(bench.clock.waiting))
        bench.clock.advance(19.999)
        await turns()
        assert len(bench.source.requested) == 1
        bench.clock.advance(0.001)
        await turns()
        assert len(bench.source.requested) == 2


async def test_a_receive_that_does_not_end_is_seen() -> None:
    async with working(concurrency=2) as bench:
        await until(lambda: bench.source.waiting == 1)
        began_at = bench.clock.monotonic()
        bench.clock.advance(600)
        await turns()
        assert bench.consumer.receive_began_at == began_at
        bench.source.deliver("a")
        await until(lambda: bench.source.requested == [2, 1])
        assert bench.consumer.receive_began_at == began_at + 600_000


async def test_a_second_receiver_does_not_hide_that_the_first_stands_still() -> None:
    async with working(concurrency=1, receivers=2) as bench:
        await until(lambda: bench.source.waiting == 1)
        began_at = bench.clock.monotonic()
        bench.clock.advance(600)
        await turns()
        assert bench.consumer.receive_began_at == began_at


@pytest.mark.parametrize("concurrency", [1, lambda: 1])
async def test_no_receive_is_due_while_all_slots_are_taken(concurrency: object) -> None:
    async with working(concurrency=concurrency) as bench:
        bench.source.deliver("slow")
        await until(lambda: "slow" in bench.gates.running)
        await turns()
        bench.clock.advance(3600)
        assert bench.consumer.receive_began_at is None
        bench.gates.end("slow")
        assert bench.consumer.receive_began_at is None
        await until(lambda: bench.source.waiting == 1)
        assert bench.consumer.receive_began_at == bench.clock.monotonic()


async def test_a_receive_after_a_failed_one_counts_too() -> None:
    async with working() as bench:
        await until(lambda: bench.source.waiting == 1)
        bench.source.errors.append(Unavailable("away"))
        bench.source.deliver("a")
        bench.gates.end("a")
        await until(lambda: not bench.source.errors)
        bench.clock.advance(1)
        await until(lambda: bench.source.waiting == 1)
        assert bench.consumer.receive_began_at == bench.clock.monotonic()


async def test_concurrency_may_change_at_run_time() -> None:
    limit = 1
    async with working(concurrency=lambda: limit) as bench:
        bench.source.deliver("a", "b", "c", "d")
        await until(lambda: bool(bench.gates.running))
        await turns()
        assert bench.gates.running == {"a"}
        limit = 3
        bench.clock.advance(1)
        await until(lambda: bench.gates.running == {"a", "b", "c"})
        limit = 1
        bench.gates.end("a")
        bench.gates.end("b")
        await until(lambda: bench.gates.running == {"c"})
        bench.clock.advance(1)
        await turns()
        assert bench.gates.running == {"c"}


async def test_a_second_receiver_asks_only_for_slots_that_the_first_did_not() -> None:
    async with working(concurrency=5, receivers=2, max_receive=3) as bench:
        await until(lambda: bench.source.waiting == 2)
        assert bench.source.requested == [3, 2]
