"""The one sentence that says why a job is where it is. Pure, from the same evidence as the timeline."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from airunner.cli.attempt_story import attempt_stories, counted, gist, signal_name
from airunner.cli.instants import span, to_iso
from airunner.domain.job import JobState, Outcome

if TYPE_CHECKING:
    from airunner.cli.timeline import Evidence
    from airunner.domain.job import Job, JobResult


class Reason(StrEnum):
    """Why a job is where it is, for programs."""

    PAUSED = "paused"
    DELAYED = "delayed"
    RETRYING = "retrying"
    NO_WORKER = "no_worker"
    BEHIND = "behind"
    NEXT = "next"
    RUNNING = "running"
    CANCELLING = "cancelling"
    WORKER_LOST = "worker_lost"
    COMPLETED = "completed"
    FAILED = "failed"
    TIMEOUT = "timeout"
    INTERRUPTED = "interrupted"
    CANCELLED = "cancelled"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Answer:
    """The reason, for programs and for people."""

    reason: Reason
    text: str


def answer(evidence: Evidence) -> Answer:
    """Return why the job is where it is."""
    match evidence.job.state:
        case JobState.SCHEDULED:
            return _waits(evidence)
        case JobState.RUNNING:
            return _runs(evidence)
        case _:
            return _ended(evidence)


def _waits(evidence: Evidence) -> Answer:
    job, due_at = evidence.job, evidence.job.life.due_at
    queue = f"queue {job.queue}"
    if evidence.paused:
        return Answer(Reason.PAUSED, f"It waits because {queue} is paused.")
    if due_at > evidence.now:
        when = f"until {to_iso(due_at)}, in {span(due_at - evidence.now)}"
        if job.attempt == 0:
            return Answer(Reason.DELAYED, f"It waits because it was delayed {when}.")
        why = f": {gist(job.life.last_error)}" if job.life.last_error else ""
        return Answer(
            Reason.RETRYING, f"It waits {when}, to be tried again after attempt {job.attempt}{why}."
        )
    if not any(job.queue in worker.queues for worker in evidence.workers):
        return Answer(Reason.NO_WORKER, f"It waits because no worker of {queue} was heard of lately.")
    running = f"; {counted(evidence.queue.running, 'job', 'jobs')} of it running" if evidence.queue else ""
    if waiting := evidence.before.waiting:
        most = "" if evidence.before.exact else "at most "
        are = "is" if waiting == 1 else "are"
        ahead = f"{most}{counted(waiting, 'job', 'jobs')} of {queue} {are} before it"
        return Answer(Reason.BEHIND, f"It waits because {ahead}{running}.")
    return Answer(Reason.NEXT, f"It is the next of {queue} and waits for a worker to be free{running}.")


def _runs(evidence: Evidence) -> Answer:
    job, life = evidence.job, evidence.job.life
    worker = f"worker {life.worker_id}" if life.worker_id else "its worker"
    silent = evidence.now - life.visible_until
    if silent >= 0:
        return _silent(evidence, worker, silent)
    if life.cancel_requested:
        return Answer(Reason.CANCELLING, f"It is being cancelled: {worker} is to stop it.")
    story = attempt_stories(job, evidence.events)[-1]
    since = f" for {span(evidence.now - story.start.timestamp)}" if story.start else ""
    return Answer(Reason.RUNNING, f"It runs: attempt {job.attempt} on {worker}{since}.")


def _silent(evidence: Evidence, worker: str, silent: int) -> Answer:
    life = evidence.job.life
    lost = f"{worker} let its visibility run out {span(silent)} ago"
    if life.cancel_requested:
        return Answer(Reason.CANCELLING, f"It is about to be CANCELLED: {lost}.")
    if life.tries_left <= 0:
        return Answer(Reason.WORKER_LOST, f"It is about to end as LOST: {lost}, and no try is left.")
    if evidence.paused:
        paused = f"queue {evidence.job.queue} is paused"
        return Answer(Reason.PAUSED, f"It waits to be begun again because {paused}; {lost}.")
    return Answer(Reason.WORKER_LOST, f"It waits to be begun again: {lost}.")


def _ended(evidence: Evidence) -> Answer:
    job, result = evidence.job, evidence.job.result
    if result is None:
        return Answer(Reason.FAILED, f"It is {job.state.name}, and nobody said why.")
    match result.outcome:
        case Outcome.SUCCESS:
            took = result.completed_at - result.started_at if result.started_at else 0
            after = f" after {span(took)}" if took else ""
            return Answer(Reason.COMPLETED, f"It did its work in attempt {job.attempt}{after}.")
        case Outcome.FAILURE:
            return Answer(Reason.FAILED, f"It failed because {_failure(job, result)}.")
        case Outcome.TIMEOUT:
            limit = job.params.timeout_seconds
            longer = f"its timeout of {span(limit * 1000)}" if limit else "it was allowed to"
            return Answer(Reason.TIMEOUT, f"It failed because it ran longer than {longer}.")
        case Outcome.INTERRUPTED:
            return Answer(Reason.INTERRUPTED, "It failed because its worker shut down on its last try.")
        case Outcome.CANCELLED:
            when = f"during attempt {job.attempt}" if job.attempt else "before it began"
            return Answer(Reason.CANCELLED, f"It was cancelled {when}.")
        case Outcome.LOST:
            tries = counted(job.life.max_attempts, "try", "tries")
            return Answer(Reason.LOST, f"It failed because its worker was lost on the last of {tries}.")


def _failure(job: Job, result: JobResult) -> str:
    code = result.exit_code
    if result.error_message and not result.error_message.startswith(("exited with code", "killed by")):
        return f"of this error: {gist(result.error_message).rstrip('.')}"
    process = "its handler" if job.params.handler else "its process"
    if code > 128:
        return f"{process} was killed by {signal_name(code - 128)}"
    return f"{process} ended with exit code {code}"
