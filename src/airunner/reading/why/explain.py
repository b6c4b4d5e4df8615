"""The one sentence that says why a job is where it is. Pure, from the same facts as the timeline."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from airunner.domain.job import JobState, Outcome
from airunner.reading.instants import format_duration, to_iso
from airunner.reading.why.attempts import by_whom, counted, last_line, summarise_attempts

if TYPE_CHECKING:
    from airunner.domain.answers import WorkerSeen
    from airunner.domain.job import Job, JobParams, JobResult
    from airunner.reading.why.facts import JobFacts


class JobReason(StrEnum):
    """Why a job is where it is, for programs."""

    PAUSED = "paused"
    DELAYED = "delayed"
    RETRYING = "retrying"
    NO_WORKER = "no_worker"
    NO_HANDLER = "no_handler"
    NO_COMMANDS = "no_commands"
    UNREADABLE = "unreadable"
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


# What the worker itself says of a process that ended badly.
_EXITED: Final = "exited with code"
_KILLED: Final = "killed by"
_ENDS: Final = {
    JobState.COMPLETED: JobReason.COMPLETED,
    JobState.FAILED: JobReason.FAILED,
    JobState.CANCELLED: JobReason.CANCELLED,
}


@dataclass(frozen=True, slots=True)
class Explanation:
    """The reason, for programs and for people."""

    reason: JobReason
    text: str


def explain(facts: JobFacts) -> Explanation:
    """Return why the job is where it is."""
    match facts.job.state:
        case JobState.SCHEDULED:
            return _waits(facts)
        case JobState.RUNNING:
            return _runs(facts)
        case _:
            return _ended(facts)


def _waits(facts: JobFacts) -> Explanation:
    job, due_at = facts.job, facts.job.life.due_at
    queue = f"queue {job.queue}"
    if not job.has_params:
        text = "It waits because its parameters cannot be read, so that no worker gets it."
        return Explanation(JobReason.UNREADABLE, text)
    if facts.paused:
        return Explanation(JobReason.PAUSED, f"It waits because {facts.pause_text}.")
    if due_at > facts.now:
        when = f"until {to_iso(due_at)}, in {format_duration(due_at - facts.now)}"
        if job.attempt == 0:
            return Explanation(JobReason.DELAYED, f"It waits because it was delayed {when}.")
        why = f": {last_line(job.life.last_error)}" if job.life.last_error else ""
        return Explanation(
            JobReason.RETRYING, f"It waits {when}, to be tried again after attempt {job.attempt}{why}."
        )
    serving = [worker for worker in facts.workers if job.queue in worker.queues]
    if not serving:
        return Explanation(JobReason.NO_WORKER, f"It waits because no worker of {queue} was heard of lately.")
    if not any(_may_do(worker, job.params) for worker in serving):
        return _waits_for_ability(job.params.handler, queue)
    running = f"; {counted(facts.queue.running, 'job', 'jobs')} of it running" if facts.queue else ""
    if waiting := facts.before.waiting:
        bound = "" if facts.before.exact else "at most "
        are = "is" if waiting == 1 else "are"
        ahead = f"{bound}{counted(waiting, 'job', 'jobs')} of {queue} {are} before it"
        return Explanation(JobReason.BEHIND, f"It waits because {ahead}{running}.")
    return Explanation(
        JobReason.NEXT, f"It is the next of {queue} and waits for a worker to be free{running}."
    )


def _may_do(worker: WorkerSeen, params: JobParams) -> bool:
    """Return whether a worker can do a job, or may: of one with many handlers only some are known here."""
    abilities = worker.abilities
    if abilities is None or (params.handler and worker.more_handlers):
        return True
    return params.handler_key in abilities.keys


def _waits_for_ability(handler: str, queue: str) -> Explanation:
    if handler:
        text = f"It waits because no worker of {queue} has the handler {handler}."
        return Explanation(JobReason.NO_HANDLER, text)
    return Explanation(JobReason.NO_COMMANDS, f"It waits because no worker of {queue} runs commands.")


def _runs(facts: JobFacts) -> Explanation:
    job, life = facts.job, facts.job.life
    worker = f"worker {life.worker_id}" if life.worker_id else "its worker"
    silent = facts.now - life.visible_until
    if silent >= 0:
        return _silent(facts, worker, silent)
    if life.cancel_requested:
        text = f"It is being cancelled: {worker} is to stop it."
        if life.cancelled_by:
            text = f"It was cancelled{by_whom(life.cancelled_by, life.cancelled_at)}: {worker} is to stop it."
        return Explanation(JobReason.CANCELLING, text)
    attempt = summarise_attempts(job, facts.events)[-1]
    since = f" for {format_duration(facts.now - attempt.start.timestamp)}" if attempt.start else ""
    return Explanation(JobReason.RUNNING, f"It runs: attempt {job.attempt} on {worker}{since}.")


def _silent(facts: JobFacts, worker: str, silent: int) -> Explanation:
    life = facts.job.life
    lost = f"{worker} let its visibility run out {format_duration(silent)} ago"
    if life.cancel_requested:
        return Explanation(JobReason.CANCELLING, f"It is about to be CANCELLED: {lost}.")
    if life.tries_after_lapse <= 0:
        return Explanation(JobReason.WORKER_LOST, f"It is about to end as LOST: {lost}, and no try is left.")
    if facts.paused:
        because = f"because {facts.pause_text}; {lost}"
        return Explanation(JobReason.PAUSED, f"It waits to be begun again {because}.")
    return Explanation(JobReason.WORKER_LOST, f"It waits to be begun again: {lost}.")


def _ended(facts: JobFacts) -> Explanation:
    job, result = facts.job, facts.job.result
    if result is None:
        told = "; its result cannot be read" if job.abridged else ", and nobody said why"
        return Explanation(_ENDS[job.state], f"It is {job.state.name}{told}.")
    match result.outcome:
        case Outcome.SUCCESS:
            took = result.completed_at - result.started_at if result.started_at else 0
            after = f" after {format_duration(took)}" if took else ""
            return Explanation(JobReason.COMPLETED, f"It did its work in attempt {job.attempt}{after}.")
        case Outcome.FAILURE:
            return Explanation(JobReason.FAILED, f"It failed because {_failure(job, result)}.")
        case Outcome.TIMEOUT:
            limit = job.params.timeout_seconds
            longer = f"its timeout of {format_duration(limit * 1000)}" if limit else "it was allowed to"
            return Explanation(JobReason.TIMEOUT, f"It failed because it ran longer than {longer}.")
        case Outcome.INTERRUPTED:
            return Explanation(
                JobReason.INTERRUPTED, "It failed because its worker shut down on its last try."
            )
        case Outcome.CANCELLED:
            when = f"during attempt {job.attempt}" if job.attempt else "before it began"
            by = by_whom(job.life.cancelled_by, job.life.cancelled_at)
            return Explanation(JobReason.CANCELLED, f"It was cancelled {when}{by and ','}{by}.")
        case Outcome.LOST:
            tries = counted(job.life.max_attempts, "try", "tries")
            return Explanation(
                JobReason.LOST, f"It failed because its worker was lost on the last of {tries}."
            )


def _failure(job: Job, result: JobResult) -> str:
    told = result.error_message
    process = "its handler" if job.params.handler else "its process"
    if told.startswith(_KILLED):
        return f"{process} was {last_line(told).rstrip('.')}"
    if told and not told.startswith(_EXITED):
        return f"of this error: {last_line(told).rstrip('.')}"
    # Codes beyond 128 are not only those of signals: a process may exit with any.
    return f"{process} ended with exit code {result.exit_code}"
