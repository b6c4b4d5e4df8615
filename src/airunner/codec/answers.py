"""Answers to and from the messages of the wire, in pairs: `x_to_pb` and `x_from_pb`.

Those for streams and dead letters are in the modules of these names; those about jobs that are there in
`lookups`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from airunner.codec.building import before, repeated
from airunner.codec.enums import to_wire
from airunner.codec.errors import from_entry, to_entry
from airunner.codec.gen.job.v1 import job_pb2 as pb
from airunner.codec.instants import instant, set_instant
from airunner.codec.jobs import JobReader, JobWriter, job_to_pb
from airunner.codec.requests import abilities_from_pb, abilities_to_pb
from airunner.domain.answers import (
    DequeuedJob,
    Enqueued,
    HeldJob,
    Published,
    QueuePage,
    QueueStats,
    WorkerPage,
    WorkerSeen,
)
from airunner.domain.errors import AirunnerError
from airunner.domain.job import JobState

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


M = TypeVar("M")


def enqueued_to_pb(job: Enqueued) -> pb.EnqueueJobResponse:
    """Return the message of the job that an enqueue made."""
    message = pb.EnqueueJobResponse()
    _write_enqueued(message, job)
    return message


def enqueued_from_pb(message: pb.EnqueueJobResponse) -> Enqueued:
    """Return the job that an enqueue made."""
    return Enqueued(
        job_id=message.job_id,
        created_at=instant(message.created_at, "created_at"),
        state=_state(message.state),
    )


def enqueue_outcomes_to_pb(outcomes: Sequence[Enqueued | AirunnerError]) -> pb.EnqueueJobsResponse:
    """Return the message of what became of the jobs of a batch."""
    message = pb.EnqueueJobsResponse()
    # In their place, since a message that is put into another is encoded and decoded again.
    for outcome in outcomes:
        entry = message.outcomes.add()
        if isinstance(outcome, AirunnerError):
            entry.error.CopyFrom(to_entry(outcome))
        else:
            _write_enqueued(entry.job, outcome)
    return message


def enqueue_outcomes_from_pb(message: pb.EnqueueJobsResponse) -> list[Enqueued | AirunnerError]:
    """Return what became of the jobs of a batch."""
    return [
        from_entry(outcome.error) if outcome.HasField("error") else enqueued_from_pb(outcome.job)
        for outcome in message.outcomes
    ]


def dequeued_to_pb(jobs: Sequence[DequeuedJob]) -> pb.DequeueJobsResponse:
    """Return the message of jobs in a worker's hands."""
    writer = JobWriter()
    entries = [_encode_dequeued(writer, dequeued) for dequeued in jobs]
    return pb.DequeueJobsResponse.FromString(repeated(_JOBS, entries))


def dequeued_job_to_pb(dequeued: DequeuedJob) -> pb.DequeueJobResponse:
    """Return the message of one job in a worker's hands, for a stream of them."""
    return pb.DequeueJobResponse(
        job=job_to_pb(dequeued.job),
        task_token=dequeued.task_token,
        termination_token=dequeued.termination_token,
    )


def dequeued_from_pb(message: pb.DequeueJobsResponse) -> list[DequeuedJob]:
    """Return jobs in a worker's hands. The message is used up."""
    reader = JobReader()
    return [
        DequeuedJob(reader.read(entry.job), entry.task_token, entry.termination_token)
        for entry in message.jobs
    ]


def held_to_pb(held: HeldJob) -> pb.UpdateJobResponse:
    """Return the message of what a holder is told."""
    message = pb.UpdateJobResponse(cancel_requested=held.cancel_requested, watched=held.watched)
    set_instant(message.visible_until, held.visible_until)
    return message


def held_from_pb(message: pb.UpdateJobResponse) -> HeldJob:
    """Return what a holder is told."""
    return HeldJob(
        cancel_requested=message.cancel_requested,
        watched=message.watched,
        visible_until=instant(message.visible_until, "visible_until"),
    )


def completed_to_pb(state: JobState) -> pb.CompleteJobResponse:
    """Return the message of the state that a completion led to."""
    return pb.CompleteJobResponse(state=to_wire(state))


def released_to_pb(state: JobState) -> pb.ReleaseJobResponse:
    """Return the message of the state that a release led to."""
    return pb.ReleaseJobResponse(state=to_wire(state))


def state_from_pb(message: pb.CompleteJobResponse | pb.ReleaseJobResponse) -> JobState:
    """Return the state that a completion or a release led to."""
    return _state(message.state)


def complete_outcomes_to_pb(outcomes: Sequence[JobState | AirunnerError]) -> pb.CompleteJobsResponse:
    """Return the message of what became of the completions of a batch."""
    # Nearly all are alike: encoded messages that follow each other are one, which is made at one go.
    return pb.CompleteJobsResponse.FromString(b"".join(map(_encode_complete_outcome, outcomes)))


def complete_outcomes_from_pb(message: pb.CompleteJobsResponse) -> list[JobState | AirunnerError]:
    """Return what became of the completions of a batch."""
    return [
        from_entry(outcome.error)
        if outcome.HasField("error")
        else _STATES.get(outcome.completed.state, JobState.UNSPECIFIED)
        for outcome in message.outcomes
    ]


def queues_to_pb(page: QueuePage) -> pb.ListQueuesResponse:
    """Return the message of a page of queues."""
    message = pb.ListQueuesResponse(next_cursor=page.next_cursor)
    for stats in page.queues:
        queue = message.queues.add(
            name=stats.name,
            paused=stats.paused,
            scheduled=stats.scheduled,
            running=stats.running,
            paused_by=stats.paused_by,
        )
        set_instant(queue.oldest_scheduled_at, stats.oldest_scheduled_at)
        set_instant(queue.paused_at, stats.paused_at)
    return message


def queues_from_pb(message: pb.ListQueuesResponse) -> QueuePage:
    """Return a page of queues."""
    queues = [
        QueueStats(
            name=queue.name,
            paused=queue.paused,
            scheduled=queue.scheduled,
            running=queue.running,
            oldest_scheduled_at=instant(queue.oldest_scheduled_at, "oldest_scheduled_at"),
            paused_by=queue.paused_by,
            paused_at=instant(queue.paused_at, "paused_at"),
        )
        for queue in message.queues
    ]
    return QueuePage(queues=queues, next_cursor=message.next_cursor)


def paused_to_pb() -> pb.PauseQueueResponse:
    """Return the message that a queue is paused."""
    return pb.PauseQueueResponse()


def resumed_to_pb() -> pb.ResumeQueueResponse:
    """Return the message that a queue is resumed."""
    return pb.ResumeQueueResponse()


def workers_to_pb(page: WorkerPage) -> pb.ListWorkersResponse:
    """Return the message of a page of workers."""
    message = pb.ListWorkersResponse(next_cursor=page.next_cursor)
    for seen in page.workers:
        worker = message.workers.add(
            worker_id=seen.worker_id,
            instance_id=seen.instance_id,
            queues=seen.queues,
            job_ids=seen.job_ids,
            abilities=abilities_to_pb(seen.abilities) if seen.abilities else None,
            more_handlers=seen.more_handlers,
        )
        set_instant(worker.last_seen_at, seen.last_seen_at)
    return message


def workers_from_pb(message: pb.ListWorkersResponse) -> WorkerPage:
    """Return a page of workers."""
    workers = [
        WorkerSeen(
            worker_id=worker.worker_id,
            instance_id=worker.instance_id,
            queues=tuple(worker.queues),
            last_seen_at=instant(worker.last_seen_at, "last_seen_at"),
            job_ids=tuple(worker.job_ids),
            abilities=abilities_from_pb(worker.abilities) if worker.HasField("abilities") else None,
            more_handlers=worker.more_handlers,
        )
        for worker in message.workers
    ]
    return WorkerPage(workers=workers, next_cursor=message.next_cursor)


def published_to_pb(published: Published) -> pb.PublishJobEventBatchResponse:
    """Return the message of what a publisher is told."""
    return _published(pb.PublishJobEventBatchResponse, published)


def stream_published_to_pb(published: Published) -> pb.PublishJobEventsResponse:
    """Return the message of what the publisher of a stream is told at its end."""
    return _published(pb.PublishJobEventsResponse, published)


def published_from_pb(message: pb.PublishJobEventBatchResponse | pb.PublishJobEventsResponse) -> Published:
    """Return what a publisher is told."""
    return Published(
        next_sequence=message.next_sequence,
        cancel_requested=message.cancel_requested,
        watched=message.watched,
    )


def _write_enqueued(message: pb.EnqueueJobResponse, job: Enqueued) -> None:
    message.job_id = job.job_id
    message.state = to_wire(job.state)
    set_instant(message.created_at, job.created_at)


def _encode_dequeued(writer: JobWriter, dequeued: DequeuedJob) -> bytes:
    job, task_token = writer.write(dequeued.job), dequeued.task_token.encode()
    termination_token = dequeued.termination_token.encode()
    return b"".join(
        (
            *(before(_JOB, len(job)), job),
            *(before(_TASK_TOKEN, len(task_token)), task_token),
            *(before(_TERMINATION_TOKEN, len(termination_token)), termination_token),
        )
    )


def _encode_complete_outcome(outcome: JobState | AirunnerError) -> bytes:
    """Return the bytes of an answer with this outcome alone."""
    if not isinstance(outcome, AirunnerError):
        return _ENCODED_ENDS[outcome]
    return pb.CompleteJobsResponse(
        outcomes=[pb.CompleteJobOutcome(error=to_entry(outcome))]
    ).SerializeToString()


def _published(kind: Callable[..., M], published: Published) -> M:
    return kind(
        next_sequence=published.next_sequence,
        cancel_requested=published.cancel_requested,
        watched=published.watched,
    )


def _state(number: int) -> JobState:
    return _STATES.get(number, JobState.UNSPECIFIED)


_JOBS = pb.DequeueJobsResponse.JOBS_FIELD_NUMBER
_JOB = pb.DequeueJobResponse.JOB_FIELD_NUMBER
_TASK_TOKEN = pb.DequeueJobResponse.TASK_TOKEN_FIELD_NUMBER
_TERMINATION_TOKEN = pb.DequeueJobResponse.TERMINATION_TOKEN_FIELD_NUMBER
_STATES = {int(state): state for state in JobState}
# In the order of the states, whose numbers are the places.
_ENCODED_ENDS = [
    pb.CompleteJobsResponse(
        outcomes=[pb.CompleteJobOutcome(completed=completed_to_pb(state))]
    ).SerializeToString()
    for state in sorted(JobState)
]
