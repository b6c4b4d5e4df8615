"""Termination messages: whatever comes, how often and in which order, each attempt is closed once."""

from __future__ import annotations

import asyncio
import json
import random
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from airunner.domain.answers import DequeuedJob
from airunner.domain.errors import AirunnerError, InternalError, Unavailable
from airunner.domain.job import Job, JobParams, JobState, Outcome
from airunner.domain.lifecycle import Lifecycle
from airunner.domain.requests import CompleteRequest, DequeueRequest, EnqueueRequest
from airunner.domain.token import TokenSigner
from airunner.fleet.consuming import fleet_consumer
from airunner.fleet.dependencies import Dependencies
from airunner.fleet.messages.termination import (
    EndStatus,
    TerminationMessage,
    format_termination,
    parse_termination,
)
from airunner.fleet.records import RunnerParameter
from airunner.fleet.termination import CONCURRENCY, TerminationProcessor, TerminationRules, failure_kind
from airunner.queues.memory import MemoryQueue
from airunner.queues.message_rules import REASON_ATTRIBUTE
from airunner.queues.messages import NewMessage
from airunner.services.composition import Services
from airunner.stores.memory import MemoryStore
from airunner.testing.clock import ManualClock
from airunner.testing.conditions import until
from airunner.testing.factories import make_success
from tests.support.fleet import CountedAttempts, FakeParameters, FakeRecords, ended_attempt

SIGNER = TokenSigner([b"a key of the tests"])
INSTANCE = "i-0123456789abcdef0"


class FragileStore(MemoryStore):
    """A store that is away while a test says so."""

    error: AirunnerError | None = None

    async def get_life(self, job_id: str, *, queues: Collection[str] = ()) -> Lifecycle:
        if self.error:
            raise self.error
        return await super().get_life(job_id, queues=queues)


class Bench:
    """A queue, a store with jobs, and a processor between them."""

    def __init__(self, services: Services, store: FragileStore, clock: ManualClock) -> None:
        self.services, self.store, self.clock = services, store, clock
        self.queue = MemoryQueue(clock, name="termination", max_receive_count=3)
        self.parameters = FakeParameters()
        self.records = FakeRecords()
        self.dependencies = Dependencies(clock)
        self.use(TerminationRules())

    def use(self, rules: TerminationRules) -> None:
        self.processor = TerminationProcessor(
            self.services.jobs,
            self.parameters,
            self.records,
            SIGNER.terminations(),
            dependencies=self.dependencies,
            clock=self.clock,
            rules=rules,
        )

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """Process messages meanwhile."""
        consumer, source = fleet_consumer(
            self.queue,
            parse_termination,
            self.processor.process,
            dependencies=self.dependencies,
            clock=self.clock,
            concurrency=CONCURRENCY,
        )
        work = asyncio.create_task(consumer.run())
        try:
            yield
        finally:
            consumer.stop()
            await work
            await source.finish()

    async def run(self, instance_id: str = INSTANCE) -> DequeuedJob:
        """Enqueue a job that an instance gets, with its parameter."""
        params = JobParams(command="true")
        request = EnqueueRequest(request_id=str(uuid.uuid4()), queue="builds", params=params)
        await self.services.jobs.enqueue_jobs([request])
        return await self.claim(instance_id)

    async def claim(self, instance_id: str = INSTANCE) -> DequeuedJob:
        demand = DequeueRequest(queue="builds", instance_id=instance_id, wait_seconds=0)
        (held,) = await self.services.jobs.dequeue_jobs(demand)
        name = self.parameters.name_of(instance_id)
        self.parameters.known[name] = RunnerParameter(name=name, modified_at=self.clock.now())
        return held

    def end(self, held: DequeuedJob, status: EndStatus = EndStatus.SUCCESS) -> TerminationMessage:
        return ended_attempt(held, self.clock.now(), status)

    async def send(self, *messages: TerminationMessage) -> None:
        await self.queue.send([NewMessage(body=format_termination(message)) for message in messages])

    async def settled(self) -> None:
        """Return once there is no message left, letting time pass for those that wait."""
        for _ in range(200):
            for _ in range(50):
                await asyncio.sleep(0)
            if not self.queue._kept:
                return
            self.clock.advance(5)
        raise AssertionError("messages are left")

    async def job(self, held: DequeuedJob) -> Job:
        return await self.store.get_job(held.job.job_id)

    async def letters(self) -> list[str]:
        assert self.queue.dead_letters
        found = await self.queue.dead_letters.receive(100)
        return [message.attributes.get(REASON_ATTRIBUTE, "") for message in found]


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    clock = ManualClock()
    store = FragileStore(clock)
    async with Services(store, clock, SIGNER) as services:
        yield Bench(services, store, clock)


@pytest.fixture
def counted() -> CountedAttempts:
    return CountedAttempts()


async def test_an_end_is_reported_once(bench: Bench, counted: CountedAttempts) -> None:
    held = await bench.run()
    async with bench.working():
        await bench.send(bench.end(held))
        await bench.settled()
    job = await bench.job(held)
    assert job.state is JobState.COMPLETED
    assert job.life.result
    assert job.life.result.completed_at - job.life.result.started_at == 12_500
    assert bench.parameters.known == {}
    assert counted() == 1


@pytest.mark.parametrize(
    ("status", "state", "outcome"),
    [
        (EndStatus.FAILURE, JobState.FAILED, Outcome.FAILURE),
        (EndStatus.TIMEOUT, JobState.FAILED, Outcome.TIMEOUT),
    ],
)
async def test_an_end_that_is_no_success(
    bench: Bench, status: EndStatus, state: JobState, outcome: Outcome
) -> None:
    held = await bench.run()
    async with bench.working():
        await bench.send(replace(bench.end(held, status), error="it broke"))
        await bench.settled()
    life = (await bench.job(held)).life
    assert life.result
    assert (life.state, life.result.outcome, life.result.error_message) == (state, outcome, "it broke")


async def test_an_interrupted_attempt_is_given_back(bench: Bench, counted: CountedAttempts) -> None:
    held = await bench.run()
    async with bench.working():
        await bench.send(bench.end(held, EndStatus.INTERRUPTED))
        await bench.settled()
        assert (await bench.job(held)).state is JobState.SCHEDULED
        again = await bench.claim("i-2")
        # Late and again: the job is another's by now.
        await bench.send(bench.end(held, EndStatus.INTERRUPTED), bench.end(held))
        await bench.settled()
    assert (await bench.job(again)).life.instance_id == "i-2"
    assert counted() == 1


async def test_an_interrupted_attempt_ends_its_job_where_that_is_wanted(bench: Bench) -> None:
    bench.use(TerminationRules(requeue_interrupted=False))
    held = await bench.run()
    async with bench.working():
        await bench.send(bench.end(held, EndStatus.INTERRUPTED))
        await bench.settled()
    life = (await bench.job(held)).life
    assert life.result
    assert (life.state, life.result.outcome) == (JobState.FAILED, Outcome.INTERRUPTED)


async def test_an_attempt_that_its_worker_completed_is_counted_and_cleaned_up(
    bench: Bench, counted: CountedAttempts
) -> None:
    held = await bench.run()
    await bench.services.jobs.complete_jobs(
        [CompleteRequest(task_token=held.task_token, result=make_success())]
    )
    before = await bench.job(held)
    async with bench.working():
        await bench.send(bench.end(held, EndStatus.FAILURE))
        await bench.settled()
    assert await bench.job(held) == before
    assert bench.parameters.known == {}
    assert counted() == 1


async def test_a_message_that_proves_nothing_changes_nothing(bench: Bench, counted: CountedAttempts) -> None:
    held, other = await bench.run(), await bench.run("i-2")
    end = bench.end(held)
    forged = [
        replace(end, termination_token=""),
        replace(end, termination_token=other.termination_token),
        replace(end, termination_token=held.task_token),
        replace(end, instance_id="i-2"),
        replace(end, attempt=2),
        replace(end, attempt=0),
        replace(end, job_id=other.job.job_id),
        replace(end, job_id="67890"),
    ]
    async with bench.working():
        await bench.send(*forged)
        await bench.settled()
    assert await bench.letters() == ["token"] * len(forged)
    assert (await bench.job(held)).state is (await bench.job(other)).state is JobState.RUNNING
    assert len(bench.parameters.known) == 2
    assert counted() == 0


async def test_a_foreign_agent_is_taken_at_its_word_where_that_is_wanted(
    bench: Bench, counted: CountedAttempts
) -> None:
    bench.use(TerminationRules(require_token=False))
    held = await bench.run()
    end = replace(bench.end(held), termination_token="", attempt=0)
    async with bench.working():
        await bench.send(replace(end, instance_id="i-wrong"), replace(end, attempt=7))
        await bench.settled()
        assert (await bench.job(held)).state is JobState.RUNNING
        await bench.send(end, end)
        await bench.settled()
    assert (await bench.job(held)).state is JobState.COMPLETED
    assert counted() == 3


@pytest.mark.parametrize("job_id", ["67890", "018bcfe5-6800-7000-8000-000000000001"])
async def test_an_unknown_job_is_put_aside_after_its_parameter_is_gone(
    bench: Bench, counted: CountedAttempts, job_id: str
) -> None:
    bench.use(TerminationRules(require_token=False))
    held = await bench.run()
    async with bench.working():
        await bench.send(replace(bench.end(held), job_id=job_id))
        await bench.settled()
    assert await bench.letters() == ["unknown_job"]
    assert bench.parameters.known == {}
    assert (await bench.job(held)).state is JobState.RUNNING
    assert counted() == 0


async def test_a_job_id_of_another_form_has_no_token_and_cleans_up_nothing(
    bench: Bench, counted: CountedAttempts
) -> None:
    held = await bench.run()
    async with bench.working():
        await bench.send(replace(bench.end(held), job_id="67890"))
        await bench.settled()
    assert await bench.letters() == ["token"]
    assert len(bench.parameters.known) == 1
    assert counted() == 0


ODD = "odd \ud800\x00 \udfff\uffff"


@pytest.mark.parametrize("field", ["error", "job_id", "termination_token", "unheard_of"])
async def test_text_that_is_no_text_is_settled_at_once(bench: Bench, field: str) -> None:
    """JSON has escapes for halves of characters, which can be neither stored nor sent on."""
    bench.use(TerminationRules(require_token=field == "termination_token"))
    held = await bench.run()
    values = json.loads(format_termination(bench.end(held, EndStatus.FAILURE)))
    async with bench.working():
        await bench.queue.send([NewMessage(body=json.dumps({**values, field: ODD}))])
        await bench.settled()
    codes = {"job_id": ["unknown_job"], "termination_token": ["token"]}
    assert await bench.letters() == codes.get(field, [])
    job = await bench.job(held)
    assert job.state is (JobState.RUNNING if field in codes else JobState.FAILED)
    if field == "error":
        assert job.life.result
        assert job.life.result.error_message == "odd ?\x00 ?\uffff"


async def test_messages_that_come_often_and_in_any_order_count_each_attempt_once(
    bench: Bench, counted: CountedAttempts
) -> None:
    dice = random.Random(14)
    messages: list[TerminationMessage] = []
    for number in range(30):
        held = await bench.run(f"i-{number}")
        if number % 3 == 0:
            messages.append(bench.end(held, EndStatus.INTERRUPTED))
            await bench.services.jobs.end_attempt(
                held.job.job_id, 1, f"i-{number}", make_success(), give_back=True
            )
            held = await bench.claim(f"i-{number}-b")
        messages.append(bench.end(held, dice.choice([EndStatus.SUCCESS, EndStatus.FAILURE])))
    deliveries = [message for message in messages for _ in range(dice.randint(1, 5))]
    dice.shuffle(deliveries)
    async with bench.working():
        await bench.send(*deliveries)
        await bench.settled()
    assert counted() == len(messages) == 40
    stats = Counter([job.state for job in bench.store._jobs.values()])
    assert stats[JobState.RUNNING] == stats[JobState.SCHEDULED] == 0
    assert await bench.letters() == []
    assert bench.parameters.known == {}


@pytest.mark.parametrize("away", ["store", "parameters", "records"])
async def test_a_dependency_that_is_away_for_ten_minutes_costs_no_message(
    bench: Bench, counted: CountedAttempts, away: str
) -> None:
    held = [await bench.run(f"i-{number}") for number in range(50)]
    error = Unavailable("away")
    if away == "store":
        bench.store.error = error
    elif away == "parameters":
        bench.parameters.errors["delete"] = error
    else:
        bench.records.errors["count_once"] = error
    async with bench.working():
        await bench.send(*map(bench.end, held))
        for _ in range(120):
            bench.clock.advance(5)
            for _ in range(10):
                await asyncio.sleep(0)
        received = [kept for kept in bench.queue._kept.values() if kept.receive_count]
        assert 0 < len(received) <= 10
        assert all(kept.receive_count == 1 for kept in received)
        bench.store.error = None
        bench.parameters.errors.clear()
        bench.records.errors.clear()
        await bench.settled()
    assert await bench.letters() == []
    assert counted() == 50
    assert {(await bench.job(one)).state for one in held} == {JobState.COMPLETED}


async def test_a_mark_whose_answer_is_lost_is_counted_once(bench: Bench, counted: CountedAttempts) -> None:
    held = await bench.run()
    count_once = bench.records.count_once

    async def lose_the_answer(*args: Any, **options: Any) -> bool:
        bench.records.count_once = count_once  # type: ignore[method-assign]
        await count_once(*args, **options)
        raise Unavailable("no answer")

    bench.records.count_once = lose_the_answer  # type: ignore[method-assign]
    async with bench.working():
        await bench.send(bench.end(held), bench.end(held))
        await until(lambda: not bench.dependencies.are_there)
        bench.clock.advance(1)
        await bench.settled()
    assert counted() == 1


async def test_a_call_that_hangs_is_made_again(bench: Bench) -> None:
    calls = 0

    async def hang_once() -> str:
        nonlocal calls
        calls += 1
        if calls == 1:
            await asyncio.Event().wait()
        return "answer"

    call = asyncio.create_task(bench.dependencies.call("any", hang_once, seconds=0.01))
    await until(lambda: not bench.dependencies.are_there)
    bench.clock.advance(1)
    assert await call == "answer"
    assert bench.dependencies.are_there


async def test_a_repeated_call_that_is_cancelled_leaves_no_trace(bench: Bench) -> None:
    async def fail() -> None:
        raise Unavailable("away")

    call = asyncio.create_task(bench.dependencies.call("any", fail))
    await until(lambda: not bench.dependencies.are_there)
    call.cancel()
    await asyncio.wait([call])
    assert bench.dependencies.are_there


@pytest.mark.parametrize("error", [InternalError("odd"), ValueError("a defect")])
async def test_a_message_that_fails_comes_again_after_30_and_120_seconds_and_is_then_put_aside(
    bench: Bench, error: Exception
) -> None:
    held = await bench.run()
    bench.records.errors["count_once"] = error
    async with bench.working():
        await bench.send(bench.end(held))
        await until(lambda: bench.records.calls == ["count_once"])
        for seconds, calls in ((29, 1), (1, 2), (119, 2), (1, 3)):
            bench.clock.advance(seconds)
            for _ in range(50):
                await asyncio.sleep(0)
            assert len(bench.records.calls) == calls
        await bench.settled()
    assert await bench.letters() == ["failed"]


@pytest.mark.parametrize("call", ["end", "delete", "count_once"])
@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_death_around_any_call_is_made_good_and_counts_nothing_twice(
    bench: Bench, counted: CountedAttempts, call: str, moment: str
) -> None:
    held = await bench.run()
    died = die_once(bench, call, moment)
    async with bench.working():
        await bench.send(bench.end(held))
        await until(died.is_set)
    # The process is gone, and the visibility of its message passes.
    bench.clock.advance(120)
    async with bench.working():
        await bench.settled()
    assert (await bench.job(held)).state is JobState.COMPLETED
    assert bench.parameters.known == {}
    assert counted() == (0 if (call, moment) == ("count_once", "after") else 1)


async def test_a_slow_message_holds_back_no_other_and_is_finished_at_the_end(bench: Bench) -> None:
    slow, *others = [await bench.run(f"i-{number}") for number in range(10)]
    gate = asyncio.Event()
    delete = bench.parameters.delete

    async def wait_for_one(names: list[str]) -> object:
        if names == [bench.parameters.name_of("i-0")]:
            await gate.wait()
        return await delete(names)

    bench.parameters.delete = wait_for_one  # type: ignore[method-assign, assignment]
    async with bench.working():
        await bench.send(*map(bench.end, [slow, *others]))
        await until(lambda: len(bench.records.counted) == 9)
        asyncio.get_running_loop().call_later(0.01, gate.set)
    assert len(bench.records.counted) == 10
    assert bench.queue._kept == {}


def test_a_failure_is_of_one_of_a_few_kinds() -> None:
    end = TerminationMessage(
        instance_id="i-1",
        job_id="1",
        status=EndStatus.FAILURE,
        exit_code=3,
        duration_seconds=1,
        started_at=1,
        completed_at=1,
        error="a text that is nobody's dimension",
    )
    assert failure_kind(end) == "NonZeroExit"
    assert failure_kind(replace(end, exit_code=127)) == "CannotStart"
    assert failure_kind(replace(end, exit_code=0)) == "Other"
    assert failure_kind(replace(end, is_handler=True)) == "HandlerError"
    assert failure_kind(replace(end, is_handler=True, status=EndStatus.TIMEOUT)) == "Timeout"
    assert failure_kind(replace(end, status=EndStatus.TIMEOUT)) == "Timeout"
    assert failure_kind(replace(end, status=EndStatus.INTERRUPTED)) == "Interrupted"


def die_once(bench: Bench, call: str, moment: str) -> asyncio.Event:
    """Let the processing of the next message hang around a call for ever, as if its process had died."""
    died = asyncio.Event()
    owner, name = {
        "end": (bench.services.jobs, "end_attempt"),
        "delete": (bench.parameters, "delete"),
        "count_once": (bench.records, "count_once"),
    }[call]
    original = getattr(owner, name)

    async def dying(*args: object, **options: object) -> object:
        setattr(owner, name, original)
        if moment == "after":
            await original(*args, **options)
        died.set()
        raise asyncio.CancelledError

    setattr(owner, name, dying)
    return died
