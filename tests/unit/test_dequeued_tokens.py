"""Which tokens a dequeue answers with."""

from __future__ import annotations

import uuid

from airunner.domain.job import JobParams
from airunner.domain.requests import DequeueRequest, EnqueueRequest, ReleaseRequest
from airunner.domain.token import TokenSigner
from airunner.services.composition import Services
from airunner.stores.memory import MemoryStore
from airunner.testing.clock import ManualClock

SIGNER = TokenSigner([b"a key of the tests"])


async def test_a_dequeue_that_names_an_instance_gets_a_termination_token_of_each_attempt() -> None:
    clock = ManualClock()
    async with Services(MemoryStore(clock), clock, SIGNER) as services:
        params = JobParams(command="true")
        request = EnqueueRequest(request_id=str(uuid.uuid4()), queue="builds", params=params)
        await services.jobs.enqueue_jobs([request])
        terminations = TokenSigner([b"a key of the tests"]).terminations()
        for attempt in (1, 2):
            demand = DequeueRequest(queue="builds", instance_id="i-1", wait_seconds=0)
            (dequeued,) = await services.jobs.dequeue_jobs(demand)
            job_id, text = dequeued.job.job_id, dequeued.termination_token
            assert terminations.verifies(text, job_id, attempt, "i-1")
            await services.jobs.release_job(ReleaseRequest(task_token=dequeued.task_token))
        (plain,) = await services.jobs.dequeue_jobs(DequeueRequest(queue="builds", wait_seconds=0))
        assert plain.termination_token == ""
