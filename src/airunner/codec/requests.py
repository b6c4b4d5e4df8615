"""Requests and answers of the client, to and from the messages of the wire."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from airunner.codec.errors import from_entry
from airunner.codec.events import event_to_packed_pb
from airunner.codec.gen.job.v1 import job_pb2 as pb
from airunner.codec.instants import instant
from airunner.codec.jobs import (
    JobReader,
    enum_from_pb,
    execution_to_pb,
    job_from_pb,
    params_to_pb,
    result_to_pb,
    to_wire,
)
from airunner.domain.answers import DequeuedJob, Enqueued, HeldJob, JobPage, Published, QueueStats, WorkerSeen
from airunner.domain.errors import InvalidArgument
from airunner.domain.job import JobState

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from airunner.domain.errors import AirunnerError
    from airunner.domain.event import Event
    from airunner.domain.requests import (
        CompleteRequest,
        DequeueRequest,
        EnqueueRequest,
        JobQuery,
        ReleaseRequest,
        StreamRequest,
        UpdateRequest,
    )

P = ParamSpec("P")
M = TypeVar("M")


def refusing(build: Callable[P, M]) -> Callable[P, M]:
    """Let what does not fit into a message be refused as the server would refuse it."""

    @functools.wraps(build)
    def built(*args: P.args, **kwargs: P.kwargs) -> M:
        try:
            return build(*args, **kwargs)
        except (ValueError, OverflowError) as error:
            raise InvalidArgument(str(error)) from None

    return built


@refusing
def enqueue_to_pb(request: EnqueueRequest) -> pb.EnqueueJobRequest:
    """Return the message of a job to add."""
    return pb.EnqueueJobRequest(
        request_id=request.request_id,
        queue=request.queue,
        job_params=params_to_pb(request.params),
        delay_seconds=request.delay_seconds,
        max_attempts=request.max_attempts,
        execution_config=execution_to_pb(request.execution) if request.execution else None,
    )


@refusing
def dequeue_to_pb(request: DequeueRequest) -> pb.DequeueJobsRequest:
    """Return the message of a wish for jobs."""
    return pb.DequeueJobsRequest(
        queue=request.queue,
        more_queues=request.more_queues,
        max_jobs=request.max_jobs,
        visibility_timeout_seconds=request.visibility_timeout_seconds,
        wait_seconds=request.wait_seconds,
        worker_id=request.worker_id,
        instance_id=request.instance_id,
    )


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


class CompletionWriter:
    """Writes the completions of one call. Those that share a result and events are alike but for their job.

    They are told apart by identity, so the requests must outlive the writer.
    """

    def __init__(self) -> None:
        self._written: dict[tuple[int, int], pb.CompleteJobRequest] = {}

    def write(self, request: CompleteRequest) -> pb.CompleteJobRequest:
        """Return the message of a completion."""
        kind = id(request.result), id(request.events)
        written = self._written.get(kind)
        if written is None:
            message = self._written[kind] = _complete_to_pb(request)
            return message
        message = pb.CompleteJobRequest()
        message.CopyFrom(written)
        message.task_token = request.task_token
        message.job_result.job_id = request.job_id
        return message


@refusing
def _complete_to_pb(request: CompleteRequest) -> pb.CompleteJobRequest:
    return pb.CompleteJobRequest(
        task_token=request.task_token,
        job_result=result_to_pb(request.result, request.job_id),
        events=map(event_to_packed_pb, request.events),
    )


@refusing
def release_to_pb(request: ReleaseRequest) -> pb.ReleaseJobRequest:
    """Return the message of an attempt given back."""
    return pb.ReleaseJobRequest(
        task_token=request.task_token,
        delay_seconds=request.delay_seconds,
        unstarted=request.unstarted,
        events=map(event_to_packed_pb, request.events),
        error_message=request.error,
    )


@refusing
def publish_to_pb(task_token: str, events: Sequence[Event]) -> pb.PublishJobEventBatchRequest:
    """Return the message of events to append."""
    return pb.PublishJobEventBatchRequest(task_token=task_token, events=map(event_to_packed_pb, events))


@refusing
def get_to_pb(job_id: str, wait_seconds: int, *, want_payload_urls: bool = False) -> pb.GetJobRequest:
    """Return the message that asks for a job."""
    return pb.GetJobRequest(job_id=job_id, wait_seconds=wait_seconds, want_payload_urls=want_payload_urls)


@refusing
def query_to_pb(query: JobQuery) -> pb.ListJobsRequest:
    """Return the message of a query; with a cursor, the first page is no page at all."""
    return pb.ListJobsRequest(
        queue=query.queue,
        state=to_wire(query.state) if query.state else pb.JOB_STATE_UNSPECIFIED,
        page=0 if query.cursor and query.page == 1 else query.page,
        page_size=query.page_size,
        cursor=query.cursor,
    )


@refusing
def stream_to_pb(request: StreamRequest) -> pb.StreamJobEventBatchesRequest:
    """Return the message that asks for stored batches."""
    return pb.StreamJobEventBatchesRequest(
        job_id=request.job_id,
        from_sequence=request.from_sequence,
        from_timestamp=request.from_timestamp,
        event_filter=map(to_wire, sorted(request.event_filter)),
        attempt=request.attempt,
        cursor=request.cursor,
        no_follow=not request.follow,
        accept_encodings=[pb.BATCH_ENCODING_ZSTD],
    )


def enqueued_from_pb(message: pb.EnqueueJobResponse) -> Enqueued:
    """Return the job that an enqueue made."""
    return Enqueued(
        job_id=message.job_id,
        created_at=instant(message.created_at, "created_at"),
        state=state_from_pb(message.state),
    )


def enqueue_outcome(message: pb.EnqueueJobOutcome) -> Enqueued | AirunnerError:
    """Return what became of one entry of a batch."""
    return from_entry(message.error) if message.HasField("error") else enqueued_from_pb(message.job)


def complete_outcome(message: pb.CompleteJobOutcome) -> JobState | AirunnerError:
    """Return what became of one entry of a batch."""
    if message.HasField("error"):
        return from_entry(message.error)
    return state_from_pb(message.completed.state)


def dequeued_from_pb(reply: pb.DequeueJobsResponse) -> list[DequeuedJob]:
    """Return jobs in a worker's hands. The reply is used up."""
    reader = JobReader()
    return [DequeuedJob(job=reader.read(held.job), task_token=held.task_token) for held in reply.jobs]


def held_from_pb(message: pb.UpdateJobResponse) -> HeldJob:
    """Return what a holder is told."""
    return HeldJob(
        cancel_requested=message.cancel_requested,
        watched=message.watched,
        visible_until=instant(message.visible_until, "visible_until"),
    )


def published_from_pb(message: pb.PublishJobEventBatchResponse) -> Published:
    """Return what a publisher is told."""
    return Published(
        next_sequence=message.next_sequence,
        cancel_requested=message.cancel_requested,
        watched=message.watched,
    )


def page_from_pb(message: pb.ListJobsResponse) -> JobPage:
    """Return a page of jobs."""
    return JobPage(
        jobs=list(map(job_from_pb, message.jobs)),
        last_page=message.last_page,
        next_cursor=message.next_cursor,
    )


def queue_from_pb(message: pb.Queue) -> QueueStats:
    """Return a queue that has been used."""
    return QueueStats(
        name=message.name,
        paused=message.paused,
        scheduled=message.scheduled,
        running=message.running,
        oldest_scheduled_at=instant(message.oldest_scheduled_at, "oldest_scheduled_at"),
    )


def worker_from_pb(message: pb.Worker) -> WorkerSeen:
    """Return a worker that was heard of."""
    return WorkerSeen(
        worker_id=message.worker_id,
        instance_id=message.instance_id,
        queues=tuple(message.queues),
        last_seen_at=instant(message.last_seen_at, "last_seen_at"),
        job_ids=tuple(message.job_ids),
    )


def state_from_pb(value: int) -> JobState:
    """Return the state of a number."""
    return enum_from_pb(JobState, value, "state")
