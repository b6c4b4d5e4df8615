"""Calls that wait: UpdateJob for news of its job, GetJob for its end."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING

import pytest

from airunner.domain.errors import InvalidArgument, NotFound
from airunner.domain.job import JobParams, JobState
from airunner.domain.requests import StreamRequest, UpdateRequest
from airunner.testing.conditions import until
from airunner.testing.conformance.stores.backend import QUEUE, Api
from airunner.testing.factories import make_failure, make_line, make_request

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from airunner.domain.answers import DequeuedJob, HeldJob


def waiting_beat(
    api: Api, held: DequeuedJob, wait_seconds: int = 60, *, watched: bool = False
) -> Coroutine[None, None, HeldJob]:
    return api.jobs.update_job(
        UpdateRequest(
            queue=held.job.queue, task_token=held.task_token, wait_seconds=wait_seconds, watched=watched
        )
    )


class WaitingUpdateConformance:
    async def test_it_extends_at_once_and_answers_after_its_wait(self, api: Api) -> None:
        held = await api.new_claim(visibility_seconds=100)
        await api.advance(50)
        began = api.clock.now()
        call = await api.started(waiting_beat(api, held, 30))
        assert (await api.job(held)).life.visible_until == began + 100_000
        await api.advance(29.9)
        assert not call.done()
        await api.advance(0.1)
        answer = await call
        assert (answer.cancel_requested, answer.watched) == (False, False)
        assert answer.visible_until == began + 100_000

    async def test_it_answers_when_the_job_is_cancelled(self, api: Api) -> None:
        held = await api.new_claim()
        call = await api.started(waiting_beat(api, held))
        await api.jobs.cancel_job(held.job.job_id)
        assert (await call).cancel_requested

    async def test_it_answers_at_once_when_the_job_was_cancelled_before(self, api: Api) -> None:
        held = await api.new_claim()
        await api.jobs.cancel_job(held.job.job_id)
        assert (await waiting_beat(api, held)).cancel_requested

    async def test_it_answers_when_somebody_begins_and_ceases_to_watch(self, api: Api) -> None:
        held = await api.new_claim()
        call = await api.started(waiting_beat(api, held))
        stream = asyncio.create_task(api.read(StreamRequest(job_id=held.job.job_id)))
        assert (await call).watched
        call = await api.started(waiting_beat(api, held, watched=True))
        stream.cancel()
        await asyncio.wait([stream])
        assert not (await call).watched

    async def test_it_answers_at_once_when_the_worker_knows_otherwise(self, api: Api) -> None:
        held = await api.new_claim()
        assert not (await waiting_beat(api, held, watched=True)).watched

    async def test_it_does_not_answer_to_what_the_worker_does_itself(self, api: Api) -> None:
        held = await api.new_claim()
        call = await api.started(waiting_beat(api, held))
        await api.publish(held, make_line(1))
        await api.beat(held)
        await api.advance(1)
        assert not call.done()
        await api.jobs.cancel_job(held.job.job_id)
        await call

    async def test_it_never_waits_beyond_the_visibility(self, api: Api) -> None:
        held = await api.new_claim(visibility_seconds=10)
        call = await api.started(waiting_beat(api, held, 60))
        await api.advance(10)
        assert not (await call).cancel_requested

    async def test_it_ends_with_the_attempt(self, api: Api) -> None:
        held = await api.new_claim()
        call = await api.started(waiting_beat(api, held))
        await api.complete(held)
        with pytest.raises(NotFound):
            await call

    async def test_it_does_not_wait_for_a_superseded_attempt(self, api: Api) -> None:
        held = await api.new_claim(visibility_seconds=10)
        await api.lapse(10)
        await api.claim()
        with pytest.raises(NotFound):
            await waiting_beat(api, held)

    @pytest.mark.parametrize("wait_seconds", [-1, 61])
    async def test_a_wait_out_of_range_is_refused(self, api: Api, wait_seconds: int) -> None:
        held = await api.new_claim()
        with pytest.raises(InvalidArgument):
            await waiting_beat(api, held, wait_seconds)


class WaitingGetConformance:
    async def test_the_life_of_a_job_can_be_read_alone(self, api: Api) -> None:
        store = api.services.store
        held = await api.new_claim(make_request(params=JobParams(command="make", args=("x" * 5_000,))))
        assert await store.get_life(held.job.job_id) == (await store.get_job(held.job.job_id)).life
        await api.complete(held)
        assert await store.get_life(held.job.job_id) == (await store.get_job(held.job.job_id)).life
        with pytest.raises(NotFound):
            await store.get_life(str(uuid.uuid4()))

    async def test_a_job_is_found_among_those_of_some_queues(self, api: Api) -> None:
        store = api.services.store
        job_id = await api.enqueue()
        life = (await store.get_job(job_id, queues=("other", QUEUE))).life
        assert await store.get_life(job_id, queues=(QUEUE,)) == life
        for find in (store.get_job, store.get_life):
            with pytest.raises(NotFound):
                await find(job_id, queues=("other",))

    async def test_it_answers_at_the_end_of_the_job(self, api: Api) -> None:
        held = await api.new_claim()
        call = await api.started(api.jobs.get_job(held.job.job_id, wait_seconds=60))
        await api.publish(held, make_line(1))
        await api.advance(1)
        assert not call.done()
        await api.complete(held, make_failure())
        assert (await call).state is JobState.FAILED

    async def test_it_answers_with_the_job_as_it_is_after_its_wait(self, api: Api) -> None:
        job_id = await api.enqueue()
        call = await api.started(api.jobs.get_job(job_id, wait_seconds=60))
        await api.claim()
        await api.advance(60)
        assert (await call).state is JobState.RUNNING

    async def test_it_answers_at_once_when_the_job_is_over(self, api: Api) -> None:
        held = await api.new_claim()
        await api.complete(held)
        assert (await api.jobs.get_job(held.job.job_id, wait_seconds=60)).state is JobState.COMPLETED

    async def test_it_answers_when_the_job_is_cancelled_or_lost(self, api: Api) -> None:
        if api.capabilities.redelivery_slack_seconds > 10:
            pytest.skip("this store notices a lapse later than any call waits")
        queued = await api.enqueue(queue="other")
        held = await api.new_claim(make_request(max_attempts=1), visibility_seconds=10)
        await api.beat(held)
        calls = [
            await api.started(api.jobs.get_job(job_id, wait_seconds=60))
            for job_id in (queued, held.job.job_id)
        ]
        await api.jobs.cancel_job(queued)
        await api.lapse(10)
        await until(lambda: all(call.done() for call in calls))
        assert [call.result().state for call in calls] == [JobState.CANCELLED, JobState.FAILED]

    @pytest.mark.parametrize("wait_seconds", [-1, 61])
    async def test_a_wait_out_of_range_is_refused(self, api: Api, wait_seconds: int) -> None:
        job_id = await api.enqueue()
        with pytest.raises(InvalidArgument):
            await api.jobs.get_job(job_id, wait_seconds=wait_seconds)
