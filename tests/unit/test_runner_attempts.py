"""What a runner says of the attempts that its worker had, whatever became of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import suppress

import pytest

from airunner.domain.errors import AirunnerError, Unavailable
from airunner.domain.job import JobParams, JobResult, JobState, Outcome
from airunner.domain.requests import CompleteRequest, DequeueRequest, ReleaseRequest, UpdateRequest
from airunner.domain.token import TokenSigner
from airunner.fleet.messages.termination import EndStatus, format_termination, parse_termination
from airunner.fleet.runner.attempts import ObservedAttempt, ObservedJobs
from airunner.fleet.termination import failure_kind
from airunner.services.composition import Services
from airunner.services.jobs import JobService
from airunner.stores.memory import MemoryStore
from airunner.testing.clock import ManualClock
from airunner.testing.factories import TOKEN_KEY, make_failure, make_request, make_services, make_success

INSTANCE = "i-1"
DEMAND = DequeueRequest(queue="builds", instance_id=INSTANCE, wait_seconds=0)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def services(clock: ManualClock) -> AsyncIterator[Services]:
    async with make_services(MemoryStore(clock), clock) as opened:
        yield opened


class Away:
    """Implements HoldingApi: the jobs of a service, whose ends do not reach it."""

    def __init__(self, jobs: JobService) -> None:
        self.dequeue_jobs = jobs.dequeue_jobs
        self.update_job = jobs.update_job

    async def complete_jobs(self, requests: Sequence[CompleteRequest]) -> Sequence[JobState | AirunnerError]:
        raise Unavailable

    async def release_job(self, request: ReleaseRequest) -> JobState:
        raise Unavailable


async def dequeued(services: Services, clock: ManualClock, *, away: bool = False) -> tuple[ObservedJobs, str]:
    """Return the notes of a worker that has just dequeued a job, and its task token."""
    await services.jobs.enqueue_jobs([make_request()])
    observed = ObservedJobs(Away(services.jobs) if away else services.jobs, clock)
    (one,) = await observed.dequeue_jobs(DEMAND)
    clock.advance(3)
    return observed, one.task_token


async def complete(observed: ObservedJobs, token: str, result: JobResult) -> None:
    with suppress(Unavailable):
        await observed.complete_jobs([CompleteRequest(task_token=token, result=result)])


async def release(observed: ObservedJobs, token: str, error: str) -> None:
    with suppress(Unavailable):
        await observed.release_job(ReleaseRequest(task_token=token, error=error))


def ending(observed: ObservedJobs) -> ObservedAttempt:
    (attempt,) = observed.attempts
    return attempt


@pytest.mark.parametrize(
    ("result", "status"),
    [
        (make_success(), EndStatus.SUCCESS),
        (make_failure(exit_code=3, error="exit 3"), EndStatus.FAILURE),
        (make_failure(outcome=Outcome.TIMEOUT), EndStatus.TIMEOUT),
        (make_failure(outcome=Outcome.INTERRUPTED), EndStatus.INTERRUPTED),
        (make_failure(outcome=Outcome.CANCELLED), EndStatus.INTERRUPTED),
    ],
)
@pytest.mark.parametrize("away", [False, True])
async def test_a_result_is_reported_whether_or_not_the_server_took_it(
    services: Services, clock: ManualClock, result: JobResult, status: EndStatus, away: bool
) -> None:
    observed, token = await dequeued(services, clock, away=away)
    await complete(observed, token, result)
    message = ending(observed).message(INSTANCE, clock.now())
    assert (message.status, message.exit_code, message.error) == (
        status,
        result.exit_code,
        result.error_message,
    )
    assert (message.attempt, message.duration_seconds) == (1, 3.0)
    assert parse_termination(format_termination(message)) == message


async def test_the_report_proves_itself(services: Services, clock: ManualClock) -> None:
    observed, _ = await dequeued(services, clock)
    message = ending(observed).message(INSTANCE, clock.now())
    signer = TokenSigner([TOKEN_KEY]).terminations()
    assert signer.verifies(message.termination_token, message.job_id, message.attempt, INSTANCE)
    assert message.termination_token not in repr(observed.attempts)


async def test_an_attempt_without_any_end_was_interrupted(services: Services, clock: ManualClock) -> None:
    observed, _ = await dequeued(services, clock)
    assert ending(observed).message(INSTANCE, clock.now()).status is EndStatus.INTERRUPTED


async def test_a_superseded_attempt_was_interrupted_whatever_its_worker_made_of_it(
    services: Services, clock: ManualClock
) -> None:
    observed, token = await dequeued(services, clock)
    clock.advance(3600)
    assert await services.jobs.dequeue_jobs(DEMAND)
    await complete(observed, token, make_success())
    message = ending(observed).message(INSTANCE, clock.now())
    assert (message.status, message.attempt) == (EndStatus.INTERRUPTED, 1)
    assert parse_termination(format_termination(message)) == message


@pytest.mark.parametrize(
    ("error", "away", "status"),
    [
        ("", False, EndStatus.INTERRUPTED),
        ("boom", False, EndStatus.FAILURE),
        # A failure would end a job that has tries left.
        ("boom", True, EndStatus.INTERRUPTED),
    ],
)
async def test_what_was_given_back(
    services: Services, clock: ManualClock, error: str, away: bool, status: EndStatus
) -> None:
    observed, token = await dequeued(services, clock, away=away)
    await release(observed, token, error)
    message = ending(observed).message(INSTANCE, clock.now())
    assert (message.status, message.error) == (status, "" if away else error)
    assert parse_termination(format_termination(message)) == message


async def test_a_clock_that_goes_backwards_makes_no_message_that_is_refused(
    services: Services, clock: ManualClock
) -> None:
    observed, token = await dequeued(services, clock)
    result = JobResult(success=True, outcome=Outcome.SUCCESS, started_at=5_000, completed_at=4_000)
    await complete(observed, token, result)
    message = ending(observed).message(INSTANCE, 1)
    assert parse_termination(format_termination(message)).duration_seconds == 0


@pytest.mark.parametrize("character", ["\x01", "é", "\U0001f600", "x"])
async def test_a_long_error_is_cut_to_what_a_queue_takes(
    services: Services, clock: ManualClock, character: str
) -> None:
    observed, token = await dequeued(services, clock)
    error = character * (64 * 1024 // len(character.encode()))
    await complete(observed, token, make_failure(error=error))
    body = format_termination(ending(observed).message(INSTANCE, clock.now()))
    assert len(body) < 128 * 1024
    assert body.isascii()


async def test_each_attempt_has_a_report_in_the_order_of_the_dequeues(
    services: Services, clock: ManualClock
) -> None:
    await services.jobs.enqueue_jobs([make_request(), make_request()])
    observed = ObservedJobs(services.jobs, clock)
    first, second = [(await observed.dequeue_jobs(DEMAND))[0] for _ in range(2)]
    await complete(observed, second.task_token, make_success())
    assert [(attempt.job_id, attempt.status) for attempt in observed.attempts] == [
        (first.job.job_id, EndStatus.INTERRUPTED),
        (second.job.job_id, EndStatus.SUCCESS),
    ]


@pytest.mark.parametrize(
    ("params", "kind"),
    [(JobParams(handler="resize"), "HandlerError"), (JobParams(command="make"), "NonZeroExit")],
)
async def test_an_error_of_a_handler_is_told_from_an_exit_code(
    services: Services, clock: ManualClock, params: JobParams, kind: str
) -> None:
    await services.jobs.enqueue_jobs([make_request(params=params)])
    observed = ObservedJobs(services.jobs, clock)
    (one,) = await observed.dequeue_jobs(DEMAND)
    await release(observed, one.task_token, "boom")
    assert failure_kind(ending(observed).message(INSTANCE, clock.now())) == kind


async def test_heartbeats_pass(services: Services, clock: ManualClock) -> None:
    observed, token = await dequeued(services, clock)
    held = await observed.update_job(UpdateRequest(queue="builds", task_token=token))
    assert not held.cancel_requested
