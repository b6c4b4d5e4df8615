"""The life of a job as a timeline: what happened, what is so now, and what is to come. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from airunner.domain.event import Event, Gap, ProcessEnd, ProcessStart, Progress
from airunner.domain.job import JobState, Outcome
from airunner.reading.instants import format_duration
from airunner.reading.why.attempts import counted, last_line, summarise_attempts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from airunner.domain.job import Job
    from airunner.reading.why.attempts import AttemptSummary
    from airunner.reading.why.facts import JobFacts


# Outcomes that say more than the state of the job.
_TELLING = frozenset({Outcome.TIMEOUT, Outcome.INTERRUPTED, Outcome.LOST})


class EntryKind(StrEnum):
    """What an entry of a timeline is about."""

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
class TimelineEntry:
    """Something that happened, is so now or is to come; `at` is 0 when nobody noted the time."""

    at: int
    kind: EntryKind
    text: str
    attempt: int = 0


def build_timeline(facts: JobFacts) -> list[TimelineEntry]:
    """Return what happened to a job, in order, and what is to come."""
    attempts = summarise_attempts(facts.job, facts.events)
    entries = [_enqueued(facts.job)]
    # Not sorted by time: the clock of a worker may differ from that of the server.
    for attempt in attempts:
        entries += _attempt(facts, attempt, attempts)
    entries += sorted([*_delay(facts.job), *_now(facts)], key=lambda entry: entry.at)
    return _with_cancellation(facts.job, entries)


def _enqueued(job: Job) -> TimelineEntry:
    owner = f" by {job.params.owner}" if job.params.owner else ""
    copy = f", as a copy of {job.retried_from}" if job.retried_from else ""
    text = f"enqueued in queue {job.queue}{owner}{copy}"
    return TimelineEntry(at=job.created_at, kind=EntryKind.ENQUEUED, text=text)


def _delay(job: Job) -> Iterator[TimelineEntry]:
    wait = job.life.due_at - job.created_at
    # A release puts the time of the next try in the place of the first delay.
    if job.attempt == 0 and wait > 0:
        text = f"may not begin before this: it was delayed by {format_duration(wait)}"
        yield TimelineEntry(at=job.life.due_at, kind=EntryKind.DELAYED, text=text)


def _attempt(
    facts: JobFacts, attempt: AttemptSummary, attempts: Sequence[AttemptSummary]
) -> Iterator[TimelineEntry]:
    on = f" on worker {attempt.worker}" if attempt.worker else ""
    if attempt.start and isinstance(attempt.start.data, ProcessStart):
        text = f"attempt {attempt.number} began{on}, pid {attempt.start.data.pid}"
        yield TimelineEntry(
            at=attempt.start.timestamp, kind=EntryKind.BEGUN, text=text, attempt=attempt.number
        )
    for event in attempt.events:
        if isinstance(event.data, Gap):
            gap = event.data
            text = f"events {gap.first_sequence} to {gap.last_sequence} were lost: {gap.reason}"
            yield TimelineEntry(at=event.timestamp, kind=EntryKind.GAP, text=text, attempt=attempt.number)
    if attempt.end and isinstance(attempt.end.data, ProcessEnd):
        yield _ended(facts.job, attempt, attempt.end, attempt.end.data)
    else:
        yield from _without_end(facts, attempt, attempts)


def _ended(job: Job, attempt: AttemptSummary, event: Event, end: ProcessEnd) -> TimelineEntry:
    if attempt.start is None and attempt.errors:
        text = f"attempt {attempt.number} could not begin: {attempt.how_it_ended}"
    else:
        duration = format_duration(end.run_duration_ms)
        text = f"attempt {attempt.number} ended after {duration}: {attempt.how_it_ended}"
    given_back = attempt.number < job.attempt or job.state is JobState.SCHEDULED
    text += "; the job was given back" if given_back else ""
    return TimelineEntry(at=event.timestamp, kind=EntryKind.ENDED, text=text, attempt=attempt.number)


def _without_end(
    facts: JobFacts, attempt: AttemptSummary, attempts: Sequence[AttemptSummary]
) -> Iterator[TimelineEntry]:
    job = facts.job
    last = attempt.number == job.attempt
    if last and job.state is JobState.RUNNING:
        yield from _running(facts, attempt)
    elif not attempt.events and _was_handed_back(job, attempts):
        text = f"attempt {attempt.number} came back before anything was heard of it; it cost no try"
        yield TimelineEntry(at=0, kind=EntryKind.HANDED_BACK, text=text, attempt=attempt.number)
    elif last and job.state is JobState.SCHEDULED:
        text = f"attempt {attempt.number} was given back without an end"
        yield TimelineEntry(at=0, kind=EntryKind.ENDED, text=text, attempt=attempt.number)
    elif not last or (job.result and job.result.outcome in {Outcome.LOST, Outcome.CANCELLED}):
        worker = f"worker {attempt.worker}" if attempt.worker else "its worker"
        text = f"attempt {attempt.number} was lost: {worker} never told its end"
        yield TimelineEntry(
            at=_noticed_at(job, attempt, attempts), kind=EntryKind.LOST, text=text, attempt=attempt.number
        )


def _running(facts: JobFacts, attempt: AttemptSummary) -> Iterator[TimelineEntry]:
    life = facts.job.life
    if not attempt.start:
        text = f"attempt {attempt.number} was taken by worker {life.worker_id or 'without a name'}"
        yield TimelineEntry(at=0, kind=EntryKind.BEGUN, text=text, attempt=attempt.number)
    progress = [event for event in attempt.events if isinstance(event.data, Progress)]
    if progress and isinstance(latest := progress[-1].data, Progress):
        text = f"{latest.done} of {latest.total} {latest.message}".rstrip()
        yield TimelineEntry(
            at=progress[-1].timestamp, kind=EntryKind.PROGRESS, text=text, attempt=attempt.number
        )


def _was_handed_back(job: Job, attempts: Sequence[AttemptSummary]) -> bool:
    """Return whether all attempts without an event were handed back: the job only counts them."""
    running = job.state is JobState.RUNNING
    silent = sum(
        not attempt.events and not (running and attempt.number == job.attempt) for attempt in attempts
    )
    return silent == job.life.handed_back


def _noticed_at(job: Job, attempt: AttemptSummary, attempts: Sequence[AttemptSummary]) -> int:
    if attempt.number < job.attempt:
        following = attempts[attempt.number].start
        return following.timestamp if following else 0
    return job.life.updated_at


def _now(facts: JobFacts) -> Iterator[TimelineEntry]:
    match facts.job.state:
        case JobState.SCHEDULED:
            yield from _waiting(facts)
        case JobState.RUNNING:
            yield from _held(facts)
        case _:
            yield _finished(facts.job)


def _waiting(facts: JobFacts) -> Iterator[TimelineEntry]:
    job, before = facts.job, facts.before
    if job.attempt:
        tries = counted(job.life.tries_left, "try", "tries")
        text = f"attempt {job.attempt + 1} may begin; {tries} left"
        yield TimelineEntry(at=job.life.due_at, kind=EntryKind.RETRY, text=text)
    if facts.paused:
        yield TimelineEntry(at=facts.now, kind=EntryKind.PAUSED, text=facts.pause_text)
    if before.waiting or before.running:
        bound = "" if before.exact else "at most "
        runs = f"; running: {', '.join(before.running)}" if before.running else ""
        text = f"{bound}{counted(before.waiting, 'job', 'jobs')} of queue {job.queue} before it{runs}"
        yield TimelineEntry(at=facts.now, kind=EntryKind.BEHIND, text=text)


def _held(facts: JobFacts) -> Iterator[TimelineEntry]:
    job, life = facts.job, facts.job.life
    if life.cancel_requested and not life.cancelled_by:
        yield TimelineEntry(
            at=facts.now, kind=EntryKind.CANCELLING, text="it is to be cancelled", attempt=job.attempt
        )
    over = life.visible_until <= facts.now
    lapse = "its visibility ran out" if over else "its visibility runs out, unless its worker extends it"
    text = f"{lapse}; {counted(life.tries_after_lapse, 'try', 'tries')} left then"
    yield TimelineEntry(at=life.visible_until, kind=EntryKind.VISIBILITY, text=text, attempt=job.attempt)


def _with_cancellation(job: Job, entries: list[TimelineEntry]) -> list[TimelineEntry]:
    """Return the entries with who cancelled the job, before the first that is known to be later."""
    who, at = job.life.cancelled_by, job.life.cancelled_at
    if not who:
        return entries
    entry = TimelineEntry(at=at, kind=EntryKind.CANCELLING, text=f"{who} cancelled it", attempt=job.attempt)
    later = next((index for index, other in enumerate(entries) if other.at > at), len(entries))
    return [*entries[:later], entry, *entries[later:]]


def _finished(job: Job) -> TimelineEntry:
    result = job.result
    outcome = f", {result.outcome.name}" if result and result.outcome in _TELLING else ""
    error = f": {last_line(result.error_message)}" if result and result.error_message else ""
    return TimelineEntry(
        at=job.life.finished_at, kind=EntryKind.FINISHED, text=f"the job is {job.state.name}{outcome}{error}"
    )
