"""What can only be seen next to the store: stored batches, claims cut off in the middle, and shutdown."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from airunner.codec.events import decode_event
from airunner.domain.batching import unpack
from airunner.domain.errors import Unavailable
from airunner.domain.event import EncodedEvent, Event, EventType, Position
from airunner.domain.job import JobState
from airunner.domain.requests import StreamRequest, UpdateRequest
from airunner.services.caller import Caller, current_caller
from airunner.stores.pages import PageBounds
from airunner.stores.records import EventQuery
from airunner.stores.sqlite import writer
from airunner.testing.clock import ManualClock
from airunner.testing.conditions import until
from airunner.testing.conformance.stores.backend import Api
from airunner.testing.factories import NOON, make_batch, make_end, make_error, make_request, make_start
from tests.conformance.conftest import MakeStore, in_process, memory, sqlite
from tests.conformance.twin import RULES


@pytest.fixture(params=[memory, sqlite], ids=["memory", "sqlite"])
async def local(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Api]:
    clock = ManualClock()
    make_store: MakeStore = request.param
    async with in_process(await make_store(tmp_path, clock, PageBounds()), clock, RULES) as api:
        yield api


async def stored_from(api: Api, job_id: str, sequence: int) -> Sequence[EncodedEvent]:
    query = EventQuery(job_id=job_id, after=Position(1, sequence - 1))
    return (await api.services.store.read_events(query)).events


async def job_with(api: Api, *events: Event) -> str:
    held = await api.new_claim()
    await api.publish(held, *events)
    return held.job.job_id


@pytest.mark.parametrize(
    ("from_sequence", "batches", "count"),
    [
        (1, [1, 51, 101], 150),
        (25, [1, 51, 101], 126),
        (50, [1, 51, 101], 101),
        (51, [51, 101], 100),
        (75, [51, 101], 76),
        (145, [101], 6),
        (150, [101], 1),
        (151, [], 0),
    ],
)
async def test_only_the_batches_that_are_needed_are_read(
    local: Api, from_sequence: int, batches: list[int], count: int
) -> None:
    job_id = await job_with(local, make_batch(1, 50), make_batch(51, 100), make_batch(101, 150))
    assert [event.first_sequence for event in await stored_from(local, job_id, from_sequence)] == batches
    events = await local.read(StreamRequest(job_id=job_id, from_sequence=from_sequence, follow=False))
    assert [event.sequence for event in events] == list(range(from_sequence, 151))
    assert len(events) == count


async def test_batches_of_different_sizes(local: Api) -> None:
    job_id = await job_with(
        local, make_batch(1, 30), make_batch(31, 75), make_batch(76, 125), make_batch(126, 150)
    )
    assert [event.first_sequence for event in await stored_from(local, job_id, 100)] == [76, 126]
    events = await local.read(StreamRequest(job_id=job_id, from_sequence=100, follow=False))
    assert [event.sequence for event in events] == list(range(100, 151))


async def test_interleaved_critical_events(local: Api) -> None:
    job_id = await job_with(
        local,
        make_start(1),
        make_batch(2, 51),
        make_batch(52, 101),
        make_error(102),
        make_batch(103, 152),
        make_end(153),
    )
    events = await local.read(StreamRequest(job_id=job_id, from_sequence=50, follow=False))
    assert [event.sequence for event in events] == list(range(50, 154))
    assert events[0].event_type is EventType.OUTPUT_DATA
    assert events[2].sequence == 52
    assert (events[52].sequence, events[52].event_type) == (102, EventType.PROCESS_ERROR)
    assert events[-1].event_type is EventType.PROCESS_END


async def test_batches_are_stored_as_they_were_published(local: Api) -> None:
    batch = make_batch(1, 50, timestamps=range(NOON, NOON + 50))
    job_id = await job_with(local, batch)
    (stored,) = await stored_from(local, job_id, 1)
    assert (stored.first_sequence, stored.last_sequence) == (1, 50)
    assert (stored.first_timestamp, stored.last_timestamp) == (NOON, NOON + 49)
    assert [event.sequence for event in unpack(decode_event(stored))] == list(range(1, 51))


async def test_a_call_cut_off_after_its_claim_hands_the_job_back(
    local: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Who enqueues would hear of it when the job is in the hands of who waits.
    monkeypatch.setattr(writer, "_TURNS_AHEAD", 0)
    call = await local.started(local.dequeue(wait_seconds=20))
    job_id = await local.enqueue()
    # The claim is done, and its answer is on its way to somebody who goes just now.
    call.cancel()
    await asyncio.wait([call])
    assert call.cancelled()
    (held,) = await local.dequeue(wait_seconds=20)
    assert held.job.job_id == job_id
    assert (held.job.attempt, held.job.life.handed_back) == (2, 1)


async def test_a_visibility_that_is_shortened_wakes_who_waits_the_sooner(local: Api) -> None:
    held = await local.new_claim(visibility_seconds=600)
    call = await local.started(local.dequeue(wait_seconds=20))
    await local.jobs.set_paused("other", paused=False)  # written after the call has found nothing
    await local.beat(held, seconds=10)
    local.clock.advance(10)
    async with asyncio.timeout(20):
        (again,) = await call
    assert (again.job.job_id, again.job.attempt) == (held.job.job_id, 2)


async def test_a_claimed_job_that_reached_nobody_is_handed_back(local: Api) -> None:
    await local.enqueue()
    held = await local.dequeue(worker_id="worker-1")
    local.services.jobs.hand_back(held)
    (worker,) = await local.jobs.list_workers()
    assert list(worker.job_ids) == []
    (again,) = await local.dequeue(wait_seconds=20)
    assert (again.job.attempt, again.job.life.handed_back) == (2, 1)


async def test_a_shutdown_ends_every_call_that_waits(local: Api) -> None:
    held = await local.new_claim()
    job_id = held.job.job_id
    beat = UpdateRequest(queue="builds", task_token=held.task_token, wait_seconds=60)
    calls = [
        await local.started(local.dequeue("other", wait_seconds=20)),
        await local.started(local.jobs.update_job(beat)),
        await local.started(local.jobs.get_job(job_id, wait_seconds=60)),
        await local.started(local.read(StreamRequest(job_id=await local.enqueue(queue="third")))),
    ]
    await local.services.stop()
    await until(lambda: all(call.done() for call in calls))
    assert [type(call.exception()) for call in calls] == [Unavailable] * 4
    with pytest.raises(Unavailable):
        await local.dequeue(wait_seconds=20)
    # What is under way may still come to its end.
    assert await local.complete(held) is JobState.COMPLETED


async def test_request_ids_of_two_principals_are_apart(local: Api) -> None:
    request = make_request()
    ids = []
    for name in ("ada", "bob"):
        token = current_caller.set(Caller(principal=name))
        ids.append(await local.enqueue(request))
        current_caller.reset(token)
    assert ids[0] != ids[1]


async def test_the_limit_of_streams_is_per_principal(local: Api) -> None:
    job_id = await local.enqueue()
    streams = [await local.started(local.read(StreamRequest(job_id=job_id))) for _ in range(10)]
    token = current_caller.set(Caller(principal="bob"))
    streams.append(await local.started(local.read(StreamRequest(job_id=job_id))))
    current_caller.reset(token)
    await local.jobs.cancel_job(job_id)
    assert await asyncio.gather(*streams) == [[]] * 11
