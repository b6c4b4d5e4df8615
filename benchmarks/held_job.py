"""A job in our own hands, to publish for it without a worker."""

from __future__ import annotations

import uuid

from airunner.codec.events import event_to_pb
from airunner.codec.gen.job.v1 import job_pb2 as pb
from airunner.codec.jobs import params_to_pb
from benchmarks.harness import Service
from benchmarks.samples import PARAMS, output_of


async def hold_job(service: Service) -> tuple[str, str]:
    """Enqueue a job and dequeue it; return its id and its task token."""
    queue = f"q-{uuid.uuid4()}"
    params = params_to_pb(PARAMS)
    await service.jobs.enqueue_job(
        pb.EnqueueJobRequest(request_id=str(uuid.uuid4()), queue=queue, job_params=params)
    )
    answer = await service.jobs.dequeue_jobs(pb.DequeueJobsRequest(queue=queue))
    return answer.jobs[0].job.job_id, answer.jobs[0].task_token


def publish_requests(token: str, batches: int) -> list[pb.PublishJobEventBatchRequest]:
    """Return the calls that publish so many batches of 50 lines."""
    return [
        pb.PublishJobEventBatchRequest(task_token=token, events=map(event_to_pb, events))
        for events in output_of(batches)
    ]
