"""Which tokens a dequeue answers with, and to which instances it gives nothing."""

from __future__ import annotations

import uuid

import pytest

from airunner.domain.errors import FailedPrecondition
from airunner.domain.job import JobParams
from airunner.domain.requests import DequeueRequest, EnqueueRequest, ReleaseRequest
from airunner.domain.token import TokenSigner
from airunner.fleet.draining import DrainingGate
from airunner.services.composition import Services
from airunner.stores.memory import MemoryStore
from airunner.testing.clock import ManualClock
from tests.support.fleet import FakeRecords

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


async def test_an_instance_that_is_draining_gets_no_job_and_others_are_not_looked_up() -> None:
    clock, records = ManualClock(), FakeRecords()
    gate = DrainingGate(records, clock)
    async with Services(MemoryStore(clock), clock, SIGNER, instance_gate=gate) as services:
        params = JobParams(command="true")
        request = EnqueueRequest(request_id=str(uuid.uuid4()), queue="builds", params=params)
        await services.jobs.enqueue_jobs([request])
        record = (await records.read_instances(["i-1"]))["i-1"]
        await records.mark_draining(record, clock.now())
        with pytest.raises(FailedPrecondition, match="draining"):
            await services.jobs.dequeue_jobs(
                DequeueRequest(queue="builds", instance_id="i-1", wait_seconds=0)
            )
        reads = records.calls.count("read_instances")
        (held,) = await services.jobs.dequeue_jobs(DequeueRequest(queue="builds", wait_seconds=0))
        assert held.job.attempt == 1
        assert records.calls.count("read_instances") == reads
