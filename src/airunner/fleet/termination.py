"""Closes the books of an attempt that has ended on an instance.

In this order: the job is ended, if its worker did not do so; the parameter of the instance is deleted; the
attempt is counted, once whatever number of messages tell of it and in whatever order; the message is acked.
Each step may be repeated, so that a death between any two only means that all of it is done again.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from airunner.domain import limits
from airunner.domain.errors import InvalidArgument, JobNotFound, PermanentFailure
from airunner.domain.job import JobResult, Outcome
from airunner.fleet.messages.termination import EndStatus
from airunner.telemetry import fleet_metrics
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from airunner.domain.clock import Clock
    from airunner.domain.token import TerminationSigner
    from airunner.fleet.dependencies import Dependencies
    from airunner.fleet.messages.termination import TerminationMessage
    from airunner.fleet.ports import FleetRecords, RunnerParameters

_log = get_logger("airunner.fleet")

CONCURRENCY: Final = 5
"""How many messages are processed at once."""
_OUTCOMES: Final = {
    EndStatus.SUCCESS: Outcome.SUCCESS,
    EndStatus.FAILURE: Outcome.FAILURE,
    EndStatus.TIMEOUT: Outcome.TIMEOUT,
    EndStatus.INTERRUPTED: Outcome.INTERRUPTED,
}
# What a shell says of a command that it cannot run.
_CANNOT_START: Final = (126, 127)


class AttemptEnds(Protocol):
    """Ends attempts whose holders are gone; the JobService does."""

    async def end_attempt(
        self, job_id: str, attempt: int, instance_id: str, result: JobResult, *, give_back: bool = False
    ) -> bool:
        """See JobService."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminationRules:
    """What the operator decides about ends."""

    require_token: bool = True
    """Whether a message must prove that it is of its instance; agents of others cannot."""
    requeue_interrupted: bool = True
    """Whether an attempt that was interrupted is given back; otherwise it ends its job."""


class TerminationProcessor:
    """Processes termination messages; see the module."""

    def __init__(
        self,
        jobs: AttemptEnds,
        parameters: RunnerParameters,
        records: FleetRecords,
        signer: TerminationSigner,
        *,
        dependencies: Dependencies,
        clock: Clock,
        rules: TerminationRules | None = None,
    ) -> None:
        self._jobs = jobs
        self._parameters = parameters
        self._records = records
        self._signer = signer
        self._dependencies = dependencies
        self._clock = clock
        self._rules = rules or TerminationRules()

    async def process(self, message: TerminationMessage) -> None:
        """Close the books of one attempt. PermanentFailure for a message that proves or names nothing."""
        fleet_metrics.unknown_fields.add(len(message.unknown_fields), "termination")
        job_id = _canonical(message.job_id)
        self._check_token(message, job_id)
        is_known = await self._dependencies.call("end_attempt", lambda: self._end(message, job_id))
        name = self._parameters.name_of(message.instance_id)
        await self._dependencies.call("delete_parameter", lambda: self._parameters.delete([name]))
        if not is_known:
            raise PermanentFailure("unknown_job", f"there is no job {message.job_id}")
        await self._count(message, job_id)

    def _check_token(self, message: TerminationMessage, job_id: str) -> None:
        if not self._rules.require_token:
            return
        text, attempt, instance_id = message.termination_token, message.attempt, message.instance_id
        if not self._signer.verifies(text, job_id, attempt, instance_id):
            raise PermanentFailure("token", "the termination token is not of this job, attempt and instance")

    async def _end(self, message: TerminationMessage, job_id: str) -> bool:
        """End the job if it still runs; return whether there is such a job."""
        if not job_id:
            return False
        gives_back = message.status is EndStatus.INTERRUPTED and self._rules.requeue_interrupted
        try:
            is_ended = await self._jobs.end_attempt(
                job_id, message.attempt, message.instance_id, _result(message), give_back=gives_back
            )
        except JobNotFound:
            return False
        if is_ended:
            _log.info("fleet.attempt_ended", job_id=job_id, status=message.status.value)
        return True

    async def _count(self, message: TerminationMessage, job_id: str) -> None:
        """Count the attempt if nobody did. A death right after the mark loses it, and none is doubled."""
        attempt, now, by = (
            str(message.attempt or message.instance_id),
            self._clock.now(),
            secrets.token_hex(8),
        )
        is_new = await self._dependencies.call(
            "count_once", lambda: self._records.count_once(job_id, attempt, now, by=by)
        )
        if not is_new:
            return
        fleet_metrics.job_duration.record(message.duration_seconds, values=(message.status.value,))
        if message.status is EndStatus.SUCCESS:
            fleet_metrics.job_successes.add(1)
        else:
            fleet_metrics.job_failures.add(1, failure_kind(message))


def failure_kind(message: TerminationMessage) -> str:
    """Return one of a few words for why an attempt did not succeed; never its text."""
    if message.status is EndStatus.TIMEOUT:
        return "Timeout"
    if message.status is EndStatus.INTERRUPTED:
        return "Interrupted"
    if message.is_handler:
        return "HandlerError"
    if message.exit_code in _CANNOT_START:
        return "CannotStart"
    return "NonZeroExit" if message.exit_code else "Other"


def _canonical(job_id: str) -> str:
    """Return the id of a job as we write it; empty for what is none of ours."""
    try:
        return limits.check_uuid(job_id, "job_id")
    except InvalidArgument:
        return ""


def _result(message: TerminationMessage) -> JobResult:
    error = message.error.encode()[: limits.MAX_ERROR_TEXT_BYTES].decode(errors="ignore")
    return JobResult(
        success=message.status is EndStatus.SUCCESS,
        outcome=_OUTCOMES[message.status],
        exit_code=message.exit_code,
        error_message=error,
        started_at=message.started_at,
        completed_at=message.completed_at,
    )
