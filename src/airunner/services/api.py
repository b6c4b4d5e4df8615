"""What can be asked of airunner, as protocols: the services answer in process, the client over the wire.

Tokens are texts here, and secrets are masked in every job except those handed to the worker that dequeues.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

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
    from airunner.domain.event import Event
    from airunner.domain.job import Job, JobState
    from airunner.domain.listing import JobPage, JobQuery
    from airunner.domain.requests import (
        CompleteRequest,
        DequeueRequest,
        EnqueueRequest,
        OverviewQuery,
        ReleaseRequest,
        StreamRequest,
        UpdateRequest,
    )


class HoldingApi(Protocol):
    """What a worker asks: to get jobs, to keep them, and to report their ends."""

    async def dequeue_jobs(self, request: DequeueRequest) -> Sequence[DequeuedJob]:
        """Claim jobs; wait for the first ones if there are none. Cancelling the call hands back its jobs."""

    async def update_job(self, request: UpdateRequest) -> HeldJob:
        """Extend the visibility of a held job."""

    async def complete_jobs(self, requests: Sequence[CompleteRequest]) -> Sequence[JobState | AirunnerError]:
        """End held jobs, each with its own outcome."""

    async def release_job(self, request: ReleaseRequest) -> JobState:
        """Give a held job back."""


class JobsApi(HoldingApi, Protocol):
    """The queue side."""

    async def enqueue_jobs(self, requests: Sequence[EnqueueRequest]) -> Sequence[Enqueued | AirunnerError]:
        """Add jobs, each with its own outcome. Idempotent on (principal, request_id)."""

    async def get_job(
        self, job_id: str, *, wait_seconds: int = 0, want_payload_urls: bool = False, abridge: bool = False
    ) -> Job:
        """Return a job; with wait_seconds, at its end or as it is by then.

        With `want_payload_urls` and where the store keeps its payloads apart, also where these can be read.
        With `abridge` as a list shows it: without what is large of it, and without what cannot be read.
        """

    async def list_jobs(self, query: JobQuery) -> JobPage:
        """Return jobs, newest first."""

    async def cancel_job(self, job_id: str) -> Job:
        """Cancel a job; a terminal one is returned unchanged."""

    async def retry_job(self, job_id: str, request_id: str) -> Job:
        """Enqueue a copy of a terminal job. Idempotent on request_id."""

    async def page_queues(self, query: OverviewQuery) -> QueuePage:
        """Return a page of the queues that were used, by name."""

    async def list_queues(self) -> Sequence[QueueStats]:
        """Return all queues that were used, by name: page after page."""

    async def set_paused(self, queue: str, *, paused: bool) -> None:
        """Stop or allow claims from a queue."""

    async def page_workers(self, query: OverviewQuery) -> WorkerPage:
        """Return a page of the workers that called lately, or hold jobs, by name."""

    async def list_workers(self) -> Sequence[WorkerSeen]:
        """Return all workers that called lately, or hold jobs: page after page."""


async def all_queues(jobs: JobsApi) -> list[QueueStats]:
    """Return the queues of all pages; each page is of its own moment."""
    from airunner.domain.requests import OverviewQuery  # late: most callers never ask

    page = await jobs.page_queues(OverviewQuery())
    found = [*page.queues]
    while page.next_cursor:
        page = await jobs.page_queues(OverviewQuery(cursor=page.next_cursor))
        found += page.queues
    return found


async def all_workers(jobs: JobsApi) -> list[WorkerSeen]:
    """Return the workers of all pages; each page is of its own moment."""
    from airunner.domain.requests import OverviewQuery

    page = await jobs.page_workers(OverviewQuery())
    found = [*page.workers]
    while page.next_cursor:
        page = await jobs.page_workers(OverviewQuery(cursor=page.next_cursor))
        found += page.workers
    return found


class EventsApi(Protocol):
    """The event side."""

    async def publish_events(self, task_token: str, events: Sequence[Event]) -> Published:
        """Append events of the attempt that the token holds. May be repeated."""

    def stream_events(self, request: StreamRequest) -> AsyncGenerator[Event, None]:
        """Yield single events: what is stored, then what comes, until the job ends. Close it to stop."""
