"""What became of the attempts that a worker was given, noted where it speaks to the server.

The worker itself knows nothing of it: it gets jobs, and reports their ends, through these notes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from airunner.domain.errors import FailedPrecondition, NotFound
from airunner.domain.job import Outcome
from airunner.fleet.messages.termination import EndStatus, TerminationMessage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airunner.domain.answers import DequeuedJob, HeldJob
    from airunner.domain.clock import Clock
    from airunner.domain.errors import AirunnerError
    from airunner.domain.job import JobResult, JobState
    from airunner.domain.requests import CompleteRequest, DequeueRequest, ReleaseRequest, UpdateRequest
    from airunner.services.api import HoldingApi

_STATUSES: Final = {
    Outcome.SUCCESS: EndStatus.SUCCESS,
    Outcome.FAILURE: EndStatus.FAILURE,
    Outcome.TIMEOUT: EndStatus.TIMEOUT,
}
# Escaped in JSON a character takes up to twelve bytes, and every queue takes 256 KiB.
_MAX_ERROR_CHARACTERS: Final = 8_000


@dataclass(slots=True, kw_only=True)
class ObservedAttempt:
    """One attempt: what is known of its end by now. Without any, it was interrupted."""

    job_id: str
    attempt: int
    dequeued_at: int
    is_handler: bool = False
    termination_token: str = field(default="", repr=False)
    result: JobResult | None = None
    """The last one that was reported, whether or not an answer came."""
    superseded: bool = False
    """Whether the server refused that result, since the attempt was over by then."""
    release_error: str = ""
    """The error with which the attempt was given back, if the server took it."""

    @property
    def status(self) -> EndStatus:
        """How the attempt ended.

        One that was given back failed if that was for an error, and the server knows of it. Otherwise it was
        interrupted: a report of a failure would end a job that has tries left.
        """
        if self.result and not self.superseded:
            return _STATUSES.get(self.result.outcome, EndStatus.INTERRUPTED)
        return EndStatus.FAILURE if self.release_error else EndStatus.INTERRUPTED

    def message(self, instance_id: str, now: int) -> TerminationMessage:
        """Return the report of this end; it makes sense whatever the machine's clock did meanwhile."""
        result, status = self.result, self.status
        started_at = (result.started_at if result else 0) or self.dequeued_at
        completed_at = max(started_at, (result.completed_at if result else 0) or now)
        error = self.release_error or (result.error_message if result else "")
        given_back = status is EndStatus.FAILURE and not result
        return TerminationMessage(
            instance_id=instance_id,
            job_id=self.job_id,
            status=status,
            exit_code=result.exit_code if result else int(given_back),
            duration_seconds=(completed_at - started_at) / 1000,
            started_at=started_at,
            completed_at=completed_at,
            error="" if status is EndStatus.SUCCESS else error[:_MAX_ERROR_CHARACTERS],
            attempt=self.attempt,
            termination_token=self.termination_token,
            is_handler=self.is_handler,
        )


class ObservedJobs:
    """Implements HoldingApi over another, and notes each attempt from its dequeue to its end."""

    def __init__(self, jobs: HoldingApi, clock: Clock) -> None:
        self._jobs = jobs
        self._clock = clock
        self._by_token: dict[str, ObservedAttempt] = {}

    @property
    def attempts(self) -> Sequence[ObservedAttempt]:
        """All attempts that were dequeued, in their order."""
        return list(self._by_token.values())

    async def dequeue_jobs(self, request: DequeueRequest) -> Sequence[DequeuedJob]:
        """Claim jobs, and note them."""
        dequeued = await self._jobs.dequeue_jobs(request)
        for one in dequeued:
            self._by_token[one.task_token] = ObservedAttempt(
                job_id=one.job.job_id,
                attempt=one.job.attempt,
                dequeued_at=self._clock.now(),
                is_handler=bool(one.job.params.handler),
                termination_token=one.termination_token,
            )
        return dequeued

    async def update_job(self, request: UpdateRequest) -> HeldJob:
        """Extend the visibility of a held job. That it is over is learned again when its end is reported."""
        return await self._jobs.update_job(request)

    async def complete_jobs(self, requests: Sequence[CompleteRequest]) -> Sequence[JobState | AirunnerError]:
        """End held jobs, and note their results: before the call, whose answer may never come."""
        attempts = [self._by_token.get(request.task_token) for request in requests]
        for attempt, request in zip(attempts, requests, strict=True):
            if attempt:
                attempt.result = request.result
        outcomes = await self._jobs.complete_jobs(requests)
        for attempt, outcome in zip(attempts, outcomes, strict=True):
            if attempt:
                attempt.superseded = isinstance(outcome, NotFound | FailedPrecondition)
        return outcomes

    async def release_job(self, request: ReleaseRequest) -> JobState:
        """Give a held job back, and note the error of its attempt once the server knows it."""
        state = await self._jobs.release_job(request)
        if attempt := self._by_token.get(request.task_token):
            attempt.release_error = request.error
        return state
