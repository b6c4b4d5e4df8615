"""JobSource on the real services in memory; only faults of the network are made up."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from airunner.domain.batching import Batcher
from airunner.domain.errors import (
    DeadlineExceeded,
    InternalError,
    InvalidTaskToken,
    MessageTooLarge,
    Overloaded,
    PermanentFailure,
    PermissionDenied,
    ResourceExhausted,
    Unauthenticated,
    Unavailable,
)
from airunner.domain.event import Event, Gap, OutputBatch, StreamType
from airunner.domain.execution import BatchingConfig
from airunner.domain.job import Job, JobResult, JobState, Outcome
from airunner.domain.requests import (
    CompleteRequest,
    DequeueRequest,
    StreamRequest,
    UpdateRequest,
)
from airunner.domain.retry import RetryPolicy
from airunner.queues.base import Delivery, Hold
from airunner.services.composition import Services
from airunner.stores.memory import MemoryStore
from airunner.testing.clock import ManualClock
from airunner.testing.conditions import until
from airunner.testing.factories import make_request, make_services, make_success
from airunner.worker.attempt import Attempt, JobOutcome
from airunner.worker.source import JobSource, Subscription
from tests.support.consumers import turns


class Network:
    """JobsApi over the real service: remembers requests and loses some, or their answers."""

    def __init__(self, services: Services) -> None:
        self._jobs = services.jobs
        self.requests: dict[str, list[Any]] = defaultdict(list)
        self.lost_requests: deque[Exception] = deque()
        self.lost_heartbeats: deque[Exception] = deque()
        self.lost_answers: deque[Exception] = deque()
        self.early_answers: deque[object] = deque()

    def __getattr__(self, name: str) -> Any:
        async def call(request: Any) -> Any:
            self.requests[name].append(request)
            if self.lost_requests:
                raise self.lost_requests.popleft()
            if self.early_answers:
                return self.early_answers.popleft()
            if name == "update_job" and self.lost_heartbeats:
                raise self.lost_heartbeats.popleft()
            answer = await getattr(self._jobs, name)(request)
            if self.lost_answers:
                raise self.lost_answers.popleft()
            return answer

        return call


class Bench:
    def __init__(self, services: Services, clock: ManualClock, visibility: int) -> None:
        self.services = services
        self.clock = clock
        self.network = Network(services)
        subscription = Subscription(
            queues=("q", "later"), worker_id="w", instance_id="i", visibility_timeout_seconds=visibility
        )
        policy = RetryPolicy(first_seconds=1, jitter=0)
        self.source = JobSource(self.network, subscription, clock=clock, policy=policy)

    async def take(self, count: int = 1, *, max_attempts: int = 0) -> list[Delivery[Attempt]]:
        await self.services.jobs.enqueue_jobs(
            [make_request("q", max_attempts=max_attempts) for _ in range(count)]
        )
        return list(await self.source.receive(count))

    async def job(self, delivery: Delivery[Attempt]) -> Job:
        return await self.services.jobs.get_job(delivery.key)

    async def stored(self, delivery: Delivery[Attempt]) -> list[Event]:
        request = StreamRequest(job_id=delivery.key, follow=False)
        return [event async for event in self.services.events.stream_events(request)]

    async def pass_time(self, seconds: float) -> None:
        """Move the clock once somebody waits for it."""
        await until(lambda: self.clock.waiting > 1)  # beside the upkeep
        self.clock.advance(seconds)

    async def pass_time_until(self, done: asyncio.Future[None]) -> None:
        """Move the clock in steps of five seconds, each once somebody waits for it."""
        while not done.done():
            await until(lambda: done.done() or self.clock.waiting > 1)
            self.clock.advance(5)
        await done


@asynccontextmanager
async def source(visibility: int = 0) -> AsyncIterator[Bench]:
    clock = ManualClock()
    async with make_services(MemoryStore(clock), clock) as services:
        yield Bench(services, clock, visibility)


def batches(count: int, size: int = 10) -> list[Event]:
    batcher = Batcher(BatchingConfig())
    flushes = batcher.add_output([b"x" * size] * 50 * count, StreamType.STDOUT, 1)
    return [event for flush in flushes for event in flush.events]


async def test_it_dequeues_for_all_its_queues() -> None:
    async with source(visibility=60) as bench:
        (delivery,) = await bench.take()
        (request,) = bench.network.requests["dequeue_jobs"]
        assert request == DequeueRequest(
            queue="q",
            more_queues=("later",),
            max_jobs=1,
            visibility_timeout_seconds=60,
            wait_seconds=20,
            worker_id="w",
            instance_id="i",
            first_lease_seconds=30,
        )
        assert (delivery.key, delivery.attempt) == (delivery.body.job.job_id, 1)


@pytest.mark.parametrize(("visibility", "interval"), [(300, 30), (60, 20), (7, 2), (3, 1)])
async def test_the_heartbeat_is_the_smaller_of_the_servers_and_a_third_of_the_visibility(
    visibility: int, interval: int
) -> None:
    async with source(visibility) as bench:
        (delivery,) = await bench.take()
        holding = asyncio.ensure_future(bench.source.extend(delivery))
        await bench.pass_time(interval - 0.01)
        assert not holding.done()
        bench.clock.advance(0.01)
        assert await holding is Hold.HELD
        (request,) = bench.network.requests["update_job"]
        assert request == UpdateRequest(
            queue="q", task_token=delivery.body.task_token, wait_seconds=interval, watched=False
        )


async def test_the_first_heartbeat_is_within_the_first_lease_and_the_next_within_the_visibility() -> None:
    async with source(visibility=300) as bench:
        (delivery,) = await bench.take()
        claimed_at = bench.clock.now()
        assert (await bench.job(delivery)).life.visible_until == claimed_at + 30_000
        assert delivery.extend_after_seconds <= 1
        holding = asyncio.ensure_future(bench.source.extend(delivery))
        await until(lambda: bool(bench.network.requests["update_job"]))
        assert (await bench.job(delivery)).life.visible_until == claimed_at + 300_000
        await bench.pass_time(30)
        assert await holding is Hold.HELD


async def test_the_visibility_is_that_of_the_claim_with_a_server_that_does_not_say_it() -> None:
    async with source(visibility=60) as bench:
        (delivery,) = await bench.take()
        job = delivery.body.job
        silent = replace(job.life, visibility_seconds=0, visible_until=job.life.updated_at + 60_000)
        attempt = Attempt(job=replace(job, life=silent), task_token=delivery.body.task_token)
        holding = asyncio.ensure_future(bench.source.extend(replace(delivery, body=attempt)))
        await bench.pass_time(20)
        assert await holding is Hold.HELD


async def test_an_answer_that_never_arrived_costs_no_try() -> None:
    async with source(visibility=300) as bench:
        bench.network.lost_answers.append(Unavailable("reset"))
        with pytest.raises(Unavailable):
            await bench.take()
        bench.clock.advance(29.9)
        assert await bench.services.jobs.dequeue_jobs(DequeueRequest(queue="q", wait_seconds=0)) == []
        bench.clock.advance(0.1)
        (delivery,) = await bench.source.receive(1)
        assert (delivery.body.job.attempt, delivery.body.job.life.tries_left) == (2, 2)


async def test_a_last_try_is_begun_only_once_the_server_has_heard_of_its_worker() -> None:
    async with source(visibility=300) as bench:
        bench.network.lost_heartbeats.extend([Unavailable("away"), Unavailable("away")])
        taking = asyncio.ensure_future(bench.take(max_attempts=1))
        await until(lambda: len(bench.network.lost_heartbeats) == 1)
        await bench.pass_time(1)
        await until(lambda: not bench.network.lost_heartbeats)
        assert not taking.done()
        await bench.pass_time(2)
        (delivery,) = await taking
        # It was heard of, so its lapse is the end of the job.
        bench.clock.advance(300)
        await bench.services.maintenance.run_once()
        assert (await bench.job(delivery)).state is JobState.FAILED


async def test_a_last_try_that_somebody_else_has_by_now_is_not_begun() -> None:
    async with source(visibility=300) as bench:
        bench.network.lost_heartbeats.append(Unavailable("away"))
        taking = asyncio.ensure_future(bench.take(max_attempts=1))
        await until(lambda: not bench.network.lost_heartbeats and bench.clock.waiting > 1)
        request = DequeueRequest(queue="q", wait_seconds=20)
        other = asyncio.ensure_future(bench.services.jobs.dequeue_jobs(request))
        await until(lambda: bench.services.dispatcher.waiting > 0)
        bench.clock.advance(30)
        assert [dequeued.job.attempt for dequeued in await other] == [2]
        assert await taking == []


async def test_who_stops_while_a_last_try_is_confirmed_gets_it_to_give_it_back() -> None:
    async with source(visibility=300) as bench:
        bench.network.lost_heartbeats.append(Unavailable("away"))
        taking = asyncio.ensure_future(bench.take(max_attempts=1))
        await until(lambda: not bench.network.lost_heartbeats and bench.clock.waiting > 1)
        taking.cancel()
        (delivery,) = await taking
        await bench.source.release(delivery, 0, "")
        job = await bench.job(delivery)
        assert (job.state, job.life.handed_back) == (JobState.SCHEDULED, 1)


async def test_a_visibility_of_a_second_is_extended_in_time() -> None:
    async with source(visibility=1) as bench:
        (delivery,) = await bench.take()
        assert delivery.extend_after_seconds < 0.5
        for _ in range(10):
            holding = asyncio.ensure_future(bench.source.extend(delivery))
            await bench.pass_time(0.34)
            assert await holding is Hold.HELD
        assert await bench.services.jobs.dequeue_jobs(DequeueRequest(queue="q", wait_seconds=0)) == []


async def test_who_watches_is_learnt_at_once_and_then_known() -> None:
    async with source() as bench:
        (delivery,) = await bench.take()
        holding = asyncio.ensure_future(bench.source.extend(delivery))
        await until(lambda: bench.clock.waiting > 1)
        with bench.services.watchers.watch("somebody", delivery.key):
            assert await holding is Hold.HELD
            assert delivery.body.watched
            holding = asyncio.ensure_future(bench.source.extend(delivery))
            await bench.pass_time(1)
            assert not holding.done()
        assert await holding is Hold.HELD
        assert not delivery.body.watched


async def test_a_cancellation_is_told_once_and_heartbeats_go_on_at_their_pace() -> None:
    async with source() as bench:
        (delivery,) = await bench.take()
        holding = asyncio.ensure_future(bench.source.extend(delivery))
        await until(lambda: bench.clock.waiting > 1)
        await bench.services.jobs.cancel_job(delivery.key)
        assert await holding is Hold.CANCELLED
        delivery.cancelled.set()
        holding = asyncio.ensure_future(bench.source.extend(delivery))
        await bench.pass_time(29.9)
        assert not holding.done()
        bench.clock.advance(0.1)
        assert await holding is Hold.HELD


async def test_only_not_found_makes_a_job_lost() -> None:
    async with source() as bench:
        (delivery,) = await bench.take()
        bench.network.lost_requests.extend([Unavailable(), DeadlineExceeded(), InternalError()])
        holding = asyncio.ensure_future(bench.source.extend(delivery))
        for pause in (1, 2, 4):
            await bench.pass_time(pause)
        await until(lambda: len(bench.network.requests["update_job"]) == 4)
        assert not holding.done()
        bench.clock.advance(400)
        assert await holding is Hold.HELD
        bench.clock.advance(400)
        await bench.services.jobs.dequeue_jobs(DequeueRequest(queue="q", wait_seconds=0))
        assert await bench.source.extend(delivery) is Hold.LOST


async def test_a_token_that_is_refused_for_a_minute_makes_a_job_lost_and_not_sooner() -> None:
    async with source() as bench:
        (delivery,) = await bench.take()
        bench.network.lost_requests.extend([InvalidTaskToken()] * 10_000)
        began = bench.clock.now()
        holding = asyncio.ensure_future(bench.source.extend(delivery))
        while not holding.done():
            await until(lambda: holding.done() or bench.clock.waiting > 1)
            bench.clock.advance(5)
        assert await holding is Hold.LOST
        assert 60_000 <= bench.clock.now() - began <= 75_000


async def test_a_clock_that_is_set_makes_no_refused_token_lost_sooner() -> None:
    async with source() as bench:
        (delivery,) = await bench.take()
        bench.network.lost_requests.extend([InvalidTaskToken()] * 3)
        holding = asyncio.ensure_future(bench.source.extend(delivery))
        for pause in (1, 2, 4):
            await until(lambda: bench.clock.waiting > 1)
            bench.clock.step(120)
            bench.clock.advance(pause)
        await until(lambda: not bench.network.lost_requests)
        await bench.pass_time(30)
        assert await holding is Hold.HELD


async def test_refusals_before_an_answer_that_took_the_token_do_not_count() -> None:
    async with source() as bench:
        (delivery,) = await bench.take()
        for _ in range(5):
            bench.network.lost_requests.extend([InvalidTaskToken()] * 4)
            holding = asyncio.ensure_future(bench.source.extend(delivery))
            for pause in (1, 2, 4, 5):
                await bench.pass_time(pause)
            await bench.pass_time(30)
            assert await holding is Hold.HELD


async def test_a_release_outlives_a_token_that_is_refused_for_a_while() -> None:
    async with source() as bench:
        (delivery,) = await bench.take()
        bench.network.lost_requests.extend([InvalidTaskToken()] * 3)
        releasing = asyncio.ensure_future(bench.source.release(delivery, 0, ""))
        for pause in (1, 2, 4):
            await bench.pass_time(pause)
        await releasing
        assert (await bench.job(delivery)).state is JobState.SCHEDULED


async def test_many_completions_are_one_call() -> None:
    async with source() as bench:
        taken = await bench.take(20)
        await bench.source.ack([(delivery, JobOutcome(result=make_success())) for delivery in taken])
        assert len(bench.network.requests["complete_jobs"]) == 1
        assert {(await bench.job(delivery)).state for delivery in taken} == {JobState.COMPLETED}


async def test_completions_with_much_output_are_several_calls() -> None:
    async with source() as bench:
        taken = await bench.take(5)
        events = batches(16, size=1000)
        outcome = JobOutcome(result=make_success(final_sequence=800), events=events)
        await bench.source.ack([(delivery, outcome) for delivery in taken])
        assert [len(call) for call in bench.network.requests["complete_jobs"]] == [2, 2, 1]
        assert {(await bench.job(delivery)).state for delivery in taken} == {JobState.COMPLETED}


async def test_a_completion_is_repeated_until_it_gets_through() -> None:
    async with source() as bench:
        (delivery,) = await bench.take()
        bench.network.lost_requests.append(Unavailable())
        bench.network.lost_answers.append(DeadlineExceeded())
        outcome = JobOutcome(result=make_success(final_sequence=50), events=batches(1))
        acking = asyncio.ensure_future(bench.source.ack([(delivery, outcome)]))
        for tries, pause in enumerate((1, 2), start=1):
            await bench.pass_time(pause - 0.001)
            await turns()
            assert len(bench.network.requests["complete_jobs"]) == tries
            bench.clock.advance(0.001)
        await acking
        assert len(bench.network.requests["complete_jobs"]) == 3
        assert (await bench.job(delivery)).state is JobState.COMPLETED
        assert len(await bench.stored(delivery)) == 50


@pytest.mark.parametrize(
    "error", [InternalError(), Unauthenticated(), PermissionDenied("not yours"), ResourceExhausted()]
)
@pytest.mark.parametrize("count", [1, 3])
async def test_a_result_outlives_answers_that_no_completion_should_have(error: Exception, count: int) -> None:
    async with source() as bench:
        taken = await bench.take(count)
        bench.network.lost_requests.extend([error] * 5)
        acking = asyncio.ensure_future(
            bench.source.ack([(delivery, JobOutcome(result=make_success())) for delivery in taken])
        )
        await bench.pass_time_until(acking)
        assert {(await bench.job(delivery)).state for delivery in taken} == {JobState.COMPLETED}


@pytest.mark.parametrize("error", [Unavailable(), DeadlineExceeded(), ResourceExhausted()])
async def test_a_completion_that_is_refused_for_now_is_repeated_alone(error: Exception) -> None:
    """As when AWS throttles one of many: the call succeeds, and an entry of its answer says no."""
    async with source() as bench:
        taken = await bench.take(2)
        bench.network.early_answers.extend([[JobState.COMPLETED, error]] + [[error]] * 5)
        acking = asyncio.ensure_future(
            bench.source.ack([(delivery, JobOutcome(result=make_success())) for delivery in taken])
        )
        await bench.pass_time_until(acking)
        assert [len(call) for call in bench.network.requests["complete_jobs"]] == [2, *[1] * 6]
        assert (await bench.job(taken[1])).state is JobState.COMPLETED


@pytest.mark.parametrize(("error", "seconds"), [(InternalError(), 600), (InvalidTaskToken(), 60)])
async def test_a_result_is_given_up_after_odd_answers_alone_and_not_sooner(
    error: Exception, seconds: int
) -> None:
    async with source() as bench:
        (delivery,) = await bench.take()
        bench.network.lost_requests.extend([error] * 10_000)
        began = bench.clock.now()
        acking = asyncio.ensure_future(bench.source.ack([(delivery, JobOutcome(result=make_success()))]))
        await bench.pass_time_until(acking)
        assert seconds <= (bench.clock.now() - began) / 1000 <= seconds + 20


async def test_a_completion_waits_as_long_as_a_busy_server_wants() -> None:
    async with source() as bench:
        (delivery,) = await bench.take()
        bench.network.lost_requests.append(Overloaded(retry_after_seconds=20))
        acking = asyncio.ensure_future(bench.source.ack([(delivery, JobOutcome(result=make_success()))]))
        await bench.pass_time(19)
        await asyncio.sleep(0)
        assert len(bench.network.requests["complete_jobs"]) == 1
        await bench.pass_time(1)
        await acking
        assert (await bench.job(delivery)).state is JobState.COMPLETED


async def test_a_heartbeat_that_the_server_does_not_hold_is_not_repeated_at_once() -> None:
    async with source(visibility=300) as bench:
        (delivery,) = await bench.take()
        held = await bench.services.jobs.update_job(
            UpdateRequest(queue="q", task_token=delivery.body.task_token)
        )
        bench.network.early_answers.append(held)
        extending = asyncio.ensure_future(bench.source.extend(delivery))
        await bench.pass_time(4.9)
        await asyncio.sleep(0)
        assert not extending.done()
        await bench.pass_time(0.1)
        assert await extending is Hold.HELD


async def test_a_lost_completion_is_forgotten_and_takes_no_other_along() -> None:
    async with source() as bench:
        lost, kept = await bench.take(2)
        await bench.services.jobs.complete_jobs(
            [CompleteRequest(task_token=lost.body.task_token, result=_failure("another"))]
        )
        await bench.source.ack([(delivery, JobOutcome(result=make_success())) for delivery in (lost, kept)])
        assert (await bench.job(lost)).state is JobState.FAILED
        assert (await bench.job(kept)).state is JobState.COMPLETED
        assert len(bench.network.requests["complete_jobs"]) == 1


@pytest.mark.parametrize("carried", [0, 1])
async def test_a_completion_with_missing_events_ends_the_job_with_a_gap(carried: int) -> None:
    async with source() as bench:
        (delivery,) = await bench.take()
        events: Sequence[Event] = batches(2)[2 - carried :]
        outcome = JobOutcome(result=make_success(final_sequence=100), events=events)
        acking = asyncio.ensure_future(bench.source.ack([(delivery, outcome)]))
        await bench.pass_time(1)
        await acking
        stored = await bench.stored(delivery)
        assert isinstance(stored[0].data, Gap)
        assert (stored[0].data.first_sequence, stored[0].data.last_sequence) == (1, 100 - 50 * carried)
        assert stored[-1].last_sequence == 100
        assert (await bench.job(delivery)).result == outcome.result


async def test_a_result_that_the_server_refuses_becomes_a_plain_failure() -> None:
    async with source() as bench:
        (delivery,) = await bench.take()
        result = JobResult(success=True, outcome=Outcome.SUCCESS, output_json="x" * 1_100_000)
        acking = asyncio.ensure_future(bench.source.ack([(delivery, JobOutcome(result=result))]))
        await bench.pass_time(1)
        await acking
        ended = (await bench.job(delivery)).result
        assert ended is not None
        assert ended.outcome is Outcome.FAILURE
        assert "output_json" in ended.error_message


async def test_a_log_is_whole_though_the_result_is_refused() -> None:
    async with source() as bench:
        (delivery,) = await bench.take()
        result = replace(make_success(final_sequence=100), output_json="x" * 1_100_000)
        outcome = JobOutcome(result=result, events=batches(2))
        acking = asyncio.ensure_future(bench.source.ack([(delivery, outcome)]))
        await bench.pass_time(1)
        await acking
        assert (await bench.job(delivery)).state is JobState.FAILED
        assert len(await bench.stored(delivery)) == 100


async def test_large_results_are_several_calls() -> None:
    async with source() as bench:
        taken = await bench.take(5)
        result = make_success(output_json='"' + "é" * 250_000 + '"')
        await bench.source.ack([(delivery, JobOutcome(result=result)) for delivery in taken])
        assert [len(call) for call in bench.network.requests["complete_jobs"]] == [4, 1]
        assert {(await bench.job(delivery)).result for delivery in taken} == {result}


async def test_what_has_not_begun_is_released_without_costing_a_try() -> None:
    async with source() as bench:
        (delivery,) = await bench.take()
        await bench.source.release(delivery, 0, "")
        life = (await bench.job(delivery)).life
        assert (life.state, life.tries_left) == (JobState.SCHEDULED, 3)


async def test_what_has_begun_is_released_with_its_last_events() -> None:
    async with source() as bench:
        (delivery,) = await bench.take()
        delivery.body.begun = True
        delivery.body.last_events = batches(1)
        bench.network.lost_requests.append(Unavailable())
        releasing = asyncio.ensure_future(bench.source.release(delivery, 1.5, "broken"))
        await bench.pass_time(1)
        await releasing
        life = (await bench.job(delivery)).life
        assert (life.state, life.tries_left, life.last_error) == (JobState.SCHEDULED, 2, "broken")
        assert life.due_at == bench.clock.now() + 2000
        assert len(await bench.stored(delivery)) == 50


async def test_events_that_the_server_misses_before_a_release_are_a_gap() -> None:
    async with source() as bench:
        (delivery,) = await bench.take()
        delivery.body.begun = True
        delivery.body.last_events = batches(2)[1:]
        releasing = asyncio.ensure_future(bench.source.release(delivery, 0, "broken"))
        await bench.pass_time(1)
        await releasing
        assert (await bench.job(delivery)).state is JobState.SCHEDULED
        gap, *outputs = await bench.stored(delivery)
        assert gap.data == Gap(
            first_sequence=1, last_sequence=50, reason="the server no longer has these events"
        )
        assert [event.sequence for event in outputs] == list(range(51, 101))


async def test_a_release_whose_events_do_not_fit_goes_without_them() -> None:
    async with source() as bench:
        (delivery,) = await bench.take()
        delivery.body.begun = True
        await bench.services.events.publish_events(delivery.body.task_token, batches(1))
        first, second = batches(2)
        assert isinstance(second.data, OutputBatch)
        overlapping = replace(second.data, start_sequence=26, end_sequence=75)
        delivery.body.last_events = [replace(second, sequence=26, data=overlapping)]
        releasing = asyncio.ensure_future(bench.source.release(delivery, 0, "broken"))
        await bench.pass_time(1)
        await releasing
        assert (await bench.job(delivery)).state is JobState.SCHEDULED
        assert [event.sequence for event in await bench.stored(delivery)] == list(
            range(1, first.last_sequence + 1)
        )


async def test_a_lost_release_is_forgotten() -> None:
    async with source() as bench:
        (delivery,) = await bench.take()
        bench.network.lost_answers.append(DeadlineExceeded())
        releasing = asyncio.ensure_future(bench.source.release(delivery, 0, ""))
        await bench.pass_time(1)
        await releasing
        assert (await bench.job(delivery)).life.handed_back == 1


async def test_a_release_that_is_too_large_is_left_to_the_visibility() -> None:
    async with source() as bench:
        (delivery,) = await bench.take()
        bench.network.lost_requests.append(MessageTooLarge())
        await bench.source.release(delivery, 0, "no")
        assert (await bench.job(delivery)).state is JobState.RUNNING


async def test_a_dead_letter_is_a_failed_job() -> None:
    async with source() as bench:
        (delivery,) = await bench.take()
        delivery.body.last_events = batches(1)
        await bench.source.dead_letter(delivery, PermanentFailure("malformed", "no such picture"))
        job = await bench.job(delivery)
        assert job.state is JobState.FAILED
        assert job.result is not None
        assert (job.result.outcome, job.result.error_message) == (Outcome.FAILURE, "no such picture")
        assert len(await bench.stored(delivery)) == 50


def _failure(text: str) -> JobResult:
    return JobResult(success=False, outcome=Outcome.FAILURE, exit_code=1, error_message=text)
