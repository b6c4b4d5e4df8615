"""Reporting the ends of jobs until each is accepted, or never will be."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from airunner import telemetry
from airunner.domain.errors import (
    AirunnerError,
    DeadlineExceeded,
    FailedPrecondition,
    InvalidArgument,
    InvalidTaskToken,
    MessageTooLarge,
    NotFound,
    Overloaded,
    PermissionDenied,
    ResourceExhausted,
    SequenceMismatch,
    Unauthenticated,
    Unavailable,
    retry_after_seconds,
)
from airunner.domain.job import JobResult, Outcome
from airunner.domain.retry import retry
from airunner.domain.splitting import split_by_size
from airunner.telemetry.logs import get_logger
from airunner.worker.attempt import REFUSED_TOKEN_SECONDS
from airunner.worker.publishing.unpublished import event_bytes, with_gap

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from airunner.domain.clock import Clock
    from airunner.domain.requests import CompleteRequest
    from airunner.domain.retry import RetryPolicy
    from airunner.services.api import HoldingApi

_log = get_logger("airunner.worker")

# Unpacked: a server looks at all events of a call at one go, and other calls wait meanwhile.
_CALL_BYTES: Final = 2 * 1024 * 1024
_RESULT_OVERHEAD: Final = 1024
_KEEP_SECONDS: Final = 600.0
# Errors that no other division of the requests would change.
_OF_THE_CALLER: Final = (Unauthenticated, PermissionDenied)


class Completer:
    """Completes jobs, many in one call, each with its own outcome.

    Repeats what may succeed later for as long as it takes, so a job that is over stays over. Completions of
    lost attempts (NOT_FOUND, FAILED_PRECONDITION) are forgotten. After an answer that no completion should
    have (a proxy's, a key that was revoked, a failing server) it is repeated for ten minutes, or for the
    visibility where that is longer; after one that refuses the task token, for `refused_token_seconds`.
    For one that the server finds incomplete, a Gap takes the place of the missing events. One that it refuses
    or finds too large is replaced by a failure without the handler's result, then by one without the last
    events: a job can always end.
    """

    def __init__(
        self,
        jobs: HoldingApi,
        clock: Clock,
        policy: RetryPolicy,
        *,
        refused_token_seconds: float = REFUSED_TOKEN_SECONDS,
    ) -> None:
        self._jobs = jobs
        self._clock = clock
        self._policy = policy
        self._refused_token_ms = round(1000 * refused_token_seconds)
        self._odd_since: dict[str, int] = {}

    async def complete(self, requests: Sequence[CompleteRequest], visibility_seconds: float = 0) -> None:
        """Return when every request is settled; their attempts are visible for so long after a heartbeat."""
        unsettled = list(requests)
        rules = _Rules(keep_ms=round(1000 * max(_KEEP_SECONDS, visibility_seconds)))

        async def send() -> None:
            again: list[CompleteRequest] = []
            rules.pause_seconds = 0.0
            for call in _divided(unsettled):
                again += await self._call(call, rules)
            unsettled[:] = again
            if again:
                raise _Unsettled(retry_after_seconds=rules.pause_seconds)

        try:
            await retry(self._policy, self._clock, send, retry_if=lambda error: isinstance(error, _Unsettled))
        finally:
            for request in requests if self._odd_since else ():
                self._odd_since.pop(request.task_token, None)

    async def _call(self, requests: Sequence[CompleteRequest], rules: _Rules) -> list[CompleteRequest]:
        """Send requests; return those that are to be sent again."""
        try:
            outcomes = await self._jobs.complete_jobs(requests)
        except (Unavailable, DeadlineExceeded, ResourceExhausted) as error:
            rules.pause_seconds = max(rules.pause_seconds, retry_after_seconds(error))
            _log.warning("complete.failed", completions=len(requests), error=error.text)
            return list(requests)
        except AirunnerError as error:
            if len(requests) > 1 and not isinstance(error, _OF_THE_CALLER):
                # One of them may be at fault: the others are sent without it.
                return [again for request in requests for again in await self._call([request], rules)]
            outcomes = [error] * len(requests)
        again = [
            self._next(request, outcome, rules.keep_ms)
            for request, outcome in zip(requests, outcomes, strict=True)
            if isinstance(outcome, AirunnerError)
        ]
        return [request for request in again if request]

    def _next(self, request: CompleteRequest, outcome: AirunnerError, keep_ms: int) -> CompleteRequest | None:
        """Return what to send after the error of a request; None if it is settled."""
        _log.warning("job.completion_refused", job_id=request.job_id, error=outcome.text)
        match outcome:
            case NotFound() | FailedPrecondition():
                return None
            case InvalidTaskToken():
                return self._keep(request, outcome, self._refused_token_ms)
            case SequenceMismatch(expected=expected):
                return _with_gap(request, expected, self._clock.now())
            case InvalidArgument() | MessageTooLarge():
                return _plain_failure(request, outcome, self._clock.now())
            case Unavailable() | DeadlineExceeded() | ResourceExhausted():
                return request
        return self._keep(request, outcome, keep_ms)

    def _keep(self, request: CompleteRequest, error: AirunnerError, keep_ms: int) -> CompleteRequest | None:
        """Return the request to be sent again, until it was answered like this for too long."""
        now = self._clock.monotonic()
        if now - self._odd_since.setdefault(request.task_token, now) < keep_ms:
            return request
        telemetry.events_dropped.add(
            sum(event.last_sequence - event.sequence + 1 for event in request.events)
        )
        _log.error("complete.given_up", job_id=request.job_id, error=error.text)
        return None


@dataclass(slots=True)
class _Rules:
    """For how long an odd answer is borne, and how long the server wants the next round to wait."""

    keep_ms: int
    pause_seconds: float = 0.0


class _Unsettled(Overloaded):
    """Some completions are to be sent again."""


def _divided(requests: Sequence[CompleteRequest]) -> list[list[CompleteRequest]]:
    """Divide requests into calls of a bounded size; each is looked at only if all may be too much for one."""
    sizes = {id(request.events): sum(map(event_bytes, request.events)) for request in _by_events(requests)}
    results = [request.result for request in requests]
    texts = [len(result.output_json) + len(result.error_message) for result in results]
    # A character has four bytes at most.
    if (
        len(requests) * (_RESULT_OVERHEAD + max(sizes.values(), default=0) + 4 * max(texts, default=0))
        <= _CALL_BYTES
    ):
        return [list(requests)]

    def size_of(request: CompleteRequest) -> int:
        result = request.result
        written = _wire_bytes(result.output_json) + _wire_bytes(result.error_message)
        return _RESULT_OVERHEAD + sizes[id(request.events)] + written

    return split_by_size(requests, size_of, _CALL_BYTES)


def _by_events(requests: Sequence[CompleteRequest]) -> Collection[CompleteRequest]:
    """Return one request for all that share their events: what has ended together mostly does."""
    return {id(request.events): request for request in requests}.values()


def _wire_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _with_gap(request: CompleteRequest, expected: int, now: int) -> CompleteRequest:
    """Put a Gap in the place of the missing events; where none helps, drop the check of the sequence."""
    last = request.events[0].sequence - 1 if request.events else request.result.final_sequence
    events = with_gap(request.events, expected, last, now)
    if events is None:
        return replace(request, result=replace(request.result, final_sequence=0), events=())
    return replace(request, events=events)


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
