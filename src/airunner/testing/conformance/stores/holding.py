"""Holding a job: visibility, its extension and lapse, and the fence around an attempt."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airunner.domain.errors import InvalidArgument, NotFound
from airunner.domain.job import JobParams, JobState, Outcome
from airunner.domain.requests import UpdateRequest
from airunner.testing.factories import make_line, make_request, make_success

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from airunner.domain.answers import DequeuedJob
    from airunner.testing.conformance.stores.backend import Api

HOUR = 3600
YEAR = 365 * 24 * HOUR


async def publish(api: Api, held: DequeuedJob) -> object:
    return await api.publish(held, make_line(1))


async def beat(api: Api, held: DequeuedJob) -> object:
    return await api.beat(held)


async def complete(api: Api, held: DequeuedJob) -> object:
    return await api.complete(held, make_success(), make_line(1))


async def release(api: Api, held: DequeuedJob) -> object:
    return await api.release(held, make_line(1), error="late")


every_call = pytest.mark.parametrize("call", [publish, beat, complete, release])


class VisibilityConformance:
    async def test_a_held_job_is_invisible_until_its_visibility_lapses(self, api: Api) -> None:
        held = await api.new_claim(visibility_seconds=10)
        await api.advance(9.999)
        assert await api.dequeue() == []
        await api.lapse(0.001)
        again = await api.claim()
        assert (again.job.job_id, again.job.attempt) == (held.job.job_id, 2)

    async def test_a_heartbeat_gives_the_visibility_asked_for_at_dequeue(self, api: Api) -> None:
        held = await api.new_claim(visibility_seconds=10)
        await api.advance(9)
        answer = await api.beat(held)
        assert answer.visible_until == api.clock.now() + 10_000
        assert (answer.cancel_requested, answer.watched) == (False, False)
        await api.advance(9)
        assert await api.dequeue() == []

    async def test_a_heartbeat_may_ask_for_more_or_less(self, api: Api) -> None:
        held = await api.new_claim(visibility_seconds=10)
        assert (await api.beat(held, 100)).visible_until == api.clock.now() + 100_000
        assert (await api.beat(held)).visible_until == api.clock.now() + 100_000
        await api.beat(held, 1)
        await api.lapse(1)
        assert (await api.claim()).job.attempt == 2

    async def test_a_lapse_writes_nothing(self, api: Api) -> None:
        held = await api.new_claim(visibility_seconds=10)
        before = await api.job(held)
        await api.advance(1000)
        assert await api.job(held) == before
        assert before.state is JobState.RUNNING

    async def test_a_lapsed_attempt_may_heartbeat_until_another_dequeue(self, api: Api) -> None:
        held = await api.new_claim(visibility_seconds=10)
        await api.advance(60)
        assert (await api.beat(held)).visible_until == api.clock.now() + 10_000
        assert await api.dequeue() == []

    async def test_a_lapsed_attempt_may_publish_and_complete_until_another_dequeue(self, api: Api) -> None:
        held = await api.new_claim(visibility_seconds=10)
        await api.advance(60)
        await api.publish(held, make_line(1))
        assert await api.complete(held) is JobState.COMPLETED
        assert await api.dequeue() == []

    async def test_a_job_whose_last_try_lapsed_is_lost(self, api: Api) -> None:
        await api.beat(await api.new_claim(make_request(max_attempts=2), visibility_seconds=10))
        await api.lapse(10)
        held = await api.claim(visibility_seconds=10)
        assert held.job.attempt == 2
        await api.publish(held, make_line(1))
        await api.lapse(10)
        job = await api.job(held)
        assert job.state is JobState.FAILED
        assert job.result is not None
        assert (job.result.outcome, job.result.success) == (Outcome.LOST, False)
        assert await api.dequeue() == []

    async def test_the_last_try_is_not_lost_before_its_lapse(self, api: Api) -> None:
        held = await api.new_claim(make_request(max_attempts=1), visibility_seconds=10)
        await api.advance(9.999)
        assert (await api.job(held)).state is JobState.RUNNING
        await api.beat(held)
        await api.advance(9.999)
        assert await api.complete(held) is JobState.COMPLETED

    async def test_a_lost_job_is_refused_to_its_last_holder(self, api: Api) -> None:
        held = await api.new_claim(make_request(max_attempts=1), visibility_seconds=10)
        await api.beat(held)
        await api.lapse(10)
        with pytest.raises(NotFound):
            await api.complete(held)

    async def test_a_visibility_that_a_wrong_clock_gave_is_brought_back(self, api: Api) -> None:
        await api.enqueue()
        api.clock.step(5 * YEAR)
        held = await api.claim(visibility_seconds=10)
        api.clock.step(-5 * YEAR)
        await api.advance(0)
        assert (await api.job(held)).life.visible_until == api.clock.now() + 10_000
        assert await api.dequeue() == []
        await api.lapse(10)
        assert (await api.claim()).job.attempt == 2

    @pytest.mark.parametrize("seconds", [-1, 43_201])
    async def test_a_visibility_out_of_range_is_refused(self, api: Api, seconds: int) -> None:
        held = await api.new_claim()
        with pytest.raises(InvalidArgument):
            await api.beat(held, seconds)
        assert (await api.beat(held, 43_200)).visible_until == api.clock.now() + 43_200_000


class FirstLeaseConformance:
    async def test_a_claim_lapses_with_its_first_lease_unless_its_holder_beats(self, api: Api) -> None:
        await api.enqueue_many(2)
        silent, alive = await api.dequeue(max_jobs=2, visibility_seconds=300, first_lease_seconds=20)
        assert silent.job.life.visible_until == api.clock.now() + 20_000
        assert (await api.beat(alive)).visible_until == api.clock.now() + 300_000
        await api.advance(19.999)
        assert await api.dequeue() == []
        await api.lapse(0.001)
        again = await api.claim()
        assert (again.job.job_id, again.job.attempt) == (silent.job.job_id, 2)
        assert (again.job.life.visibility_seconds, again.job.life.tries_left) == (60, 2)
        assert await api.dequeue() == []

    async def test_a_first_lease_is_never_longer_than_the_visibility(self, api: Api) -> None:
        await api.enqueue()
        (held,) = await api.dequeue(visibility_seconds=10, first_lease_seconds=30)
        assert held.job.life.visible_until == api.clock.now() + 10_000

    @pytest.mark.parametrize("seconds", [-1, 43_201])
    async def test_a_first_lease_out_of_range_is_refused(self, api: Api, seconds: int) -> None:
        await api.enqueue()
        with pytest.raises(InvalidArgument):
            await api.dequeue(first_lease_seconds=seconds)
        assert len(await api.dequeue(first_lease_seconds=43_200)) == 1

    async def test_a_lapse_without_a_sign_costs_no_try_twice_in_a_row(self, api: Api) -> None:
        held = await api.new_claim(make_request(max_attempts=1), visibility_seconds=10)
        for attempt in (2, 3):
            await api.lapse(10)
            held = await api.claim(visibility_seconds=10)
            assert (held.job.attempt, held.job.life.handed_back) == (attempt, attempt - 1)
        await api.lapse(10)
        job = await api.job(held)
        assert job.result is not None
        assert (job.state, job.result.outcome) == (JobState.FAILED, Outcome.LOST)
        assert await api.dequeue() == []

    @pytest.mark.parametrize("sign", [beat, publish])
    async def test_a_lapse_after_a_sign_costs_a_try_and_others_are_free_again(
        self, api: Api, sign: Callable[[Api, DequeuedJob], Awaitable[object]]
    ) -> None:
        held = await api.new_claim(make_request(max_attempts=2), visibility_seconds=10)
        for attempt in (2, 3, 4, 5):
            await api.lapse(10)
            held = await api.claim(visibility_seconds=10)
            assert held.job.attempt == attempt
            if attempt == 3:
                await sign(api, held)
        # Attempt 3 gave a sign; 1 and 2 before it and 4 after it did not.
        assert (held.job.life.handed_back, held.job.life.tries_left) == (3, 0)
        await sign(api, held)
        await api.lapse(10)
        assert (await api.job(held)).state is JobState.FAILED

    async def test_the_first_sign_of_a_last_try_that_comes_too_late_ends_the_job(self, api: Api) -> None:
        """Without it the lapse was free: the job was put out again, and nobody may have come for it yet."""
        held = await api.new_claim(make_request(max_attempts=1), visibility_seconds=10)
        await api.lapse(10)
        await publish(api, held)
        await api.services.maintenance.run_once()
        job = await api.job(held)
        assert job.result is not None
        assert (job.state, job.result.outcome) == (JobState.FAILED, Outcome.LOST)


class LongLivesConformance:
    async def test_a_job_of_36_hours_stays_with_its_holder(self, api: Api) -> None:
        held = await api.new_claim(visibility_seconds=4 * HOUR)
        for beats in range(1, 13):
            await api.advance(3 * HOUR)
            await api.publish(held, make_line(beats, at=api.clock.now()))
            assert (await api.beat(held)).visible_until == api.clock.now() + 4 * HOUR * 1000
            assert await api.dequeue() == []
        assert await api.complete(held, make_success(final_sequence=12)) is JobState.COMPLETED
        job = await api.job(held)
        assert (job.attempt, job.life.handed_back) == (1, 0)
        assert await api.stored(held.job.job_id) == [(1, sequence) for sequence in range(1, 13)]

    async def test_a_backlog_of_15_days_is_done(self, api: Api) -> None:
        """Longer than any message of SQS lives, and than the events and results of jobs that have ended."""
        params = JobParams(command="make", environment={"PAD": "x" * 5_000})
        added = [await api.enqueue(make_request(params=params)) for _ in range(3)]
        for _ in range(5):
            await api.advance(3 * 24 * HOUR)
        held = [await api.claim() for _ in added]
        claimed = [one.job.job_id for one in held]
        if api.capabilities.strict_fifo:
            assert claimed == added
        assert sorted(claimed) == sorted(added)
        for one in held:
            assert (one.job.attempt, one.job.params) == (1, params)
            await api.publish(one, make_line(1, at=api.clock.now()))
            assert await api.complete(one) is JobState.COMPLETED
            assert await api.stored(one.job.job_id) == [(1, 1)]


class FencingConformance:
    @every_call
    async def test_a_superseded_attempt_is_told_not_found_and_changes_nothing(
        self, api: Api, call: Callable[[Api, DequeuedJob], Awaitable[object]]
    ) -> None:
        first = await api.new_claim(visibility_seconds=10)
        await api.lapse(10)
        second = await api.claim()
        before = await api.job(second)
        with pytest.raises(NotFound):
            await call(api, first)
        assert await api.job(second) == before
        assert await api.stored(second.job.job_id) == []
        await api.publish(second, make_line(1))
        assert await api.complete(second) is JobState.COMPLETED

    @every_call
    async def test_a_released_attempt_is_over(
        self, api: Api, call: Callable[[Api, DequeuedJob], Awaitable[object]]
    ) -> None:
        held = await api.new_claim()
        await api.release(held)
        with pytest.raises(NotFound):
            await call(api, held)
        assert (await api.job(held)).state is JobState.SCHEDULED

    @every_call
    async def test_the_attempt_of_a_finished_job_is_over(
        self, api: Api, call: Callable[[Api, DequeuedJob], Awaitable[object]]
    ) -> None:
        first = await api.new_claim()
        await api.release(first)
        second = await api.claim()
        await api.complete(second)
        with pytest.raises(NotFound):
            await call(api, first)

    @every_call
    async def test_an_altered_token_is_an_invalid_argument(
        self, api: Api, call: Callable[[Api, DequeuedJob], Awaitable[object]]
    ) -> None:
        held = await api.new_claim()
        text = held.task_token
        swapped = text[:10] + ("A" if text[10] != "A" else "B") + text[11:]
        for token in (swapped, text[:-1], text + "A", text.upper(), "", "v1."):
            altered = type(held)(job=held.job, task_token=token)
            with pytest.raises(InvalidArgument):
                await call(api, altered)
        assert (await api.job(held)).life.last_sequence == 0

    async def test_a_heartbeat_must_name_the_queue_of_its_job(self, api: Api) -> None:
        held = await api.new_claim()
        with pytest.raises(InvalidArgument):
            await api.jobs.update_job(UpdateRequest(queue="other", task_token=held.task_token))

    async def test_attempts_rise_and_no_number_is_used_twice(self, api: Api) -> None:
        await api.enqueue(make_request(max_attempts=5))
        attempts = []
        for round_ in range(6):
            held = await api.claim(visibility_seconds=10)
            attempts.append(held.job.attempt)
            if round_ % 2:
                await api.release(held, unstarted=True)
            else:
                await api.lapse(10)
        assert attempts == [1, 2, 3, 4, 5, 6]
