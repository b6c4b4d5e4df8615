"""The life of a job as a timeline, told from evidence: the job, its queue, and its events that are no output.

Pure: what the command has read goes in, and entries and an answer come out.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from airunner.cli.instants import span
from airunner.domain.event import Event, Gap, ProcessEnd, ProcessStart, Progress
from airunner.domain.job import JobState, Outcome
from airunner.reading.why.attempts import attempt_stories, counted, gist

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from airunner.domain.answers import QueueStats, WorkerSeen
    from airunner.domain.job import Job
    from airunner.reading.why.attempts import AttemptStory


# Outcomes that say more than the state of the job.
_TELLING = frozenset({Outcome.TIMEOUT, Outcome.INTERRUPTED, Outcome.LOST})


class EntryKind(StrEnum):
    """What an entry tells of."""

    ENQUEUED = "enqueued"
    DELAYED = "delayed"
    BEGUN = "begun"
    ENDED = "ended"
    LOST = "lost"
    HANDED_BACK = "handed_back"
    GAP = "gap"
    PROGRESS = "progress"
    RETRY = "retry"
    PAUSED = "paused"
    BEHIND = "behind"
    CANCELLING = "cancelling"
    VISIBILITY = "visibility"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Something that happened, is so or will be; `at` is 0 when nobody noted the time."""

    at: int
    kind: EntryKind
    text: str
    attempt: int = 0


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


def tell(facts: JobFacts) -> list[Entry]:
    """Return what happened to a job, in order, and what is to come."""
    stories = attempt_stories(facts.job, facts.events)
    entries = [_enqueued(facts.job)]
    # Not sorted by time: the clock of a worker may differ from that of the server.
    for story in stories:
        entries += _attempt(facts, story, stories)
    return [*entries, *sorted([*_delay(facts.job), *_now(facts)], key=lambda entry: entry.at)]


def _enqueued(job: Job) -> Entry:
    owner = f" by {job.params.owner}" if job.params.owner else ""
    copy = f", as a copy of {job.retried_from}" if job.retried_from else ""
    text = f"enqueued in queue {job.queue}{owner}{copy}"
    return Entry(at=job.created_at, kind=EntryKind.ENQUEUED, text=text)


def _delay(job: Job) -> Iterator[Entry]:
    wait = job.life.due_at - job.created_at
    # A release puts the time of the next try in the place of the first delay.
    if job.attempt == 0 and wait > 0:
        text = f"may not begin before this: it was delayed by {span(wait)}"
        yield Entry(at=job.life.due_at, kind=EntryKind.DELAYED, text=text)


def _attempt(facts: JobFacts, story: AttemptStory, stories: Sequence[AttemptStory]) -> Iterator[Entry]:
    on = f" on worker {story.worker}" if story.worker else ""
    if story.start and isinstance(story.start.data, ProcessStart):
        text = f"attempt {story.number} began{on}, pid {story.start.data.pid}"
        yield Entry(at=story.start.timestamp, kind=EntryKind.BEGUN, text=text, attempt=story.number)
    for event in story.events:
        if isinstance(event.data, Gap):
            gap = event.data
            text = f"events {gap.first_sequence} to {gap.last_sequence} were lost: {gap.reason}"
            yield Entry(at=event.timestamp, kind=EntryKind.GAP, text=text, attempt=story.number)
    if story.end and isinstance(story.end.data, ProcessEnd):
        yield _ended(facts.job, story, story.end, story.end.data)
    else:
        yield from _without_end(facts, story, stories)


def _ended(job: Job, story: AttemptStory, event: Event, end: ProcessEnd) -> Entry:
    if story.start is None and story.errors:
        text = f"attempt {story.number} could not begin: {story.how_it_ended}"
    else:
        text = f"attempt {story.number} ended after {span(end.run_duration_ms)}: {story.how_it_ended}"
    given_back = story.number < job.attempt or job.state is JobState.SCHEDULED
    text += "; the job was given back" if given_back else ""
    return Entry(at=event.timestamp, kind=EntryKind.ENDED, text=text, attempt=story.number)


def _without_end(facts: JobFacts, story: AttemptStory, stories: Sequence[AttemptStory]) -> Iterator[Entry]:
    job = facts.job
    last = story.number == job.attempt
    if last and job.state is JobState.RUNNING:
        yield from _running(facts, story)
    elif not story.events and _was_handed_back(job, stories):
        text = f"attempt {story.number} was handed back before it began; it cost no try"
        yield Entry(at=0, kind=EntryKind.HANDED_BACK, text=text, attempt=story.number)
    elif last and job.state is JobState.SCHEDULED:
        text = f"attempt {story.number} was given back without an end"
        yield Entry(at=0, kind=EntryKind.ENDED, text=text, attempt=story.number)
    elif not last or (job.result and job.result.outcome in {Outcome.LOST, Outcome.CANCELLED}):
        worker = f"worker {story.worker}" if story.worker else "its worker"
        text = f"attempt {story.number} was lost: {worker} never told its end"
        yield Entry(at=_noticed_at(job, story, stories), kind=EntryKind.LOST, text=text, attempt=story.number)


def _running(facts: JobFacts, story: AttemptStory) -> Iterator[Entry]:
    life = facts.job.life
    if not story.start:
        text = f"attempt {story.number} was taken by worker {life.worker_id or 'without a name'}"
        yield Entry(at=0, kind=EntryKind.BEGUN, text=text, attempt=story.number)
    progress = [event for event in story.events if isinstance(event.data, Progress)]
    if progress and isinstance(latest := progress[-1].data, Progress):
        text = f"{latest.done} of {latest.total} {latest.message}".rstrip()
        yield Entry(at=progress[-1].timestamp, kind=EntryKind.PROGRESS, text=text, attempt=story.number)


def _was_handed_back(job: Job, stories: Sequence[AttemptStory]) -> bool:
    """Tell whether attempts without any event were handed back: the job counts those, without numbers."""
    running = job.state is JobState.RUNNING
    silent = sum(not story.events and not (running and story.number == job.attempt) for story in stories)
    return silent == job.life.handed_back


def _noticed_at(job: Job, story: AttemptStory, stories: Sequence[AttemptStory]) -> int:
    if story.number < job.attempt:
        following = stories[story.number].start
        return following.timestamp if following else 0
    return job.life.updated_at


def _now(facts: JobFacts) -> Iterator[Entry]:
    match facts.job.state:
        case JobState.SCHEDULED:
            yield from _waiting(facts)
        case JobState.RUNNING:
            yield from _held(facts)
        case _:
            yield _finished(facts.job)


def _waiting(facts: JobFacts) -> Iterator[Entry]:
    job, before = facts.job, facts.before
    if job.attempt:
        tries = counted(job.life.tries_left, "try", "tries")
        text = f"attempt {job.attempt + 1} may begin; {tries} left"
        yield Entry(at=job.life.due_at, kind=EntryKind.RETRY, text=text)
    if facts.paused:
        yield Entry(at=facts.now, kind=EntryKind.PAUSED, text=f"queue {job.queue} is paused")
    if before.waiting or before.running:
        most = "" if before.exact else "at most "
        runs = f"; running: {', '.join(before.running)}" if before.running else ""
        text = f"{most}{counted(before.waiting, 'job', 'jobs')} of queue {job.queue} before it{runs}"
        yield Entry(at=facts.now, kind=EntryKind.BEHIND, text=text)


def _held(facts: JobFacts) -> Iterator[Entry]:
    job, life = facts.job, facts.job.life
    if life.cancel_requested:
        yield Entry(
            at=facts.now, kind=EntryKind.CANCELLING, text="it is to be cancelled", attempt=job.attempt
        )
    over = life.visible_until <= facts.now
    lapse = "its visibility ran out" if over else "its visibility runs out, unless its worker extends it"
    text = f"{lapse}; {counted(life.tries_left, 'try', 'tries')} left then"
    yield Entry(at=life.visible_until, kind=EntryKind.VISIBILITY, text=text, attempt=job.attempt)


def _finished(job: Job) -> Entry:
    result = job.result
    said = f", {result.outcome.name}" if result and result.outcome in _TELLING else ""
    error = f": {gist(result.error_message)}" if result and result.error_message else ""
    return Entry(
        at=job.life.finished_at, kind=EntryKind.FINISHED, text=f"the job is {job.state.name}{said}{error}"
    )
