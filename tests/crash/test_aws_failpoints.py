"""A replica dies at each of its calls to AWS, one after the other; another one finds what it left.

No job is lost, run twice at once or ended twice, and what was acknowledged is there exactly once. Each test
says what must be so after each death; `deaths` has all that clients were told judged by the history checker.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace

import pytest

from airunner.domain.answers import DequeuedJob
from airunner.domain.errors import AirunnerError, AttemptSuperseded, JobNotFound, NotFound
from airunner.domain.event import Event
from airunner.domain.job import JobParams, JobState, Outcome
from airunner.domain.listing import JobQuery
from airunner.domain.requests import StreamRequest
from airunner.testing.conformance.stores.backend import Api
from airunner.testing.factories import NOON, make_batch, make_request, make_success
from tests.crash.replicas import RECEIVED_SECONDS, Death, World, deaths, opened_world
from tests.doubles.aws.emulator import EmulatorProcess
from tests.doubles.aws.strict import StrictAws

DAY = 24 * 3600
# More than a row holds itself.
LARGE = '"' + "x" * 5_000 + '"'

published = [make_batch(1, 3)]
more = [make_batch(4, 6), make_batch(7, 9)]
# The result of a process that wrote both.
ALL_LINES = b"".join(b"line %d\n" % number for number in range(1, 10))
success = replace(make_success(final_sequence=9), output_sha256=hashlib.sha256(ALL_LINES).digest())


@pytest.fixture
async def world(strict_aws: StrictAws, emulator: EmulatorProcess, aws_env: str) -> AsyncIterator[World]:
    async with opened_world(strict_aws, emulator, aws_env) as opened:
        yield opened


@pytest.mark.slow
@pytest.mark.parametrize("repeated", [True, False], ids=["repeated", "given up"])
async def test_an_enqueue(world: World, repeated: bool) -> None:
    async for death in deaths(world):
        request = make_request(params=JobParams(command="make", args=(LARGE,)))
        # A replica's first job takes a call more. Were it not always the first, a call would be passed over.
        world.mortal.store._enqueuer._used_queues.clear()
        answer = await death.of(Api.enqueue, request)
        accepted = [] if isinstance(answer, AirunnerError) else [answer]
        if repeated:
            job_id = await world.survivor.enqueue(request)
            assert accepted in ([], [job_id]), death
            accepted = [job_id]
        await world.let_lapse()
        claims = await world.claims()
        # One that was not accepted may be there all the same, but only whole.
        assert [held.job.job_id for held in claims] == accepted or (not accepted and len(claims) < 2), death
        assert all(held.job.attempt == 1 for held in claims)
        for held in claims:
            assert held.job.params == request.params
            await world.survivor.complete(held)
        await assert_all_over(world, death)


async def test_a_claim(world: World) -> None:
    async for death in deaths(world):
        jobs = set(await world.survivor.enqueue_many(3))
        answer = await death.of(Api.dequeue, max_jobs=10)
        held = [] if isinstance(answer, AirunnerError) else list(answer)
        # The messages show again long before the claims lapse.
        world.emulator.advance(RECEIVED_SECONDS)
        at_once = await world.claims()
        assert not names(held) & names(at_once), death
        for one in [*held, *at_once]:
            await world.survivor.complete(one)
        await world.let_lapse()
        later = await world.claims()
        assert names(held) | names(at_once) | names(later) == jobs, death
        assert len(held) + len(at_once) + len(later) == len(jobs), death
        assert all(one.job.attempt <= 2 for one in later)
        for one in later:
            await world.survivor.complete(one)
        await assert_all_over(world, death)


async def test_a_publish(world: World) -> None:
    async for death in deaths(world):
        held = await begun(world)
        answer = await death.of(Api.publish, held, *more)
        stored = await sequences(world, held)
        assert stored in (through(3), through(9)), death
        assert isinstance(answer, AirunnerError) or stored == through(9), death
        await world.survivor.publish(held, *more)
        assert await sequences(world, held) == through(9), death
        await world.survivor.complete(held, success)
        await assert_all_over(world, death)


@pytest.mark.slow
async def test_a_publish_that_is_cut_otherwise_when_it_is_repeated(world: World) -> None:
    async for death in deaths(world):
        held = await begun(world)
        await death.of(Api.publish, held, *more)
        if await sequences(world, held) == through(3):
            await world.survivor.publish(held, make_batch(4, 8, at=NOON + 99))
            await world.survivor.publish(held, make_batch(9, 9, at=NOON + 99))
        assert await sequences(world, held) == through(9), death
        for first in (5, 7, 9):
            assert await sequences(world, held, first) == through(9)[first - 1 :], death
            (event, *_) = await events(world, held, first)
            assert event == (await events(world, held))[first - 1], death
        await world.survivor.complete(held, success)


@pytest.mark.parametrize("repeated", [True, False], ids=["repeated", "given up"])
async def test_an_end(world: World, repeated: bool) -> None:
    result = replace(success, output_json=LARGE)
    async for death in deaths(world):
        held = await begun(world)
        answer = await death.of(Api.complete, held, result, *more)
        job = await world.job(held.job.job_id)
        expected = through(9) if job.state is JobState.COMPLETED else through(3)
        assert await sequences(world, held) == expected, death
        assert isinstance(answer, AirunnerError) or job.state is JobState.COMPLETED, death
        if repeated:
            assert await world.survivor.complete(held, result, *more) is JobState.COMPLETED
            assert await world.survivor.complete(held, result, *more) is JobState.COMPLETED
            assert await sequences(world, held) == through(9), death
        await world.let_lapse()
        again = await world.claims()
        ended = (await world.job(held.job.job_id)).state is JobState.COMPLETED
        assert len(again) == (0 if ended else 1), death
        for one in again:
            with pytest.raises(AttemptSuperseded):
                await world.survivor.complete(held, result, *more)
            await world.survivor.complete(one, result, *published, *more)
        assert (await world.job(held.job.job_id)).result == result
        await assert_all_over(world, death)


@pytest.mark.slow
async def test_a_release(world: World) -> None:
    async for death in deaths(world):
        held = await begun(world)
        answer = await death.of(Api.release, held, *more)
        job = await world.job(held.job.job_id)
        expected = through(9) if job.state is JobState.SCHEDULED else through(3)
        assert await sequences(world, held) == expected, death
        assert isinstance(answer, AirunnerError) or job.state is JobState.SCHEDULED, death
        if job.state is JobState.RUNNING:
            await world.survivor.release(held, *more)
        else:
            with pytest.raises(AttemptSuperseded):
                await world.survivor.release(held, *more)
        await world.let_lapse()
        (again,) = await world.claims()
        assert (again.job.job_id, again.job.attempt) == (held.job.job_id, 2), death
        await world.survivor.complete(again)
        assert await sequences(world, held) == through(9), death
        await assert_all_over(world, death)


@pytest.mark.slow
async def test_a_cancellation(world: World) -> None:
    async for death in deaths(world):
        held = await begun(world)
        waiting = await world.survivor.enqueue()
        for job_id in (held.job.job_id, waiting):
            await death.of(cancel, job_id)
            await world.survivor.jobs.cancel_job(job_id)
        assert (await world.survivor.beat(held)).cancel_requested
        assert (await world.job(waiting)).state is JobState.CANCELLED
        await world.let_lapse()
        assert (await world.job(held.job.job_id)).state is JobState.CANCELLED
        await assert_all_over(world, death)


@pytest.mark.slow
async def test_a_look_at_a_job_whose_message_was_lost(world: World) -> None:
    async for death in deaths(world):
        job_id = await world.survivor.enqueue()
        (unseen,) = await world.survivor.dequeue()
        await world.survivor.release(unseen, unstarted=True, delay_seconds=5)
        await world.lose_messages()
        world.clock.advance(70)
        await death.of(Api.advance, 0)
        await world.let_lapse()
        (held,) = await world.claims()
        assert (held.job.job_id, held.job.attempt) == (job_id, 2), death
        await world.survivor.complete(held)
        await assert_all_over(world, death)


@pytest.mark.slow
async def test_a_look_at_a_lost_holder(world: World) -> None:
    async for death in deaths(world):
        held = await begun(world, max_attempts=2)
        await world.lose_messages()
        world.clock.advance(126)
        await death.of(Api.advance, 0)
        await world.let_lapse()
        (again,) = await world.claims()
        assert (again.job.job_id, again.job.attempt) == (held.job.job_id, 2), death
        await world.survivor.beat(again)  # so that the lapse costs a try
        world.clock.advance(126)
        await death_again(world, death)
        await world.let_lapse()
        job = await world.job(held.job.job_id)
        assert job.result is not None
        assert job.result.outcome is Outcome.LOST, death
        with pytest.raises(AttemptSuperseded):
            await world.survivor.complete(again)
        await assert_all_over(world, death)


@pytest.mark.slow
async def test_a_purge(world: World) -> None:
    first = await world.survivor.new_claim()
    await world.survivor.complete(first)
    await world.pass_time(8 * DAY)
    world.witness.history.purge(first.job.job_id)
    left = await world.items()
    async for death in deaths(world):
        request = make_request(params=JobParams(command="make", args=(LARGE,)))
        held = await world.survivor.new_claim(request)
        await world.survivor.publish(held, *published, *more)
        await world.survivor.complete(held, replace(success, output_json=LARGE))
        world.clock.advance(8 * DAY)
        world.witness.history.purge(held.job.job_id)
        await death.of(Api.advance, 0)
        # Whoever looks meanwhile finds a job or none, and the list of the others.
        with suppress(NotFound):
            await world.job(held.job.job_id)
        await world.survivor.jobs.list_jobs(JobQuery(queue="builds"))
        await world.pass_time(1)
        with pytest.raises(JobNotFound):
            await world.job(held.job.job_id)
        assert await world.items() == left, death
        await assert_all_over(world, death)


@pytest.mark.slow
async def test_a_request_that_is_made_again_in_the_midst_of_its_purge(world: World) -> None:
    async for death in deaths(world):
        request = make_request()
        old = await world.survivor.new_claim(request)
        await world.survivor.complete(old)
        world.clock.advance(8 * DAY)
        world.witness.history.purge(old.job.job_id)
        await death.of(Api.advance, 0)
        job_id = await world.survivor.enqueue(request)
        await world.pass_time(1)
        known = {job.job_id for job in (await world.survivor.jobs.list_jobs(JobQuery(queue="builds"))).jobs}
        # Asked before the purge had come so far, it was the old job, which is gone since.
        assert (await world.survivor.enqueue(request) == job_id) == (job_id in known), death
        for held in await world.claims():
            await world.survivor.complete(held)


async def begun(world: World, max_attempts: int = 3) -> DequeuedJob:
    """A job that is held, with its first events stored."""
    held = await world.survivor.new_claim(make_request(max_attempts=max_attempts))
    await world.survivor.publish(held, *published)
    return held


async def death_again(world: World, death: Death) -> None:
    """Let another replica die at the same call."""
    await Death(world.mortal, death.at_call, death.executed).of(Api.advance, 0)


async def cancel(api: Api, job_id: str) -> None:
    await api.jobs.cancel_job(job_id)


async def events(world: World, held: DequeuedJob, first: int = 0) -> list[Event]:
    request = StreamRequest(
        job_id=held.job.job_id, attempt=held.job.attempt, from_sequence=first, follow=False
    )
    return await world.survivor.read(request)


async def sequences(world: World, held: DequeuedJob, first: int = 0) -> list[int]:
    return [event.sequence for event in await events(world, held, first)]


def through(last: int) -> list[int]:
    return list(range(1, last + 1))


def names(helds: list[DequeuedJob]) -> set[str]:
    return {held.job.job_id for held in helds}


async def assert_all_over(world: World, death: Death) -> None:
    """Nothing is to be had any more, also when all messages show again that can."""
    world.emulator.advance(RECEIVED_SECONDS)
    assert await world.claims() == [], death
