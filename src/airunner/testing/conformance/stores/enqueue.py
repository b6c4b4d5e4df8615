"""Enqueueing: idempotent, validated, each entry with its own outcome."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING

import pytest

from airunner.codec.jobs import encode_params
from airunner.domain.answers import Enqueued
from airunner.domain.errors import AirunnerError, AlreadyExists, InvalidArgument, ResourceExhausted
from airunner.domain.execution import BatchingConfig, ExecutionConfig
from airunner.domain.job import JobParams, JobState
from airunner.domain.listing import JobQuery
from airunner.domain.requests import EnqueueRequest
from airunner.services.composition import ServiceRules
from airunner.services.job_requests import JobRules
from airunner.testing.factories import NEVER_SECONDS, make_request

if TYPE_CHECKING:
    from airunner.testing.conformance.stores.backend import Api, OpenApi

MONTH = 30 * 24 * 3600
REQUEST_ID = "0192d3b0-1111-4222-8333-444455556666"


class EnqueueConformance:
    async def test_a_job_is_scheduled_with_what_was_asked(self, api: Api) -> None:
        params = JobParams(
            command="make",
            args=("test", "-j2"),
            environment={"CI": "1"},
            metadata={"team": "core"},
            owner="ada",
            working_directory="src",
            timeout_seconds=90,
        )
        (outcome,) = await api.jobs.enqueue_jobs([make_request(params=params, request_id=REQUEST_ID)])
        assert isinstance(outcome, Enqueued)
        assert outcome.state is JobState.SCHEDULED
        assert outcome.created_at == api.clock.now()
        job = await api.jobs.get_job(outcome.job_id)
        assert (job.params, job.queue, job.request_id) == (params, "builds", REQUEST_ID)
        assert (job.state, job.attempt, job.life.max_attempts) == (JobState.SCHEDULED, 0, 3)
        assert (job.created_at, job.result) == (api.clock.now(), None)
        assert uuid.UUID(job.job_id).version == 7

    async def test_large_parameters_are_kept_whole_up_to_a_mebibyte(self, api: Api) -> None:
        head = len(encode_params(JobParams(command="make", args=("x" * 2**20,)))) - 2**20
        params = JobParams(command="make", args=("x" * (2**20 - head),))
        held = await api.new_claim(make_request(params=params))
        assert held.job.params == params
        assert (await api.job(held)).params == params
        too_large = JobParams(command="make", args=("x" * (2**20 - head + 1),))
        with pytest.raises(InvalidArgument, match="job_params must have at most 1048576 bytes"):
            await api.enqueue(make_request(params=too_large))

    async def test_many_jobs_of_one_call_may_all_be_large(self, api: Api) -> None:
        wanted = [JobParams(command="make", args=(letter * 1_000_000,)) for letter in "abcde"]
        outcomes = await api.jobs.enqueue_jobs([make_request(params=params) for params in wanted])
        jobs = [await api.jobs.get_job(one.job_id) for one in outcomes if isinstance(one, Enqueued)]
        assert [job.params for job in jobs] == wanted

    async def test_repeating_a_request_returns_the_same_job(self, api: Api) -> None:
        request = make_request()
        first = await api.jobs.enqueue_jobs([request])
        await api.advance(10)
        assert await api.jobs.enqueue_jobs([request]) == first
        assert len((await api.jobs.list_jobs(JobQuery())).jobs) == 1

    async def test_a_request_is_the_same_in_every_spelling_of_its_id(self, api: Api) -> None:
        first = await api.enqueue(make_request(request_id=REQUEST_ID))
        assert await api.enqueue(make_request(request_id=REQUEST_ID.upper())) == first

    async def test_a_repeat_tells_the_state_of_the_job_by_now(self, api: Api) -> None:
        request = make_request()
        held = await api.new_claim(request)
        await api.complete(held)
        (repeat,) = await api.jobs.enqueue_jobs([request])
        assert isinstance(repeat, Enqueued)
        assert (repeat.job_id, repeat.state) == (held.job.job_id, JobState.COMPLETED)

    async def test_racing_repeats_make_one_job(self, api: Api) -> None:
        request = make_request()
        ids = await asyncio.gather(*(api.enqueue(request) for _ in range(20)))
        assert len(set(ids)) == 1
        assert len(await api.dequeue(max_jobs=100)) == 1

    async def test_a_repeat_within_one_call_makes_one_job(self, api: Api) -> None:
        request = make_request()
        first, second = await api.jobs.enqueue_jobs([request, request])
        assert first == second

    @pytest.mark.parametrize(
        "other",
        [
            make_request(request_id=REQUEST_ID, command="other"),
            make_request("other", request_id=REQUEST_ID),
            make_request(request_id=REQUEST_ID, delay_seconds=1),
            make_request(request_id=REQUEST_ID, max_attempts=2),
            make_request(
                request_id=REQUEST_ID, execution=ExecutionConfig(batching=BatchingConfig(max_batch_size=10))
            ),
        ],
        ids=["command", "queue", "delay", "max_attempts", "execution"],
    )
    async def test_a_request_id_with_other_parameters_is_refused(
        self, api: Api, other: EnqueueRequest
    ) -> None:
        await api.enqueue(make_request(request_id=REQUEST_ID))
        with pytest.raises(AlreadyExists):
            await api.enqueue(other)

    async def test_of_racing_requests_with_other_parameters_one_wins(self, api: Api) -> None:
        requests = [make_request(request_id=REQUEST_ID, command=f"command-{n}") for n in range(10)]
        outcomes = await asyncio.gather(
            *(api.enqueue(request) for request in requests), return_exceptions=True
        )
        assert sum(isinstance(outcome, str) for outcome in outcomes) == 1
        assert sum(isinstance(outcome, AlreadyExists) for outcome in outcomes) == 9

    async def test_a_delayed_job_is_claimable_when_it_is_due(self, api: Api) -> None:
        job_id = await api.enqueue(make_request(delay_seconds=10))
        await api.advance(9.999)
        assert await api.dequeue() == []
        await api.lapse(0.001)
        assert (await api.claim()).job.job_id == job_id

    async def test_each_entry_has_its_own_outcome_in_the_order_of_the_call(self, api: Api) -> None:
        taken = make_request()
        known = await api.enqueue(taken)
        outcomes = await api.jobs.enqueue_jobs(
            [
                make_request("not a queue"),
                make_request(),
                make_request(request_id=taken.request_id, command="other"),
                taken,
                make_request(max_attempts=101),
            ]
        )
        assert isinstance(outcomes[0], InvalidArgument)
        assert isinstance(outcomes[1], Enqueued)
        assert isinstance(outcomes[2], AlreadyExists)
        assert isinstance(outcomes[3], Enqueued)
        assert outcomes[3].job_id == known
        assert isinstance(outcomes[4], InvalidArgument)
        claimed, added = await api.dequeue(max_jobs=10), [known, outcomes[1].job_id]
        if not api.capabilities.strict_fifo:
            claimed, added = sorted(claimed, key=lambda held: held.job.job_id), sorted(added)
        assert [held.job.job_id for held in claimed] == added

    async def test_a_call_has_1_to_500_entries(self, api: Api) -> None:
        outcomes = await api.jobs.enqueue_jobs([make_request() for _ in range(500)])
        assert not any(isinstance(outcome, AirunnerError) for outcome in outcomes)
        for count in (0, 501):
            with pytest.raises(InvalidArgument):
                await api.jobs.enqueue_jobs([make_request() for _ in range(count)])

    @pytest.mark.parametrize(
        "request_",
        [
            make_request(delay_seconds=MONTH),
            make_request(max_attempts=1),
            make_request(max_attempts=100),
            make_request("q" * 80),
            make_request(params=JobParams(command="x" * 200_000)),
            make_request(params=JobParams(handler="resize", payload_json='{"width": 3}')),
        ],
    )
    async def test_the_limits_themselves_are_accepted(self, api: Api, request_: EnqueueRequest) -> None:
        assert await api.enqueue(request_)

    @pytest.mark.parametrize(
        "request_",
        [
            make_request(request_id="67890"),
            make_request(""),
            make_request("a b"),
            make_request("q" * 81),
            make_request(delay_seconds=-1),
            make_request(delay_seconds=MONTH + 1),
            make_request(max_attempts=-1),
            make_request(max_attempts=101),
            make_request(params=JobParams()),
            make_request(params=JobParams(command="make", timeout_seconds=-1)),
            make_request(params=JobParams(command="x" * 2**20)),
            make_request(execution=ExecutionConfig(batching=BatchingConfig(max_batch_size=51))),
            make_request(execution=ExecutionConfig(heartbeat_interval_seconds=43_201)),
        ],
    )
    async def test_what_is_out_of_range_is_refused_and_adds_nothing(
        self, api: Api, request_: EnqueueRequest
    ) -> None:
        with pytest.raises(InvalidArgument):
            await api.enqueue(request_)
        assert (await api.jobs.list_jobs(JobQuery())).jobs == []

    async def test_an_override_of_the_execution_travels_with_the_job(self, api: Api) -> None:
        execution = ExecutionConfig(
            batching=BatchingConfig(max_batch_size=10, adaptive=False), heartbeat_interval_seconds=7
        )
        held = await api.new_claim(make_request(execution=execution))
        assert held.job.execution == execution

    async def test_a_queue_holds_no_more_scheduled_jobs_than_its_limit(self, open_api: OpenApi) -> None:
        rules = ServiceRules(jobs=JobRules(max_queued=2), maintenance_interval_seconds=NEVER_SECONDS)
        async with open_api(rules) as api:
            known = make_request()
            await api.enqueue(known)
            await api.enqueue()
            with pytest.raises(ResourceExhausted):
                await api.enqueue()
            # A repeat adds nothing, another queue has its own limit, and running jobs do not count.
            await api.enqueue(known)
            await api.enqueue(queue="other")
            await api.claim()
            await api.enqueue()

    async def test_the_limit_counts_what_is_scheduled_whatever_happened(self, open_api: OpenApi) -> None:
        rules = ServiceRules(jobs=JobRules(max_queued=3), maintenance_interval_seconds=NEVER_SECONDS)
        async with open_api(rules) as api:
            assert await self.fill(api) == 3
            released, completed, lapsing = await api.dequeue(max_jobs=3)
            assert await self.fill(api) == 3
            await api.release(released)
            await api.complete(completed)
            with pytest.raises(ResourceExhausted):
                await api.enqueue()
            await api.lapse(60)
            held = [held for _ in range(5) for held in await api.dequeue(max_jobs=5)]
            assert lapsing.job.job_id in {one.job.job_id for one in held}
            assert await self.fill(api) == 3
            listed = await api.jobs.list_jobs(JobQuery(state=JobState.SCHEDULED))
            for job in listed.jobs[:2]:
                await api.jobs.cancel_job(job.job_id)
            retried = await api.jobs.retry_job(completed.job.job_id, str(uuid.uuid4()))
            assert retried.state is JobState.SCHEDULED
            assert await self.fill(api) == 1
            while claimed := await api.dequeue(max_jobs=5):
                for one in claimed:
                    await api.complete(one)
            await api.advance(8 * 24 * 3600)
            assert await self.fill(api) == 3

    async def fill(self, api: Api) -> int:
        """Add jobs until the queue takes no more; return how many."""
        added = 0
        while True:
            try:
                await api.enqueue()
            except ResourceExhausted:
                return added
            added += 1

    async def test_the_operators_defaults_apply_where_a_request_says_nothing(self, open_api: OpenApi) -> None:
        execution = ExecutionConfig(batching=BatchingConfig(max_batch_size=5))
        jobs = JobRules(max_attempts=7, visibility_timeout_seconds=33, execution=execution)
        async with open_api(ServiceRules(jobs=jobs, maintenance_interval_seconds=NEVER_SECONDS)) as api:
            held = await api.new_claim(visibility_seconds=0)
            assert held.job.life.max_attempts == 7
            assert held.job.life.visible_until == api.clock.now() + 33_000
            assert held.job.execution == execution
