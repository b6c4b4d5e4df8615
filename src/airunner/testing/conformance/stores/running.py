"""Which jobs run, on which instance, and the ends that somebody else reports for these."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airunner.domain.errors import InvalidArgument, JobNotFound
from airunner.domain.job import JobState
from airunner.domain.requests import DequeueRequest
from airunner.stores.records import RunningJob
from airunner.testing.factories import make_failure, make_success

if TYPE_CHECKING:
    from airunner.domain.answers import DequeuedJob
    from airunner.testing.conformance.stores.backend import Api


class RunningConformance:
    async def test_those_that_run_are_told_with_attempt_and_instance(self, api: Api) -> None:
        await api.enqueue_many(3, queue="one")
        await api.enqueue_many(1, queue="two")
        first, second = await claim_on(api, "one", "i-1"), await claim_on(api, "two", "i-2")
        third = await claim_on(api, "one", "")
        await api.release(second)
        again = await claim_on(api, "two", "i-3")
        expected = [
            RunningJob(first.job.job_id, 1, "i-1"),
            RunningJob(third.job.job_id, 1, ""),
            RunningJob(again.job.job_id, 2, "i-3"),
        ]
        assert sorted(await walk(api), key=lambda job: job.job_id) == sorted(
            expected, key=lambda job: job.job_id
        )

    async def test_what_waits_or_ended_does_not_run_and_what_lapsed_does(self, api: Api) -> None:
        await api.enqueue_many(3)
        done, released, lapsed = [await claim_on(api, "builds", f"i-{number}") for number in range(3)]
        await api.complete(done)
        await api.release(released)
        api.clock.advance(61)
        assert await walk(api) == [RunningJob(lapsed.job.job_id, 1, "i-2")]

    async def test_nothing_runs(self, api: Api) -> None:
        assert await walk(api) == []

    async def test_an_end_that_is_reported_for_the_holder(self, api: Api) -> None:
        await api.enqueue_many(3)
        ended, given_back, kept = [await claim_on(api, "builds", f"i-{number}") for number in range(3)]
        end = api.services.jobs.end_attempt
        result = make_failure()
        assert await end(ended.job.job_id, 1, "i-0", result)
        assert await end(given_back.job.job_id, 0, "i-1", result, give_back=True)
        for attempt, instance_id in ((2, "i-2"), (1, "i-0"), (0, "i-0")):
            assert not await end(kept.job.job_id, attempt, instance_id, result)
            assert not await end(kept.job.job_id, attempt, instance_id, result, give_back=True)
        assert not await end(ended.job.job_id, 1, "i-0", make_success())
        assert not await end(given_back.job.job_id, 1, "i-1", result)
        jobs = [await api.job(held) for held in (ended, given_back, kept)]
        assert [job.state for job in jobs] == [JobState.FAILED, JobState.SCHEDULED, JobState.RUNNING]
        assert jobs[0].life.result == result
        with pytest.raises(JobNotFound):
            await end("018bcfe5-6800-7000-8000-000000000001", 1, "i-0", result)

    async def test_a_cursor_of_somebody_else_is_refused(self, api: Api) -> None:
        with pytest.raises(InvalidArgument):
            await api.services.store.running_jobs("elsewhere")


async def claim_on(api: Api, queue: str, instance_id: str) -> DequeuedJob:
    """Claim the next job of a queue for an instance."""
    request = DequeueRequest(
        queue=queue, instance_id=instance_id, wait_seconds=0, visibility_timeout_seconds=60
    )
    (held,) = await api.jobs.dequeue_jobs(request)
    return held


async def walk(api: Api) -> list[RunningJob]:
    """Return all that run, page by page."""
    store = api.services.store
    page = await store.running_jobs()
    found = list(page.jobs)
    while page.next_cursor:
        page = await store.running_jobs(page.next_cursor)
        found += page.jobs
    return found
