"""What `airunner why` reads from a server: the job, its events, and who is before it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from airunner.client import AsyncClient, CompleteRequest, ReleaseRequest
from airunner.domain.event import Event, EventType, ProcessStart
from airunner.domain.job import JobParams
from airunner.reading.why import facts as facts_module
from airunner.reading.why.explain import JobReason, explain
from airunner.reading.why.facts import JobsBefore, gather_facts
from airunner.reading.why.timeline import EntryKind, build_timeline
from airunner.services.composition import Services
from airunner.stores.memory import MemoryStore
from airunner.testing.clock import ManualClock
from airunner.testing.factories import make_batch, make_end, make_failure, make_services, make_start
from tests.support.serving import serve

PARAMS = JobParams(command="make")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def services(clock: ManualClock) -> AsyncIterator[Services]:
    async with make_services(MemoryStore(clock), clock) as services:
        yield services


@pytest.fixture
async def client(services: Services) -> AsyncIterator[AsyncClient]:
    async with serve(services) as url, AsyncClient(url) as client:
        yield client


async def enqueue(client: AsyncClient, delay_seconds: int = 0, queue: str = "builds") -> str:
    return (await client.enqueue(PARAMS, queue=queue, delay_seconds=delay_seconds)).job_id


async def test_jobs_before_are_counted_and_delayed_ones_are_not(
    client: AsyncClient, clock: ManualClock
) -> None:
    running = await enqueue(client)
    await client.dequeue("builds", worker_id="w1")
    for delay_seconds in (0, 60, 0):
        await enqueue(client, delay_seconds)
    await enqueue(client, queue="other")
    job_id = await enqueue(client)
    await enqueue(client)
    found = await gather_facts(client, client, job_id, clock)
    assert found.before == JobsBefore(waiting=2, running=(running,))
    assert explain(found).reason is JobReason.BEHIND
    assert found.queue
    assert (found.queue.name, found.queue.running) == ("builds", 1)


async def test_a_place_on_a_further_page_is_found(
    client: AsyncClient, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts_module, "MAX_PAGE_SIZE", 2)
    ids = [await enqueue(client) for _ in range(9)]
    places = [(await gather_facts(client, client, job_id, clock)).before for job_id in ids]
    assert [place.waiting for place in places] == list(range(9))
    # Whether jobs on later pages are delayed was not looked at.
    assert [place.exact for place in places] == [True] + [False] * 8
    monkeypatch.setattr(facts_module, "_MAX_PAGES", 2)
    assert (await gather_facts(client, client, ids[0], clock)).before == JobsBefore(waiting=4, exact=False)


async def test_output_is_not_read_and_workers_of_all_attempts_are_named(
    client: AsyncClient, clock: ManualClock
) -> None:
    job_id = await enqueue(client)
    for worker in ("w1", "w2"):
        (held,) = await client.dequeue("builds", worker_id=worker)
        started = Event(
            sequence=1,
            timestamp=clock.now(),
            data=ProcessStart(pid=7, started_at=clock.now(), worker_id=worker),
        )
        events = [started, make_batch(2, 9, at=clock.now()), make_end(10, at=clock.now(), exit_code=3)]
        await client.publish_events(held.task_token, events)
        if worker == "w1":
            await client.release_job(ReleaseRequest(task_token=held.task_token))
        else:
            result = make_failure(exit_code=3, error="exited with code 3")
            await client.complete(CompleteRequest(task_token=held.task_token, result=result))
    found = await gather_facts(client, client, job_id, clock)
    assert {event.event_type for event in found.events} == {EventType.PROCESS_START, EventType.PROCESS_END}
    begun = [entry.text for entry in build_timeline(found) if entry.kind is EntryKind.BEGUN]
    assert begun == ["attempt 1 began on worker w1, pid 7", "attempt 2 began on worker w2, pid 7"]
    assert explain(found).text == "It failed because its process ended with exit code 3."


async def test_a_paused_queue_and_missing_workers_are_seen(client: AsyncClient, clock: ManualClock) -> None:
    job_id = await enqueue(client)
    assert explain(await gather_facts(client, client, job_id, clock)).reason is JobReason.NO_WORKER
    await client.dequeue("builds", more_queues=["other"], worker_id="w1")
    job_id = await enqueue(client)
    assert explain(await gather_facts(client, client, job_id, clock)).reason is JobReason.NEXT
    await client.set_paused("builds", paused=True)
    assert explain(await gather_facts(client, client, job_id, clock)).reason is JobReason.PAUSED


async def test_the_services_tell_the_same_facts_as_a_client_of_theirs(
    client: AsyncClient, services: Services, clock: ManualClock
) -> None:
    await enqueue(client)
    job_id = await enqueue(client)
    (held,) = await client.dequeue("builds", worker_id="w1")
    await client.publish_events(held.task_token, [make_start(1, at=clock.now())])
    over_the_wire = await gather_facts(client, client, job_id, clock)
    in_process = await gather_facts(services.jobs, services.events, job_id, clock)
    assert build_timeline(in_process) == build_timeline(over_the_wire)
    assert explain(in_process) == explain(over_the_wire)
    assert (in_process.before, in_process.queue) == (over_the_wire.before, over_the_wire.queue)
