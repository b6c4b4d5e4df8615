"""Dequeueing: order, long polls, several queues, pauses, and calls that are given up."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from airunner.domain.errors import InvalidArgument
from airunner.domain.job import JobParams, JobState
from airunner.domain.requests import DequeueRequest
from airunner.testing.conditions import until
from airunner.testing.factories import make_request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airunner.domain.answers import DequeuedJob
    from airunner.testing.conformance.stores.backend import Api


# Each with a megabyte of parameters.
LARGE_JOBS_AT_ONCE = 4


def ids(held: Sequence[DequeuedJob]) -> list[str]:
    return [one.job.job_id for one in held]


class DequeueConformance:
    async def test_a_claim_begins_the_first_attempt(self, api: Api) -> None:
        job_id = await api.enqueue()
        (held,) = await api.jobs.dequeue_jobs(
            DequeueRequest(
                queue="builds",
                visibility_timeout_seconds=45,
                wait_seconds=0,
                worker_id="worker-1",
                instance_id="i-1",
            )
        )
        life = held.job.life
        assert (held.job.job_id, held.job.attempt, held.job.state) == (job_id, 1, JobState.RUNNING)
        assert (life.worker_id, life.instance_id) == ("worker-1", "i-1")
        assert life.visible_until == api.clock.now() + 45_000
        assert (await api.jobs.get_job(job_id)).life.visible_until == life.visible_until

    async def test_the_default_visibility_is_300_seconds(self, api: Api) -> None:
        held = await api.new_claim(visibility_seconds=0)
        assert held.job.life.visible_until == api.clock.now() + 300_000

    async def test_jobs_come_in_the_order_of_their_enqueueing(self, api: Api) -> None:
        added = await api.enqueue_many(20)
        claimed = [(await api.claim()).job.job_id for _ in range(20)]
        if api.capabilities.strict_fifo:
            assert claimed == added
        assert sorted(claimed) == sorted(added)

    async def test_a_redelivered_job_keeps_its_place(self, api: Api) -> None:
        if not api.capabilities.strict_fifo:
            pytest.skip("this store delivers in best-effort order")
        added = await api.enqueue_many(4)
        lapsing, released = await api.dequeue(max_jobs=2, visibility_seconds=10)
        await api.release(released)
        await api.lapse(10)
        assert lapsing.job.job_id == added[0]
        assert ids(await api.dequeue(max_jobs=10)) == added

    async def test_a_delayed_job_keeps_its_place_once_it_is_due(self, api: Api) -> None:
        if not api.capabilities.strict_fifo:
            pytest.skip("this store delivers in best-effort order")
        delayed = await api.enqueue(make_request(delay_seconds=5))
        later = await api.enqueue()
        await api.advance(5)
        assert ids(await api.dequeue(max_jobs=10)) == [delayed, later]

    async def test_no_more_jobs_than_wanted_and_none_twice(self, api: Api) -> None:
        added = await api.enqueue_many(5)
        first, second, third = [await api.dequeue(max_jobs=2) for _ in range(3)]
        assert [len(first), len(second), len(third)] == [2, 2, 1]
        assert sorted(ids([*first, *second, *third])) == sorted(added)
        assert await api.dequeue() == []

    async def test_racing_calls_share_the_jobs_without_overlap(self, api: Api) -> None:
        added = await api.enqueue_many(30)
        answers = await asyncio.gather(*(api.dequeue(max_jobs=2) for _ in range(20)))
        claimed = [job_id for answer in answers for job_id in ids(answer)]
        assert sorted(claimed) == sorted(added)

    async def test_an_answer_stays_below_4_mib(self, api: Api) -> None:
        added = await self.enqueue_large(api, 6)
        answers: list[Sequence[DequeuedJob]] = []
        while held := await api.dequeue(max_jobs=100):
            answers.append(held)
            # Nobody holds what was not answered.
            running = sum(map(len, answers))
            assert [(queue.scheduled, queue.running) for queue in await api.jobs.list_queues()] == [
                (6 - running, running)
            ]
        assert max(map(len, answers)) <= LARGE_JOBS_AT_ONCE
        assert sorted(job_id for answer in answers for job_id in ids(answer)) == sorted(added)
        assert {one.job.attempt for answer in answers for one in answer} == {1}

    async def test_what_a_waiting_call_gets_stays_below_4_mib(self, api: Api) -> None:
        await api.jobs.set_paused("builds", paused=True)
        added = await self.enqueue_large(api, 6)
        calls = [await api.started(api.dequeue(max_jobs=100, wait_seconds=20)) for _ in range(3)]
        await api.jobs.set_paused("builds", paused=False)
        await until(lambda: sum(len(call.result()) for call in calls if call.done()) == len(added))
        answers = [await call for call in calls if call.done()]
        assert max(map(len, answers)) <= LARGE_JOBS_AT_ONCE
        assert sorted(job_id for answer in answers for job_id in ids(answer)) == sorted(added)
        for call in calls:
            call.cancel()
        await asyncio.wait(calls)

    async def enqueue_large(self, api: Api, count: int) -> list[str]:
        params = JobParams(command="make", metadata={"filling": "x" * 1_000_000})
        return [await api.enqueue(make_request(params=params)) for _ in range(count)]

    async def test_queues_are_apart(self, api: Api) -> None:
        await api.enqueue(queue="one")
        assert await api.dequeue("two") == []

    async def test_several_queues_are_claimed_in_strict_order(self, api: Api) -> None:
        low = await api.enqueue(queue="low")
        high = await api.enqueue_many(2, queue="high")
        more = ("low", "none")
        assert ids(await api.dequeue("high", more_queues=more, max_jobs=10)) == high
        assert ids(await api.dequeue("high", more_queues=more, max_jobs=10)) == [low]
        assert await api.dequeue("high", more_queues=more) == []

    async def test_an_empty_queue_answers_after_the_wait(self, api: Api) -> None:
        call = await api.started(api.dequeue(wait_seconds=7))
        await api.advance(6.9)
        assert not call.done()
        await api.advance(0.1)
        assert await call == []

    async def test_the_default_wait_is_5_seconds(self, api: Api) -> None:
        call = await api.started(api.jobs.dequeue_jobs(DequeueRequest(queue="builds")))
        await api.advance(5)
        assert await call == []

    async def test_a_waiting_call_is_woken_by_an_enqueue(self, api: Api) -> None:
        call = await api.started(api.dequeue(wait_seconds=20))
        job_id = await api.enqueue()
        assert ids(await call) == [job_id]

    async def test_a_waiting_call_takes_what_one_enqueue_brings(self, api: Api) -> None:
        call = await api.started(api.dequeue(wait_seconds=20, max_jobs=3))
        await api.jobs.enqueue_jobs([make_request() for _ in range(5)])
        assert len(await call) == 3

    async def test_a_waiting_call_is_woken_when_a_job_falls_due(self, api: Api) -> None:
        job_id = await api.enqueue(make_request(delay_seconds=2))
        call = await api.started(api.dequeue(wait_seconds=20))
        await api.advance(1)
        assert not call.done()
        await api.advance(1)
        assert ids(await call) == [job_id]

    async def test_a_waiting_call_is_woken_by_a_later_job_that_falls_due_earlier(self, api: Api) -> None:
        await api.enqueue(make_request(delay_seconds=15))
        call = await api.started(api.dequeue(wait_seconds=20))
        job_id = await api.enqueue(make_request(delay_seconds=2))
        await api.advance(2)
        assert ids(await call) == [job_id]

    async def test_a_waiting_call_is_woken_when_a_visibility_lapses(self, api: Api) -> None:
        if api.capabilities.redelivery_slack_seconds > 10:
            pytest.skip("this store notices a lapse later than any call waits")
        held = await api.new_claim(visibility_seconds=10)
        call = await api.started(api.dequeue(wait_seconds=20))
        await api.advance(9)
        assert not call.done()
        await api.lapse(1)
        (again,) = await call
        assert (again.job.job_id, again.job.attempt) == (held.job.job_id, 2)

    async def test_a_waiting_call_is_not_woken_by_a_visibility_that_was_extended(self, api: Api) -> None:
        if api.capabilities.redelivery_slack_seconds > 10:
            pytest.skip("this store notices a lapse later than any call waits")
        held = await api.new_claim(visibility_seconds=10)
        call = await api.started(api.dequeue(wait_seconds=20))
        await api.advance(9)
        await api.beat(held)
        await api.advance(9)
        assert not call.done()
        await api.lapse(1)
        assert ids(await call) == [held.job.job_id]

    async def test_a_waiting_call_is_woken_by_a_release(self, api: Api) -> None:
        held = await api.new_claim()
        call = await api.started(api.dequeue(wait_seconds=20))
        await api.release(held)
        assert ids(await call) == [held.job.job_id]

    async def test_a_waiting_call_is_woken_by_any_of_its_queues(self, api: Api) -> None:
        call = await api.started(api.dequeue("one", more_queues=("two", "three"), wait_seconds=20))
        job_id = await api.enqueue(queue="three")
        assert ids(await call) == [job_id]

    async def test_waiting_calls_are_served_in_the_order_of_their_arrival(self, api: Api) -> None:
        calls = [await api.started(api.dequeue(wait_seconds=20)) for _ in range(3)]
        for call in calls:
            job_id = await api.enqueue()
            assert ids(await call) == [job_id]
            assert sum(other.done() for other in calls) == calls.index(call) + 1

    async def test_one_enqueue_serves_several_waiting_calls(self, api: Api) -> None:
        calls = [await api.started(api.dequeue(wait_seconds=20)) for _ in range(3)]
        await api.jobs.enqueue_jobs([make_request() for _ in range(2)])
        await until(lambda: sum(call.done() for call in calls) == 2)
        assert not calls[2].done()
        await api.enqueue()
        await asyncio.gather(*calls)

    async def test_a_call_that_was_given_up_costs_nothing(self, api: Api) -> None:
        call = await api.started(api.dequeue(wait_seconds=20))
        call.cancel()
        await asyncio.wait([call])
        # Until the server knows of it, a job may be sent to nobody; that is what a first lease is for.
        await until(lambda: api.services.dispatcher.waiting == 0)
        job_id = await api.enqueue()
        (held,) = await api.dequeue(wait_seconds=20)
        assert held.job.job_id == job_id
        assert held.job.attempt - held.job.life.handed_back == 1

    async def test_a_paused_queue_gives_nothing(self, api: Api) -> None:
        await api.enqueue()
        await api.jobs.set_paused("builds", paused=True)
        assert await api.dequeue() == []
        await api.jobs.set_paused("builds", paused=False)
        assert len(await api.dequeue()) == 1

    async def test_a_paused_queue_takes_jobs_and_gives_nothing_to_who_waits(self, api: Api) -> None:
        await api.jobs.set_paused("builds", paused=True)
        call = await api.started(api.dequeue(wait_seconds=20))
        job_id = await api.enqueue()
        await api.advance(1)
        assert not call.done()
        await api.jobs.set_paused("builds", paused=False)
        assert ids(await call) == [job_id]

    async def test_a_job_that_falls_due_in_a_paused_queue_waits_for_the_resume(self, api: Api) -> None:
        job_id = await api.enqueue(make_request(delay_seconds=2))
        await api.jobs.set_paused("builds", paused=True)
        call = await api.started(api.dequeue(wait_seconds=20))
        await api.advance(10)
        assert not call.done()
        await api.jobs.set_paused("builds", paused=False)
        assert ids(await call) == [job_id]

    async def test_a_pause_leaves_other_queues_and_held_jobs_alone(self, api: Api) -> None:
        held = await api.new_claim()
        other = await api.enqueue(queue="other")
        await api.jobs.set_paused("builds", paused=True)
        assert ids(await api.dequeue("builds", more_queues=("other",))) == [other]
        await api.beat(held)
        assert await api.complete(held) is JobState.COMPLETED

    @pytest.mark.parametrize(
        "request_",
        [
            DequeueRequest(queue="builds", max_jobs=100, wait_seconds=0),
            DequeueRequest(queue="builds", visibility_timeout_seconds=43_200, wait_seconds=0),
            DequeueRequest(queue="builds", more_queues=[f"q{n}" for n in range(20)], wait_seconds=0),
            DequeueRequest(queue="builds", worker_id="w" * 256, wait_seconds=0),
        ],
    )
    async def test_the_limits_themselves_are_accepted(self, api: Api, request_: DequeueRequest) -> None:
        assert await api.jobs.dequeue_jobs(request_) == []

    @pytest.mark.parametrize(
        "request_",
        [
            DequeueRequest(queue=""),
            DequeueRequest(queue="a b"),
            DequeueRequest(queue="builds", more_queues=("",)),
            DequeueRequest(queue="builds", more_queues=[f"q{n}" for n in range(21)]),
            DequeueRequest(queue="builds", max_jobs=-1),
            DequeueRequest(queue="builds", max_jobs=101),
            DequeueRequest(queue="builds", visibility_timeout_seconds=-1),
            DequeueRequest(queue="builds", visibility_timeout_seconds=43_201),
            DequeueRequest(queue="builds", wait_seconds=-1),
            DequeueRequest(queue="builds", wait_seconds=21),
            DequeueRequest(queue="builds", worker_id="w" * 257),
            DequeueRequest(queue="builds", instance_id="i" * 257),
        ],
    )
    async def test_what_is_out_of_range_is_refused(self, api: Api, request_: DequeueRequest) -> None:
        with pytest.raises(InvalidArgument):
            await api.jobs.dequeue_jobs(request_)
