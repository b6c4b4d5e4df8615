"""Gathering what is known of a job and of those around it, with the calls that everybody may make."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

from airunner.domain.event import EventType
from airunner.domain.job import JobState
from airunner.domain.limits import MAX_PAGE_SIZE
from airunner.domain.requests import JobQuery, StreamRequest
from airunner.reading.why.timeline import JobFacts, JobsBefore

if TYPE_CHECKING:
    from airunner.client import AsyncClient
    from airunner.domain.answers import QueueStats
    from airunner.domain.clock import Clock
    from airunner.domain.event import Event
    from airunner.domain.job import Job

_NOT_OUTPUT = frozenset(EventType) - {EventType.OUTPUT_DATA, EventType.OUTPUT_BATCH}
_RUNNING_SHOWN = 3
# A job further back than this is told with a bound instead of its exact place.
_MOST_PAGES = 20


async def gather(client: AsyncClient, job_id: str, clock: Clock) -> JobFacts:
    """Return the evidence about a job. The job is read first, so no event of what it tells is missing."""
    job = await client.get_job(job_id)
    events = await _events(client, job.job_id)
    queues = await client.list_queues()
    queue = next((queue for queue in queues if queue.name == job.queue), None)
    waits = job.state is JobState.SCHEDULED
    return JobFacts(
        job=job,
        now=clock.now(),
        queue=queue,
        events=events,
        before=await _before(client, job, queue, clock.now()) if waits and queue else JobsBefore(),
        workers=await client.list_workers() if waits else (),
    )


async def _events(client: AsyncClient, job_id: str) -> list[Event]:
    request = StreamRequest(job_id=job_id, event_filter=_NOT_OUTPUT, follow=False)
    async with aclosing(client.stream_events(request)) as events:
        return [event async for event in events]


async def _before(client: AsyncClient, job: Job, queue: QueueStats, now: int) -> JobsBefore:
    running = JobQuery(queue=job.queue, state=JobState.RUNNING, page_size=_RUNNING_SHOWN)
    ids = tuple(other.job_id for other in (await client.list_jobs(running)).jobs)
    newer, cursor = 0, ""
    for _ in range(_MOST_PAGES):
        page = await client.list_jobs(
            JobQuery(queue=job.queue, state=JobState.SCHEDULED, page_size=MAX_PAGE_SIZE, cursor=cursor)
        )
        place = next((index for index, other in enumerate(page.jobs) if other.job_id == job.job_id), None)
        if place is not None:
            older = page.jobs[place + 1 :]
            delayed = sum(other.life.due_at > now for other in older)
            behind = len(older) if not page.next_cursor else queue.scheduled - newer - place - 1
            return JobsBefore(waiting=max(0, behind - delayed), exact=not page.next_cursor, running=ids)
        newer, cursor = newer + len(page.jobs), page.next_cursor
        if not cursor:
            # It was claimed meanwhile.
            return JobsBefore(running=ids)
    return JobsBefore(waiting=max(0, queue.scheduled - newer - 1), exact=False, running=ids)
