"""The JobService as the source of a worker: dequeue, heartbeat, complete and release."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from airunner import telemetry
from airunner.domain import limits
from airunner.domain.errors import (
    AirunnerError,
    FailedPrecondition,
    InvalidArgument,
    InvalidTaskToken,
    MessageTooLarge,
    NotFound,
    SequenceMismatch,
)
from airunner.domain.job import JobResult, Outcome
from airunner.domain.requests import (
    CompleteRequest,
    DequeueRequest,
    ReleaseRequest,
    UpdateRequest,
)
from airunner.domain.retry import RetryPolicy, retry
from airunner.queues.base import Delivery, Hold
from airunner.telemetry.logs import get_logger
from airunner.worker.attempt import REFUSED_TOKEN_SECONDS, Attempt, JobOutcome
from airunner.worker.completion import Completer
from airunner.worker.publishing.unpublished import with_gap

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Sequence

    from airunner.domain.answers import DequeuedJob, HeldJob
    from airunner.domain.clock import Clock
    from airunner.domain.errors import PermanentFailure
    from airunner.domain.job import JobState
    from airunner.domain.requests import Abilities
    from airunner.services.api import HoldingApi

_log = get_logger("airunner.worker")

ClosedQueues: TypeAlias = "Callable[[], Awaitable[Collection[str]]]"

_EXTEND_AFTER_SECONDS: Final = 1.0
# So soon a queue that was closed is served again.
_CLOSED_SECONDS: Final = 1
_TOO_SOON_MS: Final = 500
_UNHELD_SECONDS: Final = 5.0
# Jobs whose answer never reached us come back after this, far longer than the first heartbeat takes.
_FIRST_LEASE_SECONDS: Final = 30
# A release that is answered so will not be accepted later either.
_REFUSALS: Final = (NotFound, InvalidArgument, FailedPrecondition, MessageTooLarge)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """Which jobs a worker asks for, and the name that it gives to itself."""

    queues: Sequence[str]
    """In strict order: a later queue is served when the earlier ones have nothing."""
    worker_id: str = ""
    instance_id: str = ""
    visibility_timeout_seconds: int = 0
    wait_seconds: int = limits.MAX_DEQUEUE_WAIT_SECONDS
    refused_token_seconds: float = REFUSED_TOKEN_SECONDS
    """How long every answer may refuse the task token of an attempt before that is lost."""
    abilities: Abilities | None = None
    """What it can do; None asks for all jobs."""
    closed_queues: ClosedQueues | None = None
    """Asked before each dequeue: from which queues nothing is to be taken now."""


class JobSource:
    """Implements Source over any HoldingApi.

    A heartbeat is one UpdateJob that the server holds until there is news or the next is due. It is repeated
    until the server answers: only NOT_FOUND makes a job LOST, and refusals of its task token alone for long
    enough (`Subscription.refused_token_seconds`). A dead-lettered job is completed as failed.
    """

    def __init__(
        self,
        jobs: HoldingApi,
        subscription: Subscription,
        *,
        clock: Clock,
        policy: RetryPolicy | None = None,
        on_visibility: Callable[[float], object] | None = None,
    ) -> None:
        """`on_visibility` is called with the visibility, in seconds, of what was dequeued together."""
        self._jobs = jobs
        self._subscription = subscription
        self._clock = clock
        self._policy = policy or RetryPolicy()
        self._on_visibility = on_visibility
        self._completer = Completer(
            jobs, clock, self._policy, refused_token_seconds=subscription.refused_token_seconds
        )

    async def receive(self, max_deliveries: int) -> Sequence[Delivery[Attempt]]:
        """Dequeue jobs from the first queue that has any; those on their last try are confirmed first."""
        queues = await self._open_queues()
        if not queues:
            await self._clock.sleep(_CLOSED_SECONDS)
            return ()
        request = self._request(queues, max_deliveries)
        try:
            deliveries = self._deliveries(await self._jobs.dequeue_jobs(request))
        except AirunnerError:
            telemetry.receives_failed.add(1)
            raise
        if deliveries and self._on_visibility:
            self._on_visibility(_visibility_seconds(deliveries[0].body))
        if not any(attempt.job.life.tries_left <= 0 for attempt in _distinct_lives(deliveries)):
            return deliveries
        last_tries = [delivery for delivery in deliveries if delivery.body.job.life.tries_left <= 0]
        return await self._confirmed(deliveries, last_tries)

    async def extend(self, delivery: Delivery[Attempt]) -> Hold:
        """Heartbeat, until the next one is due or there is news."""
        attempt = delivery.body
        interval = _heartbeat_seconds(attempt)
        # A server that has reported a cancellation would answer a waiting call at once.
        held_by_server = interval >= 1 and not delivery.cancelled.is_set()
        watched, began = attempt.watched, self._clock.monotonic()
        held = await self._heartbeat(attempt, int(interval) if held_by_server else 0)
        if held is None:
            return Hold.LOST
        attempt.set_watched(held.watched)
        if held.cancel_requested and not delivery.cancelled.is_set():
            return Hold.CANCELLED
        if not held_by_server:
            await self._clock.sleep(interval)
        elif held.watched == watched and self._clock.monotonic() - began < _TOO_SOON_MS:
            # It has too many calls that wait: it extends, and leaves the waiting to us.
            await self._clock.sleep(min(interval, _UNHELD_SECONDS))
        return Hold.HELD

    async def ack(self, settlements: Sequence[tuple[Delivery[Attempt], JobOutcome]]) -> None:
        """Complete jobs, many in one call."""
        await self._completer.complete(
            [_completion(delivery.body, outcome) for delivery, outcome in settlements],
            max(map(_visibility_seconds, _distinct_lives([delivery for delivery, _ in settlements]))),
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
        await self._completer.complete([_completion(attempt, outcome)], _visibility_seconds(attempt))

    async def _open_queues(self) -> Sequence[str]:
        queues, ask = self._subscription.queues, self._subscription.closed_queues
        closed = await ask() if ask else ()
        return [queue for queue in queues if queue not in closed] if closed else queues

    def _request(self, queues: Sequence[str], max_deliveries: int) -> DequeueRequest:
        subscription = self._subscription
        is_all = len(queues) == len(subscription.queues)
        return DequeueRequest(
            queue=queues[0],
            more_queues=queues[1:],
            max_jobs=min(max_deliveries, limits.MAX_DEQUEUE_JOBS),
            visibility_timeout_seconds=subscription.visibility_timeout_seconds,
            wait_seconds=subscription.wait_seconds
            if is_all
            else min(_CLOSED_SECONDS, subscription.wait_seconds),
            worker_id=subscription.worker_id,
            instance_id=subscription.instance_id,
            first_lease_seconds=_FIRST_LEASE_SECONDS,
            abilities=subscription.abilities,
        )

    async def _confirmed(
        self, deliveries: Sequence[Delivery[Attempt]], last_tries: Sequence[Delivery[Attempt]]
    ) -> Sequence[Delivery[Attempt]]:
        """Return what may be begun: a last try only once the server has heard from its worker.

        The lapse of an attempt that was never heard of costs no try. A job with a single one would be begun
        again by another worker, though it had been begun here.
        """
        try:
            answers = await asyncio.gather(*(self._heartbeat(one.body, 0) for one in last_tries))
        except asyncio.CancelledError:
            # Whoever stops receiving releases what it is given nonetheless.
            return deliveries
        lost = {one.key for one, held in zip(last_tries, answers, strict=True) if held is None}
        return [delivery for delivery in deliveries if delivery.key not in lost]

    def _deliveries(self, dequeued: Sequence[DequeuedJob]) -> list[Delivery[Attempt]]:
        """Return what was dequeued together, for the consumer; most of it shares one heartbeat."""
        intervals: dict[tuple[int, int], float] = {}
        deliveries = []
        for one in dequeued:
            alike = id(one.job.life), id(one.job.execution)
            delivery = self._delivery(one, intervals.get(alike))
            intervals[alike] = delivery.extend_after_seconds
            deliveries.append(delivery)
        return deliveries

    def _delivery(self, dequeued: DequeuedJob, extend_after_seconds: float | None) -> Delivery[Attempt]:
        attempt = Attempt(
            job=dequeued.job,
            task_token=dequeued.task_token,
            refused_token_seconds=self._subscription.refused_token_seconds,
        )
        if dequeued.job.execution.assumed:
            _log.warning("job.no_execution_config", job_id=dequeued.job.job_id)
        if extend_after_seconds is None:
            extend_after_seconds = min(_EXTEND_AFTER_SECONDS, _heartbeat_seconds(attempt))
        return Delivery(
            body=attempt,
            key=dequeued.job.job_id,
            attempt=max(1, dequeued.job.life.attempt),
            extend_after_seconds=extend_after_seconds,
        )

    async def _heartbeat(self, attempt: Attempt, wait_seconds: int) -> HeldJob | None:
        """Return the server's answer, however long it takes to reach it; None if the attempt is over."""

        def update() -> Awaitable[HeldJob]:
            request = UpdateRequest(
                queue=attempt.job.queue,
                task_token=attempt.task_token,
                wait_seconds=wait_seconds,
                watched=attempt.watched,
            )
            return self._jobs.update_job(request)

        def log_failure(error: Exception, failures: int) -> None:
            telemetry.heartbeats_failed.add(1)
            job_id = attempt.job.job_id
            _log.warning("heartbeat.failed", job_id=job_id, failures=failures, error=_text(error))

        try:
            held = await retry(
                self._policy,
                self._clock,
                update,
                retry_if=self._unless_lost(attempt, NotFound),
                on_failure=log_failure,
            )
        except (NotFound, InvalidTaskToken):
            return None
        attempt.refusals.accepted()
        return held

    def _unless_lost(self, attempt: Attempt, *final: type[AirunnerError]) -> Callable[[Exception], bool]:
        """Return the condition for repeating a call: any error of the server but the final ones.

        One that refuses the task token is final when that made the attempt lost.
        """

        def retry_if(error: Exception) -> bool:
            if isinstance(error, InvalidTaskToken):
                return not attempt.refusals.refused(self._clock.monotonic())
            return isinstance(error, AirunnerError) and not isinstance(error, final)

        return retry_if

    async def _release(self, request: ReleaseRequest, attempt: Attempt) -> None:
        job_id = attempt.job.job_id

        def log_failure(error: Exception, _: int) -> None:
            _log.warning("job.release_failed", job_id=job_id, error=_text(error))

        async def send() -> JobState:
            nonlocal request
            try:
                return await self._jobs.release_job(request)
            except SequenceMismatch as error:
                # A job that is given back without its last lines is better than one that is not.
                last = request.events[0].sequence - 1 if request.events else 0
                events = with_gap(request.events, error.expected, last, self._clock.now())
                request = replace(request, events=events or ())
                raise

        try:
            state = await retry(
                self._policy,
                self._clock,
                send,
                retry_if=self._unless_lost(attempt, *_REFUSALS),
                on_failure=log_failure,
            )
        except _REFUSALS as error:
            _log.warning("job.release_refused", job_id=job_id, error=error.text)
            return
        _log.info(
            "job.released",
            job_id=job_id,
            attempt=attempt.job.attempt,
            unstarted=request.unstarted,
            state=state.name,
        )


def _heartbeat_seconds(attempt: Attempt) -> float:
    """The smaller of the server's interval and a third of the visibility."""
    interval = attempt.job.execution.heartbeat_interval_seconds
    return max(0.1, min(interval, _visibility_seconds(attempt) / 3, limits.MAX_UPDATE_WAIT_SECONDS))


def _visibility_seconds(attempt: Attempt) -> float:
    life = attempt.job.life
    # A server that does not say it gives no shorter first lease either. Both instants are of its clock.
    return life.visibility_seconds or (life.visible_until - life.updated_at) / 1000


def _distinct_lives(deliveries: Sequence[Delivery[Attempt]]) -> Collection[Attempt]:
    """Return one attempt for each life there is: jobs that came together mostly share one."""
    return {id(delivery.body.job.life): delivery.body for delivery in deliveries}.values()


def _completion(attempt: Attempt, outcome: JobOutcome) -> CompleteRequest:
    return CompleteRequest(
        task_token=attempt.task_token,
        result=outcome.result,
        events=outcome.events,
        job_id=attempt.job.job_id,
    )


def _text(error: Exception) -> str:
    return error.text if isinstance(error, AirunnerError) else str(error)
