"""Cancelling a job in every state it can be in."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from airunner.domain.errors import InvalidArgument, NotFound
from airunner.domain.job import JobResult, JobState, Outcome
from airunner.testing.factories import make_failure, make_line, make_request, make_success

if TYPE_CHECKING:
    from airunner.testing.conformance.stores.backend import Api


class CancelConformance:
    async def test_a_scheduled_job_is_cancelled_at_once(self, api: Api) -> None:
        job_id = await api.enqueue()
        job = await api.jobs.cancel_job(job_id)
        assert job.state is JobState.CANCELLED
        assert job.result is not None
        assert job.result.outcome is Outcome.CANCELLED
        assert await api.dequeue() == []
        assert await api.jobs.get_job(job_id) == job

    async def test_a_delayed_job_is_cancelled_at_once(self, api: Api) -> None:
        job_id = await api.enqueue(make_request(delay_seconds=10))
        assert (await api.jobs.cancel_job(job_id)).state is JobState.CANCELLED
        await api.advance(10)
        assert await api.dequeue() == []

    async def test_a_job_that_was_given_back_is_cancelled_at_once(self, api: Api) -> None:
        held = await api.new_claim()
        await api.release(held, delay_seconds=10)
        assert (await api.jobs.cancel_job(held.job.job_id)).state is JobState.CANCELLED

    async def test_who_is_bound_to_other_queues_does_not_find_the_job(self, api: Api) -> None:
        job_id, store, now = await api.enqueue(queue="one"), api.services.store, api.clock.now()
        with pytest.raises(NotFound):
            await store.cancel_job(job_id, now, queues={"two", "other"})
        assert (await store.get_job(job_id)).state is JobState.SCHEDULED
        assert (await store.cancel_job(job_id, now, queues={"one", "two"})).state is JobState.CANCELLED

    async def test_a_job_shows_who_cancelled_it_first_and_when(self, api: Api) -> None:
        held = await api.new_claim()
        noon = api.clock.now()
        await api.services.store.cancel_job(held.job.job_id, noon, by="ann")
        await api.advance(1)
        await api.jobs.cancel_job(held.job.job_id)
        for step in (api.beat(held), api.complete(held, make_failure(outcome=Outcome.CANCELLED))):
            life = (await api.job(held)).life
            assert (life.cancelled_by, life.cancelled_at) == ("ann", noon)
            await step
        assert (await api.job(held)).life.cancelled_by == "ann"
        queued = await api.jobs.cancel_job(await api.enqueue())
        assert (queued.life.cancelled_by, queued.life.cancelled_at) == ("anonymous", api.clock.now())

    async def test_a_running_job_is_marked_and_its_holder_is_told(self, api: Api) -> None:
        held = await api.new_claim()
        job = await api.jobs.cancel_job(held.job.job_id)
        assert (job.state, job.life.cancel_requested) == (JobState.RUNNING, True)
        assert (await api.beat(held)).cancel_requested
        assert (await api.publish(held, make_line(1))).cancel_requested

    @pytest.mark.parametrize(
        ("result", "state"),
        [
            (make_failure(outcome=Outcome.CANCELLED), JobState.CANCELLED),
            (make_failure(outcome=Outcome.INTERRUPTED), JobState.CANCELLED),
            (make_failure(outcome=Outcome.FAILURE), JobState.FAILED),
            (make_failure(outcome=Outcome.TIMEOUT), JobState.FAILED),
            (make_success(), JobState.COMPLETED),
        ],
    )
    async def test_the_completion_of_a_cancelled_job(
        self, api: Api, result: JobResult, state: JobState
    ) -> None:
        held = await api.new_claim()
        await api.jobs.cancel_job(held.job.job_id)
        assert await api.complete(held, result) is state
        assert (await api.job(held)).result == result
        # And again, as after a lost answer.
        assert await api.complete(held, result) is state

    async def test_a_cancelled_job_is_never_claimed_again(self, api: Api) -> None:
        held = await api.new_claim(visibility_seconds=10)
        await api.jobs.cancel_job(held.job.job_id)
        api.clock.advance(10 + api.capabilities.redelivery_slack_seconds)
        assert await api.dequeue() == []

    async def test_a_cancelled_job_whose_visibility_lapsed_is_over(self, api: Api) -> None:
        held = await api.new_claim(visibility_seconds=10)
        await api.jobs.cancel_job(held.job.job_id)
        await api.advance(9)
        assert (await api.job(held)).state is JobState.RUNNING
        await api.lapse(1)
        job = await api.job(held)
        assert job.state is JobState.CANCELLED
        assert job.result is not None
        assert job.result.outcome is Outcome.CANCELLED
        with pytest.raises(NotFound):
            await api.complete(held)

    async def test_a_lapsed_job_can_be_cancelled(self, api: Api) -> None:
        held = await api.new_claim(visibility_seconds=10)
        await api.lapse(10)
        await api.jobs.cancel_job(held.job.job_id)
        assert await api.dequeue() == []
        await api.advance(0)
        assert (await api.job(held)).state is JobState.CANCELLED

    async def test_a_job_that_was_offered_again_ends_soon_after_its_cancellation(self, api: Api) -> None:
        """Its holder was lost, others may have it, and nobody comes: it does not wait for them to end."""
        held = await api.new_claim(visibility_seconds=10)
        await api.lapse(10)
        await api.jobs.set_paused("builds", paused=True)
        assert (await api.jobs.cancel_job(held.job.job_id)).state is JobState.RUNNING
        await api.lapse(0)
        assert (await api.job(held)).state is JobState.CANCELLED

    async def test_a_finished_job_is_returned_unchanged(self, api: Api) -> None:
        for result in (make_success(), make_failure()):
            held = await api.new_claim()
            await api.complete(held, result)
            before = await api.job(held)
            await api.advance(1)
            assert await api.jobs.cancel_job(held.job.job_id) == before

    async def test_cancelling_again_changes_nothing(self, api: Api) -> None:
        held = await api.new_claim()
        queued = await api.enqueue()
        first = [await api.jobs.cancel_job(job_id) for job_id in (held.job.job_id, queued)]
        await api.advance(1)
        assert [await api.jobs.cancel_job(job_id) for job_id in (held.job.job_id, queued)] == first

    async def test_an_unknown_job_cannot_be_cancelled(self, api: Api) -> None:
        with pytest.raises(NotFound):
            await api.jobs.cancel_job(str(uuid.uuid4()))
        with pytest.raises(InvalidArgument):
            await api.jobs.cancel_job("67890")
