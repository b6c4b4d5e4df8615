"""Reporting the ends of jobs until each is accepted, or never will be."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import structlog

from airunner.domain.errors import (
    AirunnerError,
    DeadlineExceeded,
    FailedPrecondition,
    InvalidArgument,
    InvalidTaskToken,
    MessageTooLarge,
    NotFound,
    ResourceExhausted,
    SequenceMismatch,
    Unavailable,
)
from airunner.domain.job import JobResult, Outcome
from airunner.domain.retry import retry
from airunner.domain.splitting import split_by_size
from airunner.worker.publishing.unpublished import event_bytes, gap_event

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airunner.domain.clock import Clock
    from airunner.domain.job import JobState
    from airunner.domain.requests import CompleteRequest
    from airunner.domain.retry import RetryPolicy
    from airunner.services.api import JobsApi

_log = structlog.get_logger("airunner.worker")

# A message of the contract may have 4 MiB; these leave room for what is not counted.
_CALL_BYTES: Final = 2 * 1024 * 1024
_RESULT_OVERHEAD: Final = 1024


class Completer:
    """Completes jobs, many in one call, each with its own outcome.

    Repeats what may succeed later for as long as it takes, so a job that is over stays over. Completions of
    lost attempts (NOT_FOUND) are forgotten, and so is one that makes the server fail: its visibility lapses.
    For one that the server finds incomplete, a Gap takes the place of the missing events. One that it refuses
    or finds too large is replaced by a failure without the handler's result, then by one without the last
    events: a job can always end.
    """

    def __init__(self, jobs: JobsApi, clock: Clock, policy: RetryPolicy) -> None:
        self._jobs = jobs
        self._clock = clock
        self._policy = policy

    async def complete(self, requests: Sequence[CompleteRequest]) -> None:
        """Return when every request is settled."""
        unsettled = list(requests)

        async def send() -> None:
            again: list[CompleteRequest] = []
            for call in split_by_size(unsettled, _size, _CALL_BYTES):
                again += await self._call(call)
            unsettled[:] = again
            if again:
                raise _Unsettled

        await retry(self._policy, self._clock, send, retry_if=lambda error: isinstance(error, _Unsettled))

    async def _call(self, requests: Sequence[CompleteRequest]) -> list[CompleteRequest]:
        """Send requests; return those that are to be sent again."""
        try:
            outcomes = await self._jobs.complete_jobs(requests)
        except (Unavailable, DeadlineExceeded, ResourceExhausted) as error:
            _log.warning("complete.failed", completions=len(requests), error=error.text)
            return list(requests)
        except AirunnerError as error:
            if len(requests) > 1:
                # One of them may be at fault: the others are sent without it.
                return [again for request in requests for again in await self._call([request])]
            _log.error("complete.given_up", job_id=requests[0].job_id, error=error.text)
            return []
        again = (self._next(request, outcome) for request, outcome in zip(requests, outcomes, strict=True))
        return [request for request in again if request]

    def _next(self, request: CompleteRequest, outcome: JobState | AirunnerError) -> CompleteRequest | None:
        """Return what to send after the outcome of a request; None if it is settled."""
        if not isinstance(outcome, AirunnerError):
            return None
        _log.warning("job.completion_refused", job_id=request.job_id, error=outcome.text)
        match outcome:
            case NotFound() | FailedPrecondition() | InvalidTaskToken():
                return None
            case SequenceMismatch(expected=expected):
                return _with_gap(request, expected, self._clock.now())
            case InvalidArgument() | MessageTooLarge():
                return _plain_failure(request, outcome, self._clock.now())
        return request


class _Unsettled(Exception):
    """Some completions are to be sent again."""


def _size(request: CompleteRequest) -> int:
    """Estimate what a request takes on the wire, before it is encoded."""
    result = request.result
    texts = _wire_bytes(result.output_json) + _wire_bytes(result.error_message)
    return _RESULT_OVERHEAD + texts + sum(map(event_bytes, request.events))


def _wire_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _with_gap(request: CompleteRequest, expected: int, now: int) -> CompleteRequest:
    """Put a Gap in the place of the missing events; where none helps, drop the check of the sequence."""
    events = list(request.events)
    last = events[0].sequence - 1 if events else request.result.final_sequence
    if expected > last:
        return replace(request, result=replace(request.result, final_sequence=0), events=())
    timestamp = events[0].timestamp if events else now
    gap = gap_event(expected, last, timestamp, "the server no longer has these events")
    return replace(request, events=[gap, *events])


def _plain_failure(request: CompleteRequest, error: AirunnerError, now: int) -> CompleteRequest | None:
    """Return a failure that tells what was refused, without the next part that may be at fault."""
    refused = request.result
    if not request.events and not refused.final_sequence and not refused.output_json:
        return None
    result = JobResult(
        success=False,
        outcome=Outcome.FAILURE,
        exit_code=refused.exit_code or 1,
        error_message=f"the server refused the result: {error.text[:1000]}",
        started_at=refused.started_at,
        completed_at=now,
    )
    if not refused.output_json:
        return replace(request, result=result, events=())
    # The result is most likely at fault: the events stay, so that the log is whole.
    proven = replace(result, final_sequence=refused.final_sequence, output_sha256=refused.output_sha256)
    return replace(request, result=proven)
