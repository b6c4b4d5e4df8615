"""The end of an attempt: release and completion."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from airunner.domain.errors import FailedPrecondition, InvalidArgument, NotFound, SequenceMismatch
from airunner.domain.event import Event, Gap
from airunner.domain.job import JobResult, JobState, Outcome
from airunner.domain.requests import CompleteRequest
from airunner.testing.factories import (
    NOON,
    make_batch,
    make_end,
    make_failure,
    make_line,
    make_request,
    make_success,
)

if TYPE_CHECKING:
    from airunner.testing.conformance.stores.backend import Api

MONTH = 30 * 24 * 3600


class ReleaseConformance:
    async def test_a_released_job_is_claimable_at_once_as_a_new_attempt(self, api: Api) -> None:
        held = await api.new_claim()
        assert await api.release(held) is JobState.SCHEDULED
        again = await api.claim()
        assert (again.job.job_id, again.job.attempt, again.job.life.handed_back) == (held.job.job_id, 2, 0)

    async def test_a_released_job_belongs_to_nobody(self, api: Api) -> None:
        await api.enqueue()
        (held,) = await api.dequeue(worker_id="worker-1")
        await api.release(held)
        job = await api.job(held)
        assert (job.life.worker_id, job.life.visible_until) == ("", 0)

    async def test_a_release_with_a_delay_is_due_after_it(self, api: Api) -> None:
        held = await api.new_claim()
        await api.release(held, delay_seconds=30)
        await api.advance(29.999)
        assert await api.dequeue() == []
        await api.lapse(0.001)
        assert (await api.claim()).job.attempt == 2

    async def test_an_unstarted_attempt_costs_no_try(self, api: Api) -> None:
        await api.enqueue(make_request(max_attempts=1))
        for attempt in range(1, 5):
            held = await api.claim()
            assert (held.job.attempt, held.job.life.handed_back) == (attempt, attempt - 1)
            assert await api.release(held, unstarted=True) is JobState.SCHEDULED

    async def test_an_attempt_with_events_has_started(self, api: Api) -> None:
        held = await api.new_claim()
        await api.publish(held, make_line(1))
        with pytest.raises(FailedPrecondition):
            await api.release(held, unstarted=True)
        assert await api.release(held) is JobState.SCHEDULED

    async def test_an_unstarted_attempt_has_neither_events_nor_an_error(self, api: Api) -> None:
        held = await api.new_claim()
        with pytest.raises(InvalidArgument):
            await api.release(held, make_line(1), unstarted=True)
        with pytest.raises(InvalidArgument):
            await api.release(held, unstarted=True, error="boom")

    async def test_the_last_events_are_stored_with_the_release(self, api: Api) -> None:
        held = await api.new_claim()
        await api.publish(held, make_line(1))
        await api.release(held, make_batch(2, 4), make_end(5))
        assert await api.stored(held.job.job_id) == [(1, sequence) for sequence in range(1, 6)]

    async def test_a_release_with_a_gap_changes_nothing(self, api: Api) -> None:
        held = await api.new_claim()
        with pytest.raises(SequenceMismatch) as refused:
            await api.release(held, make_line(2))
        assert refused.value.expected == 1
        assert (await api.job(held)).state is JobState.RUNNING
        assert await api.release(held) is JobState.SCHEDULED

    async def test_the_error_of_a_release_is_kept(self, api: Api) -> None:
        held = await api.new_claim()
        await api.release(held, error="the handler raised")
        job = await api.job(held)
        assert (job.state, job.life.last_error, job.result) == (
            JobState.SCHEDULED,
            "the handler raised",
            None,
        )

    @pytest.mark.parametrize(
        ("error", "outcome", "message"),
        [
            ("boom", Outcome.FAILURE, "boom"),
            ("", Outcome.INTERRUPTED, "interrupted on its last try"),
        ],
        ids=["error", "none"],
    )
    async def test_the_release_of_the_last_try_ends_the_job(
        self, api: Api, error: str, outcome: Outcome, message: str
    ) -> None:
        held = await api.new_claim(make_request(max_attempts=1))
        assert await api.release(held, make_line(1), error=error) is JobState.FAILED
        job = await api.job(held)
        assert job.result is not None
        assert (job.result.outcome, job.result.error_message) == (outcome, message)
        assert await api.stored(held.job.job_id) == [(1, 1)]
        assert await api.dequeue() == []

    async def test_the_release_of_a_cancelled_job_ends_it(self, api: Api) -> None:
        held = await api.new_claim()
        await api.jobs.cancel_job(held.job.job_id)
        assert await api.release(held) is JobState.CANCELLED

    async def test_limits_of_a_release(self, api: Api) -> None:
        held = await api.new_claim()
        for delay in (-1, MONTH + 1):
            with pytest.raises(InvalidArgument):
                await api.release(held, delay_seconds=delay)
        with pytest.raises(InvalidArgument):
            await api.release(held, error="x" * (64 * 1024 + 1))
        assert await api.release(held, delay_seconds=MONTH, error="x" * 64 * 1024) is JobState.SCHEDULED


class CompleteConformance:
    @pytest.mark.parametrize(
        ("result", "state"),
        [
            (make_success(), JobState.COMPLETED),
            (make_failure(exit_code=3), JobState.FAILED),
            (make_failure(outcome=Outcome.TIMEOUT, exit_code=-9), JobState.FAILED),
            (make_failure(outcome=Outcome.INTERRUPTED), JobState.FAILED),
        ],
    )
    async def test_a_job_ends_with_its_result(self, api: Api, result: JobResult, state: JobState) -> None:
        held = await api.new_claim()
        result = replace(result, started_at=NOON, completed_at=NOON + 5, error_message="text")
        assert await api.complete(held, result) is state
        job = await api.job(held)
        assert (job.state, job.result) == (state, result)
        assert await api.dequeue() == []
        await api.lapse(100)
        assert await api.dequeue() == []

    async def test_a_handlers_output_comes_back(self, api: Api) -> None:
        held = await api.new_claim()
        result = make_success(output_json='{"pages": [' + "1, " * 80_000 + "2]}")
        await api.complete(held, result)
        assert (await api.job(held)).result == result

    async def test_repeating_a_completion_is_fine(self, api: Api) -> None:
        held = await api.new_claim()
        for _ in range(3):
            state = await api.complete(held, make_success(final_sequence=2), make_batch(1, 2))
            assert state is JobState.COMPLETED
            await api.advance(1)
        assert await api.stored(held.job.job_id) == [(1, 1), (1, 2)]

    async def test_another_result_is_refused(self, api: Api) -> None:
        held = await api.new_claim()
        await api.complete(held, make_failure(exit_code=1))
        for other in (make_failure(exit_code=2), make_success()):
            with pytest.raises(FailedPrecondition):
                await api.complete(held, other)
        assert (await api.job(held)).result == make_failure(exit_code=1)

    async def test_last_events_and_end_become_visible_together(self, api: Api) -> None:
        held = await api.new_claim()
        await api.publish(held, make_line(1))
        await api.complete(held, make_success(final_sequence=52), make_batch(2, 51), make_end(52))
        assert await api.stored(held.job.job_id) == [(1, sequence) for sequence in range(1, 53)]
        assert (await api.job(held)).life.last_sequence == 52

    async def test_events_that_are_stored_already_may_be_carried_again(self, api: Api) -> None:
        held = await api.new_claim()
        await api.publish(held, make_batch(1, 3))
        await api.complete(held, make_success(final_sequence=4), make_batch(1, 3), make_end(4))
        assert len(await api.stored(held.job.job_id)) == 4

    @pytest.mark.parametrize(("final_sequence", "expected"), [(5, 4), (2, 4)])
    async def test_a_completion_that_leaves_a_gap_is_refused(
        self, api: Api, final_sequence: int, expected: int
    ) -> None:
        held = await api.new_claim()
        await api.publish(held, make_batch(1, 3))
        with pytest.raises(SequenceMismatch) as refused:
            await api.complete(held, make_success(final_sequence=final_sequence))
        assert refused.value.expected == expected
        assert (await api.job(held)).state is JobState.RUNNING

    async def test_a_refused_completion_stores_none_of_its_events(self, api: Api) -> None:
        held = await api.new_claim()
        with pytest.raises(SequenceMismatch):
            await api.complete(held, make_success(final_sequence=9), make_batch(1, 3))
        assert await api.stored(held.job.job_id) == []

    async def test_what_is_truly_lost_may_be_said_so(self, api: Api) -> None:
        held = await api.new_claim()
        gap = Event(sequence=1, timestamp=NOON, data=Gap(first_sequence=1, last_sequence=8, reason="lost"))
        assert (
            await api.complete(held, make_success(final_sequence=9), gap, make_end(9)) is JobState.COMPLETED
        )

    async def test_the_final_sequence_is_not_checked_when_unset(self, api: Api) -> None:
        held = await api.new_claim()
        await api.publish(held, make_batch(1, 3))
        assert await api.complete(held, make_success()) is JobState.COMPLETED

    async def test_a_result_may_name_its_job_but_no_other(self, api: Api) -> None:
        held = await api.new_claim()
        other = await api.enqueue()
        with pytest.raises(InvalidArgument):
            await api.complete(held, job_id=other)
        with pytest.raises(InvalidArgument):
            await api.complete(held, job_id="67890")
        assert await api.complete(held, job_id=held.job.job_id) is JobState.COMPLETED

    @pytest.mark.parametrize(
        "result",
        [
            JobResult(success=True, outcome=Outcome.FAILURE),
            JobResult(success=True, outcome=Outcome.SUCCESS, exit_code=1),
            make_success(final_sequence=-1),
            make_failure(error="x" * (64 * 1024 + 1)),
            make_success(output_json='"' + "x" * 1024 * 1024 + '"'),
            JobResult(success=True, outcome=Outcome.SUCCESS, output_sha256=b"short"),
        ],
    )
    async def test_a_malformed_result_is_refused(self, api: Api, result: JobResult) -> None:
        held = await api.new_claim()
        with pytest.raises(InvalidArgument):
            await api.complete(held, result)
        assert (await api.job(held)).state is JobState.RUNNING

    async def test_results_are_kept_whole_up_to_a_mebibyte_however_many_come_together(self, api: Api) -> None:
        await api.enqueue_many(5)
        taken = [held for _ in range(5) for held in await api.dequeue()]
        results = [make_success(output_json='"' + letter * (2**20 - 2) + '"') for letter in "abcde"]
        outcomes = await api.jobs.complete_jobs(
            [
                CompleteRequest(task_token=held.task_token, result=result)
                for held, result in zip(taken, results, strict=True)
            ]
        )
        assert outcomes == [JobState.COMPLETED] * 5
        assert [(await api.job(held)).result for held in taken] == results

    async def test_each_completion_of_a_call_has_its_own_outcome(self, api: Api) -> None:
        await api.enqueue_many(3)
        first, second, third = await api.dequeue(max_jobs=3)
        await api.release(second)
        outcomes = await api.jobs.complete_jobs(
            [
                CompleteRequest(task_token=first.task_token, result=make_success()),
                CompleteRequest(task_token=second.task_token, result=make_success()),
                CompleteRequest(task_token="nonsense", result=make_success()),
                CompleteRequest(task_token=third.task_token, result=make_failure()),
            ]
        )
        assert outcomes[0] is JobState.COMPLETED
        assert isinstance(outcomes[1], NotFound)
        assert isinstance(outcomes[2], InvalidArgument)
        assert outcomes[3] is JobState.FAILED
