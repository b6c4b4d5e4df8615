"""The whole life of one job, in memory, as it can be read from top to bottom.

The same calls work over the wire with `AsyncClient`, and on every other store. The clock stands still
unless a test moves it.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator

import pytest

from airunner.domain.answers import DequeuedJob, Enqueued
from airunner.domain.batching import Batcher
from airunner.domain.errors import NotFound
from airunner.domain.event import Event, EventType, Output, ProcessEnd, ProcessStart, StreamType
from airunner.domain.job import JobParams, JobResult, JobState, Outcome
from airunner.domain.requests import (
    CompleteRequest,
    DequeueRequest,
    EnqueueRequest,
    StreamRequest,
    UpdateRequest,
)
from airunner.domain.token import TokenSigner
from airunner.services.composition import Services
from airunner.stores.memory import MemoryStore
from airunner.testing.clock import ManualClock
from airunner.testing.conditions import until


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def services(clock: ManualClock) -> AsyncIterator[Services]:
    signer = TokenSigner([b"signs the tokens"])
    async with Services(MemoryStore(clock), clock, signer) as services:
        yield services


async def test_a_job_from_its_enqueueing_to_its_replay(  # noqa: PLR0915  one story, told in one piece
    services: Services, clock: ManualClock
) -> None:
    # A client enqueues a job. The request id makes that safe to repeat: there is still one job.
    request = EnqueueRequest(
        request_id=str(uuid.uuid4()), queue="builds", params=JobParams(command="make", args=("test",))
    )
    (enqueued,) = await services.jobs.enqueue_jobs([request])
    (repeated,) = await services.jobs.enqueue_jobs([request])
    assert isinstance(enqueued, Enqueued)
    assert repeated == enqueued
    assert enqueued.state is JobState.SCHEDULED
    job_id = enqueued.job_id

    # A worker dequeues it. The token proves that this attempt is its own, for the next 60 seconds.
    held = await dequeue(services, worker_id="worker-1")
    assert held.job.job_id == job_id
    assert held.job.attempt == 1
    assert held.job.state is JobState.RUNNING
    assert held.job.life.visible_until == clock.now() + 60_000

    # Somebody watches. Nothing was published yet, so the stream waits.
    seen: list[Event] = []
    watcher = asyncio.create_task(watch(services, StreamRequest(job_id=job_id), seen))
    await until(lambda: services.watchers.watched(job_id))

    # The worker runs the process. Its output goes through a Batcher, which assigns the sequences and says
    # when a batch is full: here 120 lines make two batches of 50, and 20 lines that still wait.
    batcher = Batcher(held.job.execution.batching)
    flushes = batcher.add(ProcessStart(pid=4711, started_at=clock.now()), clock.now())
    flushes += batcher.add_output([b"line %d\n" % n for n in range(120)], StreamType.STDOUT, clock.now())
    answers = [await services.events.publish_events(held.task_token, flush.events) for flush in flushes]
    published = answers[-1]
    assert published.next_sequence == 102
    assert published.watched
    assert batcher.buffered == 20

    # A lost answer is no problem: publishing the same again changes nothing.
    repeat = await services.events.publish_events(held.task_token, flushes[-1].events)
    assert repeat.next_sequence == 102

    # The watcher has every line so far, one by one, although they were stored as batches.
    await until(lambda: len(seen) == 101)
    assert [event.sequence for event in seen] == list(range(1, 102))

    # A late reader begins in the middle of a batch, here without following the job further.
    late: list[Event] = []
    await watch(services, StreamRequest(job_id=job_id, from_sequence=75, follow=False), late)
    assert [event.sequence for event in late] == list(range(75, 102))
    assert isinstance(late[0].data, Output)

    # After 40 seconds the worker sends a heartbeat, which gives it 60 seconds more.
    clock.advance(40)
    beat = await services.jobs.update_job(UpdateRequest(queue="builds", task_token=held.task_token))
    assert beat.visible_until == clock.now() + 60_000
    assert beat.watched
    assert not beat.cancel_requested

    # The process ends. PROCESS_END takes the waiting lines along, and all of it travels with the completion:
    # the end of the job and its last output become visible together.
    (last,) = batcher.add(ProcessEnd(pid=4711, exit_code=0, run_duration_ms=40_000), clock.now())
    completion = CompleteRequest(
        task_token=held.task_token,
        result=JobResult(
            success=True,
            outcome=Outcome.SUCCESS,
            final_sequence=batcher.next_sequence - 1,
            output_sha256=batcher.output_sha256,
        ),
        events=last.events,
    )
    assert await services.jobs.complete_jobs([completion]) == [JobState.COMPLETED]
    # That, too, may be repeated.
    assert await services.jobs.complete_jobs([completion]) == [JobState.COMPLETED]

    # The watcher's stream ends with the job, having seen everything exactly once.
    await watcher
    assert [event.sequence for event in seen] == list(range(1, 123))
    end = seen[-1].data
    assert isinstance(end, ProcessEnd)
    assert end.event_count == 121
    assert end.output_sha256 == batcher.output_sha256

    # From now on everybody can replay it: everything, or only what they ask for.
    replay: list[Event] = []
    await watch(services, StreamRequest(job_id=job_id), replay)
    assert replay == seen
    milestones: list[Event] = []
    wanted = frozenset({EventType.PROCESS_START, EventType.PROCESS_END})
    await watch(services, StreamRequest(job_id=job_id, event_filter=wanted), milestones)
    assert [event.sequence for event in milestones] == [1, 122]

    job = await services.jobs.get_job(job_id)
    assert job.state is JobState.COMPLETED
    assert job.result == completion.result


async def test_a_worker_that_goes_silent_loses_its_job_to_another(
    services: Services, clock: ManualClock
) -> None:
    request = EnqueueRequest(request_id=str(uuid.uuid4()), queue="builds", params=JobParams(command="make"))
    await services.jobs.enqueue_jobs([request])
    first = await dequeue(services, worker_id="worker-1")
    await services.events.publish_events(first.task_token, [line(1, b"half a ", clock)])

    # For a minute nothing is heard of the worker. Meanwhile another one waits for work ...
    clock.advance(45)
    waiting = asyncio.create_task(dequeue(services, worker_id="worker-2", wait_seconds=20))
    await until(lambda: services.dispatcher.waiting == 1)
    clock.advance(14)
    assert not waiting.done()
    clock.advance(1)

    # ... and gets the job the moment its visibility lapses, as a new attempt with sequences of its own.
    second = await waiting
    assert second.job.job_id == first.job.job_id
    assert second.job.attempt == 2
    await services.events.publish_events(second.task_token, [line(1, b"a whole result\n", clock)])

    # The first worker comes back. Whatever it wants to say, it is told to forget the job.
    with pytest.raises(NotFound):
        await services.jobs.update_job(UpdateRequest(queue="builds", task_token=first.task_token))
    with pytest.raises(NotFound):
        await services.events.publish_events(first.task_token, [line(2, b"result\n", clock)])
    success = JobResult(success=True, outcome=Outcome.SUCCESS)
    (refused,) = await services.jobs.complete_jobs(
        [CompleteRequest(task_token=first.task_token, result=success)]
    )
    assert isinstance(refused, NotFound)

    # Nothing of that can be seen. The second attempt completes, and a reader finds both, in their order.
    await services.jobs.complete_jobs([CompleteRequest(task_token=second.task_token, result=success)])
    seen: list[Event] = []
    await watch(services, StreamRequest(job_id=second.job.job_id), seen)
    assert [(event.attempt, event.sequence, event.data) for event in seen] == [
        (1, 1, Output(b"half a ")),
        (2, 1, Output(b"a whole result\n")),
    ]


async def dequeue(services: Services, *, worker_id: str, wait_seconds: int = 0) -> DequeuedJob:
    (held,) = await services.jobs.dequeue_jobs(
        DequeueRequest(
            queue="builds",
            worker_id=worker_id,
            visibility_timeout_seconds=60,
            wait_seconds=wait_seconds,
        )
    )
    return held


async def watch(services: Services, request: StreamRequest, seen: list[Event]) -> None:
    async for event in services.events.stream_events(request):
        seen.append(event)  # noqa: PERF401  shows what has arrived while the stream goes on


def line(sequence: int, text: bytes, clock: ManualClock) -> Event:
    return Event(sequence=sequence, timestamp=clock.now(), data=Output(text))
