"""Requests to and from the messages of the wire, in pairs: `x_to_pb` and `x_from_pb`.

Those for completions, streams and dead letters are in the modules of these names; those about jobs that are
there in `lookups`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airunner.codec.building import EncodedMessage, refusing, repeated
from airunner.codec.execution import decode_override, execution_to_pb
from airunner.codec.gen.job.v1 import job_pb2 as pb
from airunner.codec.jobs import params_from_pb, write_params
from airunner.domain.requests import Abilities, DequeueRequest, EnqueueRequest, OverviewQuery, UpdateRequest

if TYPE_CHECKING:
    from collections.abc import Sequence


@refusing
def enqueue_to_pb(request: EnqueueRequest) -> EncodedMessage:
    """Return the message of a job to add."""
    message = pb.EnqueueJobRequest(
        request_id=request.request_id,
        queue=request.queue,
        delay_seconds=request.delay_seconds,
        max_attempts=request.max_attempts,
    )
    write_params(message.job_params, request.params)
    if request.execution:
        message.execution_config.CopyFrom(execution_to_pb(request.execution))
    return EncodedMessage(message.SerializeToString())


def enqueue_from_pb(message: pb.EnqueueJobRequest) -> EnqueueRequest:
    """Return a job to add, with its canonical encodings. The message is used up."""
    params = message.job_params
    if params.process_type == pb.PROCESS_TYPE_PIPE:
        # Saying the default and leaving it out are the same request.
        params.ClearField("process_type")
    # Nobody here could tell whether what we do not know of is a secret.
    params.DiscardUnknownFields()
    override = b""
    if message.HasField("execution_config"):
        override = message.execution_config.SerializeToString(deterministic=True)
    return EnqueueRequest(
        request_id=message.request_id,
        queue=message.queue,
        params=params_from_pb(params),
        delay_seconds=message.delay_seconds,
        max_attempts=message.max_attempts,
        execution=decode_override(override) if override else None,
        params_bytes=params.SerializeToString(deterministic=True),
        execution_bytes=override,
    )


def enqueue_batch_to_pb(entries: Sequence[EncodedMessage]) -> EncodedMessage:
    """Return the message of many jobs to add."""
    return EncodedMessage(repeated(pb.EnqueueJobsRequest.JOBS_FIELD_NUMBER, [entry.raw for entry in entries]))


@refusing
def dequeue_to_pb(request: DequeueRequest) -> pb.DequeueJobsRequest:
    """Return the message that asks for jobs to work on."""
    return pb.DequeueJobsRequest(
        queue=request.queue,
        more_queues=request.more_queues,
        max_jobs=request.max_jobs,
        visibility_timeout_seconds=request.visibility_timeout_seconds,
        wait_seconds=request.wait_seconds,
        worker_id=request.worker_id,
        instance_id=request.instance_id,
        first_lease_seconds=request.first_lease_seconds,
        abilities=abilities_to_pb(request.abilities) if request.abilities else None,
    )


def dequeue_from_pb(message: pb.DequeueJobRequest | pb.DequeueJobsRequest) -> DequeueRequest:
    """Return a request for jobs to work on."""
    return DequeueRequest(
        queue=message.queue,
        more_queues=tuple(message.more_queues),
        max_jobs=message.max_jobs,
        visibility_timeout_seconds=message.visibility_timeout_seconds,
        wait_seconds=message.wait_seconds if message.HasField("wait_seconds") else None,
        worker_id=message.worker_id,
        instance_id=message.instance_id,
        first_lease_seconds=message.first_lease_seconds,
        abilities=abilities_from_pb(message.abilities) if message.HasField("abilities") else None,
    )


def abilities_to_pb(abilities: Abilities) -> pb.Abilities:
    """Return the message of what a worker can do."""
    return pb.Abilities(handlers=abilities.handlers, commands=abilities.commands)


def abilities_from_pb(message: pb.Abilities) -> Abilities:
    """Return what a worker can do."""
    return Abilities(handlers=tuple(message.handlers), commands=message.commands)


@refusing
def update_to_pb(request: UpdateRequest) -> pb.UpdateJobRequest:
    """Return the message of a heartbeat."""
    return pb.UpdateJobRequest(
        queue=request.queue,
        task_token=request.task_token,
        visibility_timeout_seconds=request.visibility_timeout_seconds,
        wait_seconds=request.wait_seconds,
        watched=request.watched,
    )


def update_from_pb(message: pb.UpdateJobRequest) -> UpdateRequest:
    """Return a heartbeat."""
    return UpdateRequest(
        queue=message.queue,
        task_token=message.task_token,
        visibility_timeout_seconds=message.visibility_timeout_seconds,
        wait_seconds=message.wait_seconds,
        watched=message.watched,
    )


@refusing
def pause_to_pb(queue: str) -> pb.PauseQueueRequest:
    """Return the message that pauses a queue."""
    return pb.PauseQueueRequest(queue=queue)


@refusing
def resume_to_pb(queue: str) -> pb.ResumeQueueRequest:
    """Return the message that resumes a queue."""
    return pb.ResumeQueueRequest(queue=queue)


def queue_from_pb(message: pb.PauseQueueRequest | pb.ResumeQueueRequest) -> str:
    """Return the queue to pause or to resume."""
    return message.queue


@refusing
def queues_query_to_pb(query: OverviewQuery) -> pb.ListQueuesRequest:
    """Return the message that asks for queues."""
    return pb.ListQueuesRequest(page_size=query.page_size, cursor=query.cursor)


@refusing
def workers_query_to_pb(query: OverviewQuery) -> pb.ListWorkersRequest:
    """Return the message that asks for workers."""
    return pb.ListWorkersRequest(page_size=query.page_size, cursor=query.cursor)


def overview_query_from_pb(message: pb.ListQueuesRequest | pb.ListWorkersRequest) -> OverviewQuery:
    """Return which queues or workers are asked for."""
    return OverviewQuery(page_size=message.page_size, cursor=message.cursor)
