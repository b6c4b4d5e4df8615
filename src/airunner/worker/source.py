"""The JobService as a Source: dequeue, heartbeat, complete and release."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog

from airunner import telemetry
from airunner.domain import limits
from airunner.domain.errors import (
    AirunnerError,
    FailedPrecondition,
    InvalidArgument,
    MessageTooLarge,
    NotFound,
)
from airunner.domain.job import JobResult, Outcome
from airunner.domain.requests import (
    CompleteRequest,
    DequeueRequest,
    ReleaseRequest,
    UpdateRequest,
)
from airunner.domain.retry import RetryPolicy
from airunner.queues.base import Delivery, Hold
from airunner.worker.attempt import Attempt, JobOutcome
from airunner.worker.completion import Completer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airunner.domain.answers import DequeuedJob, HeldJob
    from airunner.domain.clock import Clock
    from airunner.domain.errors import PermanentFailure
    from airunner.services.api import JobsApi

_log = structlog.get_logger("airunner.worker")

_EXTEND_AFTER_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """Which jobs a worker wants, and as whom."""

    queues: Sequence[str]
    """In strict order: a later queue is served when the earlier ones have nothing."""
    worker_id: str = ""
    instance_id: str = ""
    visibility_timeout_seconds: int = 0
    wait_seconds: int = limits.MAX_DEQUEUE_WAIT_SECONDS


class JobSource:
    """Implements Source over any JobsApi.

    A heartbeat is one UpdateJob that the server holds until there is news or the next is due. A server that
    does not answer is asked again and again: only NOT_FOUND makes a job LOST. A dead-lettered job is one
    that is completed as failed.
    """

    def __init__(
        self, jobs: JobsApi, subscription: Subscription, *, clock: Clock, policy: RetryPolicy | None = None
    ) -> None:
        self._jobs = jobs
        self._subscription = subscription
        self._clock = clock
        self._policy = policy or RetryPolicy()
        self._completer = Completer(jobs, clock, self._policy)

    async def receive(self, max_deliveries: int) -> Sequence[Delivery[Attempt]]:
        """Dequeue jobs from the first queue that has any."""
        wanted = self._subscription
        request = DequeueRequest(
            queue=wanted.queues[0],
            more_queues=wanted.queues[1:],
            max_jobs=min(max_deliveries, limits.MAX_DEQUEUE_JOBS),
            visibility_timeout_seconds=wanted.visibility_timeout_seconds,
            wait_seconds=wanted.wait_seconds,
            worker_id=wanted.worker_id,
            instance_id=wanted.instance_id,
        )
        try:
            return [_delivery(dequeued) for dequeued in await self._jobs.dequeue_jobs(request)]
        except AirunnerError:
            telemetry.receives_failed.add(1)
            raise

    async def extend(self, delivery: Delivery[Attempt]) -> Hold:
        """Heartbeat, until the next one is due or there is news."""
        attempt = delivery.body
        interval = _heartbeat_seconds(attempt)
        # A server that was told to wait for a cancellation it has reported already would answer at once.
        held_by_server = interval >= 1 and not delivery.cancelled.is_set()
        held = await self._heartbeat(attempt, int(interval) if held_by_server else 0)
        if held is None:
            return Hold.LOST
        attempt.set_watched(held.watched)
        if held.cancel_requested and not delivery.cancelled.is_set():
            return Hold.CANCELLED
        if not held_by_server:
            await self._clock.sleep(interval)
        return Hold.HELD

    async def ack(self, settlements: Sequence[tuple[Delivery[Attempt], JobOutcome]]) -> None:
        """Complete jobs, many in one call."""
        await self._completer.complete(
            [_completion(delivery.body, outcome) for delivery, outcome in settlements]
        )

    async def release(self, delivery: Delivery[Attempt], delay_seconds: float, error: str) -> None:
        """Give a job back; one that has not begun costs no try."""
        attempt = delivery.body
        request = ReleaseRequest(
            task_token=attempt.task_token,
            delay_seconds=math.ceil(delay_seconds),
            unstarted=not (attempt.begun or attempt.last_events or error),
            error=error[: limits.MAX_ERROR_TEXT_BYTES // 4],
            events=attempt.last_events,
        )
        await self._release(request, attempt)

    async def dead_letter(self, delivery: Delivery[Attempt], failure: PermanentFailure) -> None:
        """Complete a job as failed for good."""
        attempt = delivery.body
        text = str(failure)[: limits.MAX_ERROR_TEXT_BYTES // 4]
        final_sequence = attempt.last_events[-1].last_sequence if attempt.last_events else 0
        result = JobResult(
            success=False,
            outcome=Outcome.FAILURE,
            exit_code=1,
            error_message=text,
            completed_at=self._clock.now(),
            final_sequence=final_sequence,
        )
        outcome = JobOutcome(result=result, events=attempt.last_events)
        await self._completer.complete([_completion(attempt, outcome)])

    async def _heartbeat(self, attempt: Attempt, wait_seconds: int) -> HeldJob | None:
        """Return what the server says, however long it takes to reach it; None if the attempt is over."""
        failures = 0
        while True:
            request = UpdateRequest(
                queue=attempt.job.queue,
                task_token=attempt.task_token,
                wait_seconds=wait_seconds,
                watched=attempt.watched,
            )
            try:
                return await self._jobs.update_job(request)
            except NotFound:
                return None
            except AirunnerError as error:
                failures += 1
                telemetry.heartbeats_failed.add(1)
                _log.warning(
                    "heartbeat.failed", job_id=attempt.job.job_id, failures=failures, error=error.text
                )
            await self._clock.sleep(self._policy.delay(failures))

    async def _release(self, request: ReleaseRequest, attempt: Attempt) -> None:
        failures = 0
        while True:
            try:
                state = await self._jobs.release_job(request)
            except (NotFound, InvalidArgument, FailedPrecondition, MessageTooLarge) as error:
                _log.warning("job.release_refused", job_id=attempt.job.job_id, error=error.text)
                return
            except AirunnerError as error:
                failures += 1
                _log.warning("job.release_failed", job_id=attempt.job.job_id, error=error.text)
                await self._clock.sleep(self._policy.delay(failures))
            else:
                _log.info(
                    "job.released",
                    job_id=attempt.job.job_id,
                    attempt=attempt.job.attempt,
                    unstarted=request.unstarted,
                    state=state.name,
                )
                return


def _delivery(dequeued: DequeuedJob) -> Delivery[Attempt]:
    attempt = Attempt(job=dequeued.job, task_token=dequeued.task_token)
    return Delivery(
        body=attempt,
        key=dequeued.job.job_id,
        attempt=max(1, dequeued.job.attempt),
        extend_after_seconds=min(_EXTEND_AFTER_SECONDS, _heartbeat_seconds(attempt)),
    )


def _heartbeat_seconds(attempt: Attempt) -> float:
    """The smaller of the server's interval and a third of the visibility."""
    life = attempt.job.life
    # Both are instants of the server's clock, taken together when the job was claimed.
    visibility = (life.visible_until - life.updated_at) / 1000
    interval = attempt.job.execution.heartbeat_interval_seconds
    return max(0.1, min(interval, visibility / 3, limits.MAX_UPDATE_WAIT_SECONDS))


def _completion(attempt: Attempt, outcome: JobOutcome) -> CompleteRequest:
    return CompleteRequest(
        task_token=attempt.task_token,
        result=outcome.result,
        events=outcome.events,
        job_id=attempt.job.job_id,
    )
