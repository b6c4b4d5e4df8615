"""What the services count, from what the store answered."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypeVar

from airunner import telemetry
from airunner.domain.job import JobState, Outcome
from airunner.domain.record import record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airunner.domain.event import EncodedEvent
    from airunner.domain.job import Job
    from airunner.domain.lifecycle import Lifecycle
    from airunner.telemetry.instruments import Histogram

T = TypeVar("T")


def dequeued(jobs: Sequence[Job], lost: int) -> None:
    """Count claims; `lost` of these jobs were held by a worker that never released them."""
    telemetry.jobs_dequeued.add(len(jobs))
    for life, times in _counted([job.life for job in jobs]):
        is_again = life.attempt - life.handed_back > 1 or life.silent_attempts > 1
        telemetry.jobs_redelivered.add(times if is_again else 0)
        if life.attempt == 1:
            telemetry.jobs_queue_wait.record((life.updated_at - life.due_at) / 1000, times)
    if lost:
        telemetry.attempts_lost.add(lost, "redelivered")


@record
class Completed:
    """A job that its holder completed, and since when it held it, 0 if that is not known."""

    life: Lifecycle
    events: Sequence[EncodedEvent]
    claimed_at: int


def completed(jobs: Sequence[Completed], now: int) -> None:
    """Count the completions of one call; a repetition, which finds an older end, is none."""
    jobs = [job for job in jobs if job.life.finished_at == now]
    _ended([job.life for job in jobs])
    for events, times in _counted([job.events for job in jobs]):
        published(events, times)
    _record(telemetry.jobs_processing_time, [took for job in jobs if (took := _took(job, now)) is not None])


def released(life: Lifecycle, events: Sequence[EncodedEvent], now: int) -> None:
    """Count an attempt that was given back, and the job if that was its end."""
    telemetry.jobs_released.add(1)
    published(events)
    ended(life, now)


def expired(life: Lifecycle) -> None:
    """Count a job that ended because its holder is gone."""
    ended(life, life.finished_at)
    if life.result and life.result.outcome is Outcome.LOST:
        telemetry.attempts_lost.add(1, "failed")


def ended(life: Lifecycle, now: int) -> bool:
    """Count a job if it ended just now; return whether it did."""
    if not life.result or life.finished_at != now:
        return False
    _ended([life])
    return True


def published(events: Sequence[EncodedEvent], times: int = 1) -> None:
    """Count events that were accepted, of so many jobs.

    A range that was stored before counts again: repetitions are rare.
    """
    if events:
        covered = [event.last_sequence - event.first_sequence for event in events]
        telemetry.events_published.add(times * (sum(covered) + len(covered)))
        telemetry.events_batches.add(times * len(covered))
        telemetry.events_published_bytes.add(times * sum([len(event.payload) for event in events]))


def _ended(lives: Sequence[Lifecycle]) -> None:
    # By numbers: the hash of a member is a call.
    counts = Counter([(int(life.state), int(life.result.outcome)) for life in lives if life.result])
    for (state, outcome), times in counts.items():
        telemetry.jobs_completed.add(times, JobState(state).name.lower(), Outcome(outcome).name.lower())


def _took(job: Completed, now: int) -> int | None:
    """Return the milliseconds from claim to end, None if nobody can tell."""
    if job.claimed_at:
        return now - job.claimed_at
    result = job.life.result
    # Claimed before this server started; what the worker says comes close.
    return result.completed_at - result.started_at if result and result.started_at else None


def _counted(values: Sequence[T]) -> list[tuple[T, int]]:
    """Return each object once, and how often it is there: jobs of one call share most of what they have."""
    objects = {id(value): value for value in values}
    return [(objects[key], times) for key, times in Counter(map(id, values)).items()]


def _record(histogram: Histogram, millis: Sequence[int]) -> None:
    """Record times of jobs that came in one call: they have few different ones."""
    for value, times in Counter(millis).items():
        histogram.record(value / 1000, times)
