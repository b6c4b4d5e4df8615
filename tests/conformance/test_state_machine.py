"""Whatever is asked in whatever order, SQLite answers as the memory store does, also over the wire."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    consumes,
    initialize,
    multiple,
    precondition,
    rule,
)

from airunner.domain.event import Event, EventType
from airunner.domain.job import JOB_STATES, JobParams, JobResult, JobState, Outcome
from airunner.domain.listing import JobQuery
from airunner.domain.requests import Abilities, CompleteRequest, EnqueueRequest, ReleaseRequest, StreamRequest
from airunner.testing.factories import make_batch, make_failure, make_line, make_request, make_success
from tests.conformance.conftest import Reach, in_process, over_rpc
from tests.conformance.twin import Pair, Twin

# Each machine is one test of many examples, and the computer may be busy.
pytestmark = pytest.mark.timeout(1800)
# The profile says how thorough to be; 100 is its usual number of examples.
THOROUGHNESS = settings().max_examples / 100
DAY = 24 * 3600

queues = st.sampled_from(["one", "two"])
handlers = st.sampled_from(["", "", "resize", "mail"])
able = st.sampled_from(
    [
        *[None] * 3,
        Abilities(commands=True),
        Abilities(handlers=("resize",)),
        Abilities(handlers=("mail", "resize"), commands=True),
    ]
)
results = st.sampled_from(
    [
        make_success(),
        make_failure(exit_code=3),
        make_failure(outcome=Outcome.INTERRUPTED),
        make_failure(outcome=Outcome.CANCELLED),
    ]
)
shapes = st.sampled_from(["next", "next", "next", "repeat", "gap", "overlap", "falling"])


class StoreMachine(RuleBasedStateMachine):
    reach: Reach

    requests = Bundle("requests")
    helds = Bundle("helds")
    completions = Bundle("completions")

    def __init__(self) -> None:
        super().__init__()
        self.twin = self.make_twin()

    def make_twin(self) -> Twin:
        return Twin(type(self).reach)

    def teardown(self) -> None:
        try:
            for job in self.twin.jobs:
                self.look(job)
            self.list_queues()
        finally:
            self.twin.close()

    @initialize(target=requests)
    def first_jobs(self) -> MultipleResults[EnqueueRequest]:
        added = [make_request(queue, max_attempts=2) for queue in ("one", "one", "two")]
        self.twin.ask(lambda api: api.jobs.enqueue_jobs(added))
        return multiple(*added)

    @rule(
        target=requests,
        queue=queues,
        delay_seconds=st.sampled_from([0, 0, 5]),
        max_attempts=st.sampled_from([0, 1, 2]),
        count=st.integers(1, 3),
        handler=handlers,
    )
    def enqueue(
        self, queue: str, delay_seconds: int, max_attempts: int, count: int, handler: str
    ) -> MultipleResults[EnqueueRequest]:
        params = JobParams(handler=handler) if handler else None
        added = [
            make_request(queue, params=params, delay_seconds=delay_seconds, max_attempts=max_attempts)
            for _ in range(count)
        ]
        self.twin.ask(lambda api: api.jobs.enqueue_jobs(added))
        return multiple(*added)

    @rule(request=requests, other=st.booleans())
    def enqueue_again(self, request: EnqueueRequest, other: bool) -> None:
        if other:
            request = replace(request, delay_seconds=request.delay_seconds + 1)
        self.twin.ask(lambda api: api.jobs.enqueue_jobs([request]))

    @rule(
        target=helds,
        first=queues,
        both=st.booleans(),
        max_jobs=st.integers(1, 3),
        visibility_seconds=st.sampled_from([5, 20]),
        first_lease_seconds=st.sampled_from([0, 0, 1, 10]),
        abilities=able,
    )
    def dequeue(
        self,
        first: str,
        both: bool,
        max_jobs: int,
        visibility_seconds: int,
        first_lease_seconds: int,
        abilities: Abilities | None,
    ) -> MultipleResults[Pair]:
        more = ["one", "two"] if both else []
        return self.taken(
            self.twin.ask(
                lambda api: api.dequeue(
                    first,
                    more_queues=more,
                    max_jobs=max_jobs,
                    visibility_seconds=visibility_seconds,
                    first_lease_seconds=first_lease_seconds,
                    worker_id="worker-1",
                    abilities=abilities,
                )
            )
        )

    @rule(
        target=helds,
        queue=queues,
        held=helds,
        how=st.sampled_from(["enqueue", "release", "resume", "cancel"]),
        abilities=able,
        handler=handlers,
    )
    def dequeue_waiting(
        self, queue: str, held: Pair, how: str, abilities: Abilities | None, handler: str
    ) -> MultipleResults[Pair]:
        """Wait for a job, and bring one about, or not."""
        twin = self.twin
        if how == "resume":
            twin.ask(lambda api: api.jobs.set_paused(queue, paused=True))
        if self.waiting_would_be_over(queue, abilities):
            return multiple()

        async def meanwhile() -> None:
            request = make_request(queue, params=JobParams(handler=handler) if handler else None)
            match how:
                case "enqueue":
                    await twin.ask_async(*[lambda api: api.jobs.enqueue_jobs([request])] * 2)
                case "resume":
                    await twin.ask_async(*[lambda api: api.jobs.set_paused(queue, paused=False)] * 2)
                case "release":
                    await twin.ask_async(
                        lambda api: api.release(held.model), lambda api: api.release(held.subject)
                    )
                case _:
                    await twin.ask_async(
                        lambda api: api.jobs.cancel_job(held.model.job.job_id),
                        lambda api: api.jobs.cancel_job(held.subject.job.job_id),
                    )

        found = twin.run(
            twin.waited(lambda api: api.dequeue(queue, wait_seconds=20, abilities=abilities), meanwhile)
        )
        return self.taken(found) if found else multiple()

    @rule(held=helds, seconds=st.sampled_from([0, 5, 40]))
    def beat(self, held: Pair, seconds: int) -> None:
        self.twin.ask(lambda api: api.beat(held.model, seconds), lambda api: api.beat(held.subject, seconds))

    @rule(held=helds, shape=shapes, count=st.integers(1, 4), batched=st.booleans())
    def publish(self, held: Pair, shape: str, count: int, batched: bool) -> None:
        events = self.events_for(held, shape, count, batched)
        self.twin.ask(
            lambda api: api.publish(held.model, *events), lambda api: api.publish(held.subject, *events)
        )

    @rule(
        target=completions,
        held=consumes(helds),
        result=results,
        final=st.sampled_from([None, 0, 0, 1]),
        shape=shapes,
        count=st.integers(0, 2),
    )
    def complete(self, held: Pair, result: JobResult, final: int | None, shape: str, count: int) -> Pair:
        events = self.events_for(held, shape, count, batched=True) if count else []
        last = max([self.last_sequence(held), *(event.last_sequence for event in events)])
        if final is not None:
            result = replace(result, final_sequence=last + final)
        return self.completed(
            *(
                CompleteRequest(task_token=one.task_token, result=result, events=events)
                for one in (held.model, held.subject)
            )
        )

    @rule(completion=completions, other=st.booleans())
    def complete_again(self, completion: Pair, other: bool) -> None:
        requests = [completion.model, completion.subject]
        if other:
            requests = [replace(request, result=make_failure(exit_code=99)) for request in requests]
        self.completed(*requests)

    @rule(
        held=helds,
        delay_seconds=st.sampled_from([0, 0, 7]),
        unstarted=st.booleans(),
        error=st.sampled_from(["", "boom"]),
        shape=shapes,
        count=st.integers(0, 2),
    )
    def release(
        self, held: Pair, delay_seconds: int, unstarted: bool, error: str, shape: str, count: int
    ) -> None:
        events = self.events_for(held, shape, count, batched=False) if count else []
        request = ReleaseRequest(
            task_token=held.model.task_token,
            delay_seconds=delay_seconds,
            unstarted=unstarted,
            error=error,
            events=events,
        )
        theirs = replace(request, task_token=held.subject.task_token)
        self.twin.ask(lambda api: api.jobs.release_job(request), lambda api: api.jobs.release_job(theirs))

    @rule(number=st.integers(0, 30))
    def cancel(self, number: int) -> None:
        job = self.job(number)
        self.twin.ask(
            lambda api: api.jobs.cancel_job(job.model), lambda api: api.jobs.cancel_job(job.subject)
        )

    @rule(number=st.integers(0, 30), request_id=st.uuids(version=4))
    def retry(self, number: int, request_id: uuid.UUID) -> None:
        job = self.job(number)
        self.twin.ask(
            lambda api: api.jobs.retry_job(job.model, str(request_id)),
            lambda api: api.jobs.retry_job(job.subject, str(request_id)),
        )

    @rule(queue=queues, paused=st.sampled_from([True, False, False]))
    def pause(self, queue: str, paused: bool) -> None:
        self.twin.ask(lambda api: api.jobs.set_paused(queue, paused=paused))

    @rule(seconds=st.sampled_from([1, 5, 10, 21]), maintained=st.booleans())
    def advance(self, seconds: int, maintained: bool) -> None:
        self.twin.clock.advance(seconds)
        if maintained:
            self.maintain()

    @rule(days=st.sampled_from([3, 8, 31]))
    @precondition(lambda self: len(self.twin.jobs) > 6)
    def age(self, days: int) -> None:
        self.twin.clock.advance(days * DAY)
        self.maintain()

    @rule()
    def maintain(self) -> None:
        self.twin.ask(lambda api: api.services.maintenance.run_once())

    @rule(
        held=helds,
        from_sequence=st.integers(0, 6),
        attempt=st.sampled_from([0, 0, 1, 2]),
        wanted=st.sampled_from(
            [frozenset(), frozenset({EventType.OUTPUT_BATCH}), frozenset({EventType.GAP})]
        ),
    )
    def replay(self, held: Pair, from_sequence: int, attempt: int, wanted: frozenset[EventType]) -> None:
        request = StreamRequest(
            job_id=held.model.job.job_id,
            from_sequence=from_sequence,
            attempt=attempt,
            event_filter=wanted,
            follow=False,
        )
        self.read(request, replace(request, job_id=held.subject.job.job_id))

    @rule(
        queue=st.sampled_from(["", "one", "two"]),
        state=st.sampled_from([None, *JOB_STATES]),
        page=st.integers(1, 3),
        page_size=st.sampled_from([2, 5]),
    )
    def list_jobs(self, queue: str, state: JobState | None, page: int, page_size: int) -> None:
        query = JobQuery(queue=queue, state=state, page=page, page_size=page_size)
        found = self.twin.ask(lambda api: api.jobs.list_jobs(query))
        if found.model.next_cursor:
            mine = replace(query, page=1, cursor=found.model.next_cursor)
            theirs = replace(mine, cursor=found.subject.next_cursor)
            self.list_on(mine, theirs)

    def list_on(self, mine: JobQuery, theirs: JobQuery) -> None:
        self.twin.ask(lambda api: api.jobs.list_jobs(mine), lambda api: api.jobs.list_jobs(theirs))

    @rule()
    def list_queues(self) -> None:
        self.twin.ask(lambda api: api.jobs.list_queues())

    @rule()
    def restart(self) -> None:
        self.twin.restart()

    def look(self, job: Pair) -> None:
        """Compare all that can be known of a job, also from the middle of its events."""
        self.twin.ask(lambda api: api.jobs.get_job(job.model), lambda api: api.jobs.get_job(job.subject))
        whole = StreamRequest(job_id=job.model, follow=False)
        events = self.read(whole, replace(whole, job_id=job.subject)).model
        if isinstance(events, list) and len(events) > 1:
            rest = replace(whole, cursor=events[len(events) // 2].cursor)
            self.read(rest, replace(rest, job_id=job.subject))

    def read(self, mine: StreamRequest, theirs: StreamRequest) -> Pair:
        return self.twin.ask(lambda api: api.read(mine), lambda api: api.read(theirs))

    def job(self, number: int) -> Pair:
        return self.twin.jobs[number % len(self.twin.jobs)]

    def taken(self, answers: Pair) -> MultipleResults[Pair]:
        pairs = zip(answers.model, answers.subject, strict=True)
        return multiple(*(Pair(model=mine, subject=theirs) for mine, theirs in pairs))

    def completed(self, mine: CompleteRequest, theirs: CompleteRequest) -> Pair:
        self.twin.ask(
            lambda api: api.jobs.complete_jobs([mine]), lambda api: api.jobs.complete_jobs([theirs])
        )
        return Pair(model=mine, subject=theirs)

    def waiting_would_be_over(self, queue: str, abilities: Abilities | None) -> bool:
        keys = abilities.keys if abilities else None
        return bool(self.twin.memory._claimable(queue, 1, self.twin.clock.now(), keys))

    def last_sequence(self, held: Pair) -> int:
        job = self.twin.memory._jobs.get(held.model.job.job_id)
        return job.life.last_sequence if job else 0

    def events_for(self, held: Pair, shape: str, count: int, batched: bool) -> list[Event]:
        last, now = self.last_sequence(held), self.twin.clock.now()
        first = {"repeat": max(1, last - 1), "gap": last + 2, "overlap": max(1, last)}.get(shape, last + 1)
        if batched:
            return [make_batch(first, first + count - 1, at=now)]
        lines = [make_line(sequence, at=now) for sequence in range(first, first + count)]
        return lines[::-1] if shape == "falling" else lines


class InProcess(StoreMachine):
    reach = staticmethod(in_process)


class OverRpc(StoreMachine):
    reach = staticmethod(over_rpc)


TestSqliteInProcess: Any = InProcess.TestCase
TestSqliteInProcess.settings = settings(max_examples=int(400 * THOROUGHNESS), stateful_step_count=30)
TestSqliteOverRpc: Any = OverRpc.TestCase
TestSqliteOverRpc.settings = settings(max_examples=int(120 * THOROUGHNESS), stateful_step_count=30)
