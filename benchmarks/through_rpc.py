"""What goes through the RPC in numbers: enqueueing in batches, publishing, memory."""

from __future__ import annotations

import uuid

from airunner.codec.gen.job.v1 import job_pb2 as pb
from airunner.codec.jobs import params_to_pb
from benchmarks import bare
from benchmarks.callers import BATCHED_JOBS
from benchmarks.harness import ROUNDS, Row, folder, rate_row, resident_bytes, server
from benchmarks.hot_path import carried_out, order_of
from benchmarks.samples import PARAMS

_PARAMS = params_to_pb(PARAMS)


async def run() -> list[Row]:
    """All of them, each with its limit measured in the same minute."""
    return [
        await batched_enqueue(),
        await publishing(),
        await memory(),
    ]


async def batched_enqueue() -> Row:
    """EnqueueJobs from 4 callers, whose calls share commits, against bare commits of as many rows."""
    calls, callers = 200, 4
    measured, limit = [], []
    async with server() as service:
        with folder() as directory:
            for _ in range(ROUNDS):
                limit.append(bare.insert_rate(directory, calls * BATCHED_JOBS, callers * BATCHED_JOBS))
                (load,) = await carried_out(order_of("batched enqueue", service, calls, callers))
                measured.append(BATCHED_JOBS * load.rate)
    return rate_row(
        f"batched enqueue, {BATCHED_JOBS} a call, {callers} callers",
        measured,
        limit,
        units=("jobs", "rows"),
        beside=f"bare sqlite3 at {callers * BATCHED_JOBS} a commit",
        at_least=0.25,
    )


async def publishing() -> Row:
    """Eight publishers of batches of 50 lines, which share commits, against bare commits of eight batches."""
    batches, publishers = 2_400, 8
    measured, limit = [], []
    async with server() as service:
        with folder() as directory:
            for _ in range(ROUNDS):
                limit.append(bare.batch_commit_rate(directory, 1_000, publishers))
                (load,) = await carried_out(order_of("publish", service, batches, publishers))
                measured.append(50 * load.rate)
    return rate_row(
        f"lines published by {publishers}, 50 a batch",
        measured,
        limit,
        units=("lines", "lines"),
        beside=f"bare sqlite3 at {publishers} batches a commit",
        at_least=0.35,
    )


async def memory() -> Row:
    """Resident growth of the server for each queued job."""
    jobs = 50_000
    async with server() as service:
        await service.jobs.enqueue_jobs(_requests(100))
        for _ in range(50):
            await service.jobs.enqueue_jobs(_requests(100))
        before = resident_bytes(service.pid)
        for _ in range(jobs // 100):
            await service.jobs.enqueue_jobs(_requests(100))
        grown = (resident_bytes(service.pid) - before) / jobs
    return Row(
        name="resident memory per queued job",
        measured=f"{grown:,.0f} bytes",
        limit="1,024 bytes",
        ratio=grown / 1024,
        goal="< 1",
        met=grown < 1024,
    )


def _request() -> pb.EnqueueJobRequest:
    return pb.EnqueueJobRequest(request_id=str(uuid.uuid4()), queue="default", job_params=_PARAMS)


def _requests(count: int) -> pb.EnqueueJobsRequest:
    return pb.EnqueueJobsRequest(jobs=[_request() for _ in range(count)])
