"""Answers that could carry more than a message may have, on a real server and a real connection."""

from __future__ import annotations

import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from airunner.client import AsyncClient
from airunner.codec.gen.job.v1 import job_pb2 as pb
from airunner.codec.gen.job.v1.job_connect import JobServiceClient
from airunner.domain.clock import SystemClock
from airunner.domain.job import JobParams
from airunner.server.asgi import AppOptions
from airunner.services.composition import Services
from airunner.stores.records import Demand
from airunner.stores.sqlite import SqliteStore
from airunner.testing.conformance.stores.backend import QUEUE
from airunner.testing.factories import make_request, make_services
from tests.support.serving import serve

MIB = 1024 * 1024
MESSAGE_BYTES = 4 * MIB
JOBS = 100


PARAMS = JobParams(command="make", metadata={"filling": "x" * (MIB - 100)})
"""Almost all the parameters that a job may have."""


@pytest.fixture
async def services(tmp_path: Path) -> AsyncIterator[Services]:
    clock = SystemClock()
    async with make_services(SqliteStore(tmp_path, clock), clock) as services:
        yield services


async def test_a_hundred_large_jobs_come_in_answers_that_are_not(services: Services) -> None:
    request = pb.DequeueJobsRequest(queue=QUEUE, max_jobs=JOBS, wait_seconds=0)
    claimed: list[str] = []
    async with serve(services, AppOptions(no_auth=True)) as url, AsyncClient(url) as client:
        await client.enqueue_jobs([make_request(QUEUE, params=PARAMS) for _ in range(JOBS)])
        jobs = JobServiceClient(url)
        while (answer := await jobs.dequeue_jobs(request)).jobs:
            assert answer.ByteSize() < MESSAGE_BYTES
            claimed += [one.job.job_id for one in answer.jobs]
    assert len(claimed) == len(set(claimed)) == JOBS


async def test_a_claim_reads_no_more_than_it_answers(services: Services) -> None:
    await services.jobs.enqueue_jobs([make_request(QUEUE, params=PARAMS) for _ in range(20)])
    tracemalloc.start()
    try:
        demand = Demand(queues=(QUEUE,), max_jobs=JOBS, visibility_seconds=60)
        jobs = await services.store.dequeue_jobs(demand)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(jobs) == 3
    assert peak < 4 * MESSAGE_BYTES
