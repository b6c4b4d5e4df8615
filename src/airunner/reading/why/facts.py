"""What is known of a job and of the jobs around it, read with the calls that every caller may make."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from airunner.domain.event import EventType
from airunner.domain.job import JobState
from airunner.domain.limits import MAX_PAGE_SIZE
from airunner.domain.listing import JobQuery
from airunner.domain.requests import StreamRequest
from airunner.reading.why.attempts import by_whom

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airunner.domain.answers import QueueStats, WorkerSeen
    from airunner.domain.clock import Clock
    from airunner.domain.event import Event
    from airunner.domain.job import Job
    from airunner.services.api import EventsApi, JobsApi

_NOT_OUTPUT: Final = frozenset(EventType) - {EventType.OUTPUT_DATA, EventType.OUTPUT_BATCH}
_RUNNING_SHOWN: Final = 3
# A job further back than this is told with a bound instead of its exact position.
_MAX_PAGES: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsBefore:
    """The jobs of a queue that are served before one of them: an upper bound unless `exact`."""

    waiting: int = 0
    exact: bool = True
    running: tuple[str, ...] = ()
    """The ids of some that run now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """What is known of a job at an instant. `events` leaves out output, and is in the order of a stream."""

    job: Job
    now: int
    queue: QueueStats | None = None
    events: Sequence[Event] = ()
    before: JobsBefore = JobsBefore()
    workers: Sequence[WorkerSeen] = ()

    @property
    def paused(self) -> bool:
        """Whether nobody may claim from the job's queue."""
        return self.queue is not None and self.queue.paused

    @property
    def pause_text(self) -> str:
        """That the job's queue is paused, and by whom and since when, as far as that is known."""
        if self.queue is None or not self.queue.paused_by:
            return f"queue {self.job.queue} is paused"
        return f"queue {self.job.queue} was paused{by_whom(self.queue.paused_by, self.queue.paused_at)}"


async def gather_facts(jobs: JobsApi, events: EventsApi, job_id: str, clock: Clock) -> JobFacts:
    """Return what is known of a job now. The job is read first, so that no event it tells of is missing."""
    job = await jobs.get_job(job_id, abridge=True)
    seen = await _events_but_output(events, job.job_id)
    queue = next((queue for queue in await jobs.list_queues() if queue.name == job.queue), None)
    waits = job.state is JobState.SCHEDULED
    return JobFacts(
        job=job,
        now=clock.now(),
        queue=queue,
        events=seen,
        before=await _jobs_before(jobs, job, queue, clock.now()) if waits and queue else JobsBefore(),
        workers=await jobs.list_workers() if waits else (),
    )


async def _events_but_output(events: EventsApi, job_id: str) -> list[Event]:
    request = StreamRequest(job_id=job_id, event_filter=_NOT_OUTPUT, follow=False)
    async with aclosing(events.stream_events(request)) as stream:
        return [event async for event in stream]


async def _jobs_before(jobs: JobsApi, job: Job, queue: QueueStats, now: int) -> JobsBefore:
    running = JobQuery(queue=job.queue, state=JobState.RUNNING, page_size=_RUNNING_SHOWN)
    ids = tuple(other.job_id for other in (await jobs.list_jobs(running)).jobs)
    newer, cursor = 0, ""
    for _ in range(_MAX_PAGES):
        page = await jobs.list_jobs(
            JobQuery(queue=job.queue, state=JobState.SCHEDULED, page_size=MAX_PAGE_SIZE, cursor=cursor)
        )
        index = next((index for index, other in enumerate(page.jobs) if other.job_id == job.job_id), None)
        if index is not None:
            older = page.jobs[index + 1 :]
            delayed = sum(other.life.due_at > now for other in older)
            behind = len(older) if not page.next_cursor else queue.scheduled - newer - index - 1
            return JobsBefore(waiting=max(0, behind - delayed), exact=not page.next_cursor, running=ids)
        newer, cursor = newer + len(page.jobs), page.next_cursor
        if not cursor:
            # It was claimed meanwhile.
            return JobsBefore(running=ids)
    return JobsBefore(waiting=max(0, queue.scheduled - newer - 1), exact=False, running=ids)
