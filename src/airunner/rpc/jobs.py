"""JobService on the wire: messages in, messages out, nothing decided here."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from airunner.codec import answers, lookups, publishing, requests
from airunner.codec.completions import CompletionReader
from airunner.domain.outcomes import prepare_entries, send_entries, single

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from connectrpc.request import RequestContext

    from airunner.codec.gen.job.v1 import job_pb2 as pb
    from airunner.domain.clock import Clock
    from airunner.services.jobs import JobService
    from airunner.stores.records import Completion


class JobServiceEndpoint:
    """Implements the generated JobService."""

    def __init__(self, service: JobService, clock: Clock) -> None:
        self._service = service
        self._clock = clock

    async def enqueue_job(
        self, request: pb.EnqueueJobRequest, _: RequestContext[pb.EnqueueJobRequest, pb.EnqueueJobResponse]
    ) -> pb.EnqueueJobResponse:
        """Add one job."""
        return answers.enqueued_to_pb(await self._service.enqueue_job(requests.enqueue_from_pb(request)))

    async def enqueue_jobs(
        self, request: pb.EnqueueJobsRequest, _: RequestContext[pb.EnqueueJobsRequest, pb.EnqueueJobsResponse]
    ) -> pb.EnqueueJobsResponse:
        """Add jobs, each with its own outcome."""
        prepared = prepare_entries(request.jobs, requests.enqueue_from_pb)
        outcomes = await send_entries(prepared, self._service.enqueue_jobs)
        return answers.enqueue_outcomes_to_pb(outcomes)

    async def dequeue_job(
        self, request: pb.DequeueJobRequest, _: RequestContext[pb.DequeueJobRequest, pb.DequeueJobResponse]
    ) -> AsyncIterator[pb.DequeueJobResponse]:
        """Claim jobs and stream them."""
        jobs = list(await self._service.dequeue_jobs(requests.dequeue_from_pb(request)))
        try:
            while jobs:
                yield answers.dequeued_job_to_pb(jobs.pop(0))
        finally:
            # Whoever stopped listening has not seen these.
            self._service.hand_back(jobs)

    async def dequeue_jobs(
        self, request: pb.DequeueJobsRequest, _: RequestContext[pb.DequeueJobsRequest, pb.DequeueJobsResponse]
    ) -> pb.DequeueJobsResponse:
        """Claim a chunk of jobs."""
        jobs = await self._service.dequeue_jobs(requests.dequeue_from_pb(request))
        return answers.dequeued_to_pb(jobs)

    async def update_job(
        self, request: pb.UpdateJobRequest, _: RequestContext[pb.UpdateJobRequest, pb.UpdateJobResponse]
    ) -> pb.UpdateJobResponse:
        """Extend the visibility of a held job."""
        return answers.held_to_pb(await self._service.update_job(requests.update_from_pb(request)))

    async def complete_job(
        self, request: pb.CompleteJobRequest, _: RequestContext[pb.CompleteJobRequest, pb.CompleteJobResponse]
    ) -> pb.CompleteJobResponse:
        """End a held job."""
        completion = self._prepare(CompletionReader(self._clock.now()), request)
        return answers.completed_to_pb(single(await self._service.complete_prepared([completion])))

    async def complete_jobs(
        self,
        request: pb.CompleteJobsRequest,
        _: RequestContext[pb.CompleteJobsRequest, pb.CompleteJobsResponse],
    ) -> pb.CompleteJobsResponse:
        """End held jobs, each with its own outcome."""
        prepare = partial(self._prepare, CompletionReader(self._clock.now()))
        prepared = prepare_entries(request.completions, prepare)
        return answers.complete_outcomes_to_pb(await self._service.complete_prepared(prepared))

    async def release_job(
        self, request: pb.ReleaseJobRequest, _: RequestContext[pb.ReleaseJobRequest, pb.ReleaseJobResponse]
    ) -> pb.ReleaseJobResponse:
        """Give a held job back."""
        release, events = publishing.release_from_pb(request, self._clock.now())
        return answers.released_to_pb(await self._service.release_encoded(release, events))

    async def get_job(
        self, request: pb.GetJobRequest, _: RequestContext[pb.GetJobRequest, pb.GetJobResponse]
    ) -> pb.GetJobResponse:
        """Read one job."""
        return lookups.found_to_pb(await self._service.get_job(**lookups.get_from_pb(request)))

    async def list_jobs(
        self, request: pb.ListJobsRequest, _: RequestContext[pb.ListJobsRequest, pb.ListJobsResponse]
    ) -> pb.ListJobsResponse:
        """List jobs, newest first."""
        return lookups.page_to_pb(await self._service.list_jobs(lookups.query_from_pb(request)))

    async def cancel_job(
        self, request: pb.CancelJobRequest, _: RequestContext[pb.CancelJobRequest, pb.CancelJobResponse]
    ) -> pb.CancelJobResponse:
        """Cancel a job."""
        return lookups.cancelled_to_pb(await self._service.cancel_job(lookups.cancel_from_pb(request)))

    async def retry_job(
        self, request: pb.RetryJobRequest, _: RequestContext[pb.RetryJobRequest, pb.RetryJobResponse]
    ) -> pb.RetryJobResponse:
        """Enqueue a copy of a terminal job."""
        return lookups.retried_to_pb(await self._service.retry_job(**lookups.retry_from_pb(request)))

    async def list_queues(
        self, request: pb.ListQueuesRequest, _: RequestContext[pb.ListQueuesRequest, pb.ListQueuesResponse]
    ) -> pb.ListQueuesResponse:
        """List queues that have been used."""
        return answers.queues_to_pb(await self._service.page_queues(requests.overview_query_from_pb(request)))

    async def pause_queue(
        self, request: pb.PauseQueueRequest, _: RequestContext[pb.PauseQueueRequest, pb.PauseQueueResponse]
    ) -> pb.PauseQueueResponse:
        """Stop claims from a queue."""
        await self._service.set_paused(requests.queue_from_pb(request), paused=True)
        return answers.paused_to_pb()

    async def resume_queue(
        self, request: pb.ResumeQueueRequest, _: RequestContext[pb.ResumeQueueRequest, pb.ResumeQueueResponse]
    ) -> pb.ResumeQueueResponse:
        """Allow claims from a queue again."""
        await self._service.set_paused(requests.queue_from_pb(request), paused=False)
        return answers.resumed_to_pb()

    async def list_workers(
        self,
        request: pb.ListWorkersRequest,
        _: RequestContext[pb.ListWorkersRequest, pb.ListWorkersResponse],
    ) -> pb.ListWorkersResponse:
        """List workers that were seen lately."""
        page = await self._service.page_workers(requests.overview_query_from_pb(request))
        return answers.workers_to_pb(page)

    def _prepare(self, reader: CompletionReader, message: pb.CompleteJobRequest) -> Completion:
        return self._service.prepare_completion(*reader.read(message))
