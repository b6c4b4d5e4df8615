"""What the services count, from what the store answered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airunner import telemetry
from airunner.domain.job import Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airunner.domain.event import EncodedEvent
    from airunner.domain.job import Job
    from airunner.domain.lifecycle import Lifecycle


def dequeued(jobs: Sequence[Job], lost: int) -> None:
    """Count claims; of these jobs, so many were taken from a worker that was not heard of again."""
    telemetry.jobs_dequeued.add(len(jobs))
    telemetry.jobs_redelivered.add(sum(job.attempt - job.life.handed_back > 1 for job in jobs))
    for job in jobs:
        if job.attempt == 1:
            telemetry.jobs_queue_wait.record((job.life.updated_at - job.life.due_at) / 1000)
    if lost:
        telemetry.attempts_lost.add(lost, "redelivered")


def completed(life: Lifecycle, events: Sequence[EncodedEvent], now: int, claimed_at: int) -> None:
    """Count a job that its holder completed; a repetition, which finds an older end, is none."""
    if not ended(life, now):
        return
    published(events)
    if claimed_at:
        telemetry.jobs_processing_time.record((now - claimed_at) / 1000)
    elif life.result and life.result.started_at:
        # Claimed before this server started; what the worker says comes close.
        telemetry.jobs_processing_time.record((life.result.completed_at - life.result.started_at) / 1000)


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
    """Count a job that ended just now; tell whether it did."""
    if not life.result or life.finished_at != now:
        return False
    telemetry.jobs_completed.add(1, life.state.name.lower(), life.result.outcome.name.lower())
    return True


def published(events: Sequence[EncodedEvent]) -> None:
    """Count events that were accepted. A range that was stored before counts again: repetitions are rare."""
    if events:
        telemetry.events_published.add(events[-1].last_sequence - events[0].first_sequence + 1)
        telemetry.events_batches.add(len(events))
        telemetry.events_published_bytes.add(sum([len(event.payload) for event in events]))
