"""JobService on the wire: messages in, messages out, nothing decided here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airunner.codec.errors import to_entry
from airunner.codec.events import admit_events
from airunner.codec.gen.job.v1 import job_pb2 as pb
from airunner.codec.instants import set_instant
from airunner.codec.jobs import (
    JobWriter,
    enum_from_pb,
    job_to_pb,
    params_from_pb,
    to_wire,
)
from airunner.domain.answers import Enqueued
from airunner.domain.errors import AirunnerError, InvalidArgument
from airunner.domain.job import JobState
from airunner.domain.limits import DEFAULT_PAGE_SIZE
from airunner.domain.requests import (
    DequeueRequest,
    EnqueueRequest,
    JobQuery,
    ReleaseRequest,
    UpdateRequest,
)
from airunner.rpc.completions import CompletionReader

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from connectrpc.request import RequestContext

    from airunner.domain.answers import DequeuedJob
    from airunner.domain.clock import Clock
    from airunner.services.jobs import JobService


class JobServiceEndpoint:
    """Implements the generated JobService."""

    def __init__(self, service: JobService, clock: Clock) -> None:
        self._service = service
        self._clock = clock

    async def enqueue_job(
        self, request: pb.EnqueueJobRequest, _: RequestContext[pb.EnqueueJobRequest, pb.EnqueueJobResponse]
    ) -> pb.EnqueueJobResponse:
        """Add one job."""
        outcome = (await self._service.enqueue_jobs([_enqueue(request)]))[0]
        if isinstance(outcome, AirunnerError):
            raise outcome
        return _enqueued(outcome)

    async def enqueue_jobs(
        self, request: pb.EnqueueJobsRequest, _: RequestContext[pb.EnqueueJobsRequest, pb.EnqueueJobsResponse]
    ) -> pb.EnqueueJobsResponse:
        """Add jobs, each with its own outcome."""
        prepared = [_enqueue_or_error(entry) for entry in request.jobs]
        requests = [entry for entry in prepared if isinstance(entry, EnqueueRequest)]
        stored = iter(await self._service.enqueue_jobs(requests) if requests or not prepared else ())
        outcomes = (next(stored) if isinstance(entry, EnqueueRequest) else entry for entry in prepared)
        return pb.EnqueueJobsResponse(outcomes=map(_enqueue_outcome, outcomes))

    async def dequeue_job(
        self, request: pb.DequeueJobRequest, _: RequestContext[pb.DequeueJobRequest, pb.DequeueJobResponse]
    ) -> AsyncIterator[pb.DequeueJobResponse]:
        """Claim jobs and stream them."""
        jobs = list(await self._service.dequeue_jobs(_dequeue(request)))
        try:
            while jobs:
                yield _dequeued(jobs.pop(0))
        finally:
            # Whoever stopped listening has not seen these.
            self._service.hand_back(jobs)

    async def dequeue_jobs(
        self, request: pb.DequeueJobsRequest, _: RequestContext[pb.DequeueJobsRequest, pb.DequeueJobsResponse]
    ) -> pb.DequeueJobsResponse:
        """Claim a chunk of jobs."""
        jobs = await self._service.dequeue_jobs(_dequeue(request))
        response = pb.DequeueJobsResponse()
        writer = JobWriter()
        for dequeued in jobs:
            message = response.jobs.add()
            message.task_token = dequeued.task_token
            writer.write(message.job, dequeued.job)
        return response

    async def update_job(
        self, request: pb.UpdateJobRequest, _: RequestContext[pb.UpdateJobRequest, pb.UpdateJobResponse]
    ) -> pb.UpdateJobResponse:
        """Extend the visibility of a held job."""
        held = await self._service.update_job(
            UpdateRequest(
                queue=request.queue,
                task_token=request.task_token,
                visibility_timeout_seconds=request.visibility_timeout_seconds,
                wait_seconds=request.wait_seconds,
                watched=request.watched,
            )
        )
        response = pb.UpdateJobResponse(cancel_requested=held.cancel_requested, watched=held.watched)
        set_instant(response.visible_until, held.visible_until)
        return response

    async def complete_job(
        self, request: pb.CompleteJobRequest, _: RequestContext[pb.CompleteJobRequest, pb.CompleteJobResponse]
    ) -> pb.CompleteJobResponse:
        """End a held job."""
        completion = CompletionReader(self._service, self._clock.now()).read(request)
        outcome = (await self._service.complete_prepared([completion]))[0]
        if isinstance(outcome, AirunnerError):
            raise outcome
        return pb.CompleteJobResponse(state=to_wire(outcome))

    async def complete_jobs(
        self,
        request: pb.CompleteJobsRequest,
        _: RequestContext[pb.CompleteJobsRequest, pb.CompleteJobsResponse],
    ) -> pb.CompleteJobsResponse:
        """End held jobs, each with its own outcome."""
        reader = CompletionReader(self._service, self._clock.now())
        prepared = [reader.read_or_error(entry) for entry in request.completions]
        outcomes = await self._service.complete_prepared(prepared)
        response = pb.CompleteJobsResponse()
        for outcome in outcomes:
            _set_complete_outcome(response.outcomes.add(), outcome)
        return response

    async def release_job(
        self, request: pb.ReleaseJobRequest, _: RequestContext[pb.ReleaseJobRequest, pb.ReleaseJobResponse]
    ) -> pb.ReleaseJobResponse:
        """Give a held job back."""
        release = ReleaseRequest(
            task_token=request.task_token,
            delay_seconds=request.delay_seconds,
            unstarted=request.unstarted,
            error=request.error_message,
        )
        events = admit_events(request.events, self._clock.now())
        state = await self._service.release_encoded(release, events)
        return pb.ReleaseJobResponse(state=to_wire(state))

    async def get_job(
        self, request: pb.GetJobRequest, _: RequestContext[pb.GetJobRequest, pb.GetJobResponse]
    ) -> pb.GetJobResponse:
        """Read one job."""
        job = await self._service.get_job(
            request.job_id,
            wait_seconds=request.wait_seconds,
            want_payload_urls=request.want_payload_urls,
        )
        return pb.GetJobResponse(job=job_to_pb(job))

    async def list_jobs(
        self, request: pb.ListJobsRequest, _: RequestContext[pb.ListJobsRequest, pb.ListJobsResponse]
    ) -> pb.ListJobsResponse:
        """List jobs, newest first."""
        if request.cursor and request.page:
            raise InvalidArgument("page and cursor exclude each other")
        page = await self._service.list_jobs(
            JobQuery(
                queue=request.queue,
                state=enum_from_pb(JobState, request.state, "state") if request.state else None,
                page=request.page or 1,
                page_size=request.page_size or DEFAULT_PAGE_SIZE,
                cursor=request.cursor,
            )
        )
        return pb.ListJobsResponse(
            jobs=map(job_to_pb, page.jobs), last_page=page.last_page, next_cursor=page.next_cursor
        )

    async def cancel_job(
        self, request: pb.CancelJobRequest, _: RequestContext[pb.CancelJobRequest, pb.CancelJobResponse]
    ) -> pb.CancelJobResponse:
        """Cancel a job."""
        return pb.CancelJobResponse(job=job_to_pb(await self._service.cancel_job(request.job_id)))

    async def retry_job(
        self, request: pb.RetryJobRequest, _: RequestContext[pb.RetryJobRequest, pb.RetryJobResponse]
    ) -> pb.RetryJobResponse:
        """Enqueue a copy of a terminal job."""
        job = await self._service.retry_job(request.job_id, request.request_id)
        return pb.RetryJobResponse(job=job_to_pb(job))

    async def list_queues(
        self, _request: pb.ListQueuesRequest, _: RequestContext[pb.ListQueuesRequest, pb.ListQueuesResponse]
    ) -> pb.ListQueuesResponse:
        """List the queues that have been used."""
        response = pb.ListQueuesResponse()
        for stats in await self._service.list_queues():
            queue = response.queues.add(
                name=stats.name, paused=stats.paused, scheduled=stats.scheduled, running=stats.running
            )
            set_instant(queue.oldest_scheduled_at, stats.oldest_scheduled_at)
        return response

    async def pause_queue(
        self, request: pb.PauseQueueRequest, _: RequestContext[pb.PauseQueueRequest, pb.PauseQueueResponse]
    ) -> pb.PauseQueueResponse:
        """Stop claims from a queue."""
        await self._service.set_paused(request.queue, paused=True)
        return pb.PauseQueueResponse()

    async def resume_queue(
        self, request: pb.ResumeQueueRequest, _: RequestContext[pb.ResumeQueueRequest, pb.ResumeQueueResponse]
    ) -> pb.ResumeQueueResponse:
        """Allow claims from a queue again."""
        await self._service.set_paused(request.queue, paused=False)
        return pb.ResumeQueueResponse()

    async def list_workers(
        self,
        _request: pb.ListWorkersRequest,
        _: RequestContext[pb.ListWorkersRequest, pb.ListWorkersResponse],
    ) -> pb.ListWorkersResponse:
        """List the workers that were seen lately."""
        response = pb.ListWorkersResponse()
        for seen in await self._service.list_workers():
            worker = response.workers.add(
                worker_id=seen.worker_id,
                instance_id=seen.instance_id,
                queues=seen.queues,
                job_ids=seen.job_ids,
            )
            set_instant(worker.last_seen_at, seen.last_seen_at)
        return response


def _enqueue(request: pb.EnqueueJobRequest) -> EnqueueRequest:
    params = request.job_params
    if params.process_type == pb.PROCESS_TYPE_PIPE:
        # Saying the default and leaving it out are the same request.
        params.ClearField("process_type")
    # Nobody here could tell whether what we do not know of is a secret.
    params.DiscardUnknownFields()
    override = b""
    if request.HasField("execution_config"):
        override = request.execution_config.SerializeToString(deterministic=True)
    return EnqueueRequest(
        request_id=request.request_id,
        queue=request.queue,
        params=params_from_pb(params),
        delay_seconds=request.delay_seconds,
        max_attempts=request.max_attempts,
        params_bytes=params.SerializeToString(deterministic=True),
        execution_bytes=override,
    )


def _enqueue_or_error(request: pb.EnqueueJobRequest) -> EnqueueRequest | AirunnerError:
    try:
        return _enqueue(request)
    except AirunnerError as error:
        return error


def _enqueued(job: Enqueued) -> pb.EnqueueJobResponse:
    response = pb.EnqueueJobResponse(job_id=job.job_id, state=to_wire(job.state))
    set_instant(response.created_at, job.created_at)
    return response


def _enqueue_outcome(outcome: Enqueued | AirunnerError) -> pb.EnqueueJobOutcome:
    if isinstance(outcome, AirunnerError):
        return pb.EnqueueJobOutcome(error=to_entry(outcome))
    return pb.EnqueueJobOutcome(job=_enqueued(outcome))


def _set_complete_outcome(message: pb.CompleteJobOutcome, outcome: JobState | AirunnerError) -> None:
    if isinstance(outcome, AirunnerError):
        message.error.CopyFrom(to_entry(outcome))
    else:
        message.completed.state = to_wire(outcome)


def _dequeue(request: pb.DequeueJobRequest | pb.DequeueJobsRequest) -> DequeueRequest:
    return DequeueRequest(
        queue=request.queue,
        more_queues=tuple(request.more_queues),
        max_jobs=request.max_jobs,
        visibility_timeout_seconds=request.visibility_timeout_seconds,
        wait_seconds=request.wait_seconds if request.HasField("wait_seconds") else None,
        worker_id=request.worker_id,
        instance_id=request.instance_id,
    )


def _dequeued(dequeued: DequeuedJob) -> pb.DequeueJobResponse:
    return pb.DequeueJobResponse(job=job_to_pb(dequeued.job), task_token=dequeued.task_token)
