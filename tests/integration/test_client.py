"""AsyncClient against a real server on loopback: every method, and every error as its own class."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
import trustme

from airunner.client import (
    AsyncClient,
    CompleteRequest,
    DequeuedJob,
    EnqueueRequest,
    JobQuery,
    ReleaseRequest,
    StreamRequest,
    UpdateRequest,
)
from airunner.domain import limits
from airunner.domain.answers import Enqueued
from airunner.domain.clock import SystemClock
from airunner.domain.errors import (
    AirunnerError,
    AlreadyExists,
    DeadlineExceeded,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    SequenceMismatch,
    Unauthenticated,
    Unavailable,
)
from airunner.domain.event import Event
from airunner.domain.execution import BatchingConfig, ExecutionConfig
from airunner.domain.job import JobParams, JobState, Outcome
from airunner.domain.retry import RetryPolicy
from airunner.rpc.auth import mint_key
from airunner.server.asgi import AppOptions
from airunner.services.api import EventsApi, JobsApi
from airunner.services.composition import Services
from airunner.stores.memory import MemoryStore
from airunner.testing.conditions import until
from airunner.testing.factories import (
    make_batch,
    make_end,
    make_failure,
    make_line,
    make_request,
    make_services,
    make_start,
    make_success,
)
from tests.support.serving import Certificate, serve

QUEUE = "builds"
ONCE = RetryPolicy(attempts=1)


@pytest.fixture
async def services() -> AsyncIterator[Services]:
    clock = SystemClock()
    async with make_services(MemoryStore(clock), clock) as services:
        yield services


@pytest.fixture
async def client(services: Services) -> AsyncIterator[AsyncClient]:
    async with serve(services) as url, AsyncClient(url) as client:
        yield client


async def hold(client: AsyncClient, command: str = "make") -> DequeuedJob:
    await client.enqueue(JobParams(command=command), queue=QUEUE)
    (held,) = await client.dequeue(QUEUE, worker_id="w1", instance_id="i1")
    return held


def test_the_client_can_stand_in_for_the_services() -> None:
    client = AsyncClient()
    jobs: JobsApi = client
    events: EventsApi = client
    assert {jobs, events} == {client}


async def test_a_job_travels_unchanged(client: AsyncClient, services: Services) -> None:
    params = JobParams(
        command="make",
        args=("-j", "8", "ä\n"),
        environment={"A": "1", "TOKEN": "secret"},
        secret_names=("TOKEN",),
        metadata={"team": "x"},
        owner="o",
        working_directory="sub",
        timeout_seconds=77,
    )
    execution = ExecutionConfig(
        batching=BatchingConfig(max_batch_size=7, adaptive=False), heartbeat_interval_seconds=3
    )
    made = await client.enqueue(params, queue=QUEUE, delay_seconds=60, max_attempts=5, execution=execution)
    shown = await client.get_job(made.job_id)
    kept = await services.jobs.get_job(made.job_id)
    assert shown == replace(kept, principal="")
    assert (shown.params, shown.execution) == (params.masked(), execution)
    assert (shown.life.max_attempts, shown.life.due_at - shown.created_at) == (5, 60_000)
    assert (made.state, made.created_at) == (JobState.SCHEDULED, shown.created_at)


async def test_dequeue_gives_the_secrets_and_the_token(client: AsyncClient) -> None:
    params = JobParams(command="make", environment={"TOKEN": "secret"}, secret_names=("TOKEN",))
    await client.enqueue(params, queue="second")
    held = await client.dequeue("first", more_queues=["second"], max_jobs=9, visibility_timeout_seconds=60)
    assert [entry.job.params for entry in held] == [params]
    assert held[0].job.state is JobState.RUNNING
    assert await client.dequeue("first", wait_seconds=0) == []


async def test_from_heartbeat_to_completion(client: AsyncClient) -> None:
    held = await hold(client)
    told = await client.update_job(UpdateRequest(queue=QUEUE, task_token=held.task_token))
    assert (told.cancel_requested, told.watched) == (False, False)
    assert told.visible_until >= held.job.life.visible_until
    published = await client.publish_events(held.task_token, [make_start(), make_batch(2, 9)])
    assert published.next_sequence == 10
    result = make_success(final_sequence=10)
    done = CompleteRequest(task_token=held.task_token, result=result, events=[make_end(10)])
    assert await client.complete(done) is JobState.COMPLETED
    assert await client.complete(done) is JobState.COMPLETED
    job = await client.wait_for_end(held.job.job_id)
    assert job.result is not None
    assert job.result.final_sequence == 10
    events = [event async for event in client.stream_events(StreamRequest(job_id=job.job_id))]
    assert [event.sequence for event in events] == list(range(1, 11))


async def test_release_gives_the_job_back(client: AsyncClient) -> None:
    held = await hold(client)
    release = ReleaseRequest(task_token=held.task_token, error="no disk", events=[make_start()])
    assert await client.release_job(release) is JobState.SCHEDULED
    job = await client.get_job(held.job.job_id)
    assert (job.life.last_error, job.attempt) == ("no disk", 1)


async def test_cancel_and_retry(client: AsyncClient) -> None:
    made = await client.enqueue(JobParams(command="make"), queue=QUEUE)
    assert (await client.cancel_job(made.job_id)).state is JobState.CANCELLED
    again = await client.retry_job(made.job_id, request_id := str(uuid.uuid4()))
    assert again.retried_from == made.job_id
    assert (await client.retry_job(made.job_id, request_id)).job_id == again.job_id
    assert (await client.retry_job(made.job_id)).job_id != again.job_id


async def test_update_waits_for_the_cancellation(client: AsyncClient) -> None:
    held = await hold(client)
    request = UpdateRequest(queue=QUEUE, task_token=held.task_token, wait_seconds=60)
    waiting = asyncio.create_task(client.update_job(request))
    await client.cancel_job(held.job.job_id)
    async with asyncio.timeout(30):
        assert (await waiting).cancel_requested


async def test_listing_by_page_and_by_cursor(client: AsyncClient) -> None:
    ids = [(await client.enqueue(JobParams(command="make"), queue=QUEUE)).job_id for _ in range(5)]
    first = await client.list_jobs(JobQuery(queue=QUEUE, state=JobState.SCHEDULED, page_size=2))
    second = await client.list_jobs(JobQuery(queue=QUEUE, page_size=2, cursor=first.next_cursor))
    third = await client.list_jobs(JobQuery(queue=QUEUE, page_size=2, page=3))
    assert [job.job_id for page in (first, second, third) for job in page.jobs] == ids[::-1]
    assert first.last_page == 3
    assert third.next_cursor == ""


async def test_queues_and_workers(client: AsyncClient) -> None:
    held = await hold(client)
    made = await client.enqueue(JobParams(command="make"), queue=QUEUE)
    await client.set_paused(QUEUE, paused=True)
    (stats,) = await client.list_queues()
    assert (stats.name, stats.paused, stats.scheduled, stats.running) == (QUEUE, True, 1, 1)
    assert stats.oldest_scheduled_at == made.created_at
    assert await client.dequeue(QUEUE, wait_seconds=0) == []
    await client.set_paused(QUEUE, paused=False)
    assert not (await client.list_queues())[0].paused
    (worker,) = await client.list_workers()
    assert (worker.worker_id, worker.instance_id) == ("w1", "i1")
    assert (list(worker.queues), list(worker.job_ids)) == ([QUEUE], [held.job.job_id])


async def test_run_returns_the_job_at_its_end(client: AsyncClient) -> None:
    running = asyncio.create_task(client.run("echo", "hello", queue=QUEUE))
    (held,) = await client.dequeue(QUEUE, wait_seconds=20)
    assert (held.job.params.command, held.job.params.args) == ("echo", ("hello",))
    await client.complete(CompleteRequest(task_token=held.task_token, result=make_failure(exit_code=3)))
    job = await running
    assert job.result is not None
    assert (job.state, job.result.exit_code) == (JobState.FAILED, 3)


async def test_waiting_for_an_end_that_does_not_come(client: AsyncClient) -> None:
    made = await client.enqueue(JobParams(command="make"))
    with pytest.raises(DeadlineExceeded):
        await client.wait_for_end(made.job_id, timeout_seconds=0)


async def test_every_entry_of_a_batch_has_its_own_outcome(client: AsyncClient) -> None:
    taken = make_request(QUEUE)
    requests = [
        taken,
        make_request("no such/queue"),
        replace(make_request(QUEUE), delay_seconds=2**40),
        EnqueueRequest(request_id=taken.request_id, queue=QUEUE, params=JobParams(command="other")),
    ]
    outcomes = await client.enqueue_jobs(requests)
    assert [type(outcome) for outcome in outcomes] == [
        Enqueued,
        InvalidArgument,
        InvalidArgument,
        AlreadyExists,
    ]
    assert await client.enqueue_jobs([taken]) == outcomes[:1]
    for request, outcome in zip(requests[1:], outcomes[1:], strict=True):
        (alone,) = await client.enqueue_jobs([request])
        assert type(alone) is type(outcome)


async def test_enqueues_that_share_a_call_fail_as_they_would_alone(client: AsyncClient) -> None:
    params, taken = JobParams(command="make"), str(uuid.uuid4())
    await client.enqueue(params, request_id=taken)
    refused: list[Callable[[], Awaitable[object]]] = [
        lambda: client.enqueue(JobParams(command="other"), request_id=taken),
        lambda: client.enqueue(params, queue="no such/queue"),
        lambda: client.enqueue(params, request_id="67890"),
        lambda: client.enqueue(params, delay_seconds=limits.MAX_DELAY_SECONDS + 1),
        lambda: client.enqueue(JobParams(handler="h", payload_json="{")),
        lambda: client.enqueue(JobParams()),
    ]
    alone = [(await asyncio.gather(call(), return_exceptions=True))[0] for call in refused]
    first, *shared, last = await asyncio.gather(
        client.enqueue(params), *(call() for call in refused), client.enqueue(params), return_exceptions=True
    )
    assert isinstance(first, Enqueued)
    assert isinstance(last, Enqueued)
    assert [(type(error), str(error)) for error in shared] == [(type(error), str(error)) for error in alone]
    assert all(isinstance(error, AirunnerError) for error in alone)


async def test_completing_many(client: AsyncClient) -> None:
    one, two = await hold(client), await hold(client)
    outcomes = await client.complete_jobs(
        [
            CompleteRequest(task_token=one.task_token, result=make_success()),
            CompleteRequest(task_token="altered", result=make_success()),
            CompleteRequest(task_token=two.task_token, result=make_success(final_sequence=7)),
        ]
    )
    assert outcomes[0] is JobState.COMPLETED
    assert isinstance(outcomes[1], InvalidArgument)
    assert isinstance(outcomes[2], SequenceMismatch)
    assert outcomes[2].expected == 1
    with pytest.raises(InvalidArgument):
        await client.complete_jobs([])


async def test_errors_come_back_as_their_classes(client: AsyncClient) -> None:
    held = await hold(client)
    with pytest.raises(NotFound):
        await client.get_job(str(uuid.uuid4()))
    with pytest.raises(InvalidArgument, match="job_id"):
        await client.get_job("67890")
    with pytest.raises(InvalidArgument):
        await client.cancel_job("\ud800")
    with pytest.raises(FailedPrecondition):
        await client.retry_job(held.job.job_id)
    with pytest.raises(InvalidArgument, match="queue"):
        await client.update_job(UpdateRequest(queue="other", task_token=held.task_token))
    with pytest.raises(SequenceMismatch) as gap:
        await client.publish_events(held.task_token, [make_line(5)])
    assert gap.value.expected == 1
    with pytest.raises(InvalidArgument):
        await client.publish_events(held.task_token, [make_line(2), make_line(1)])
    interrupted = CompleteRequest(
        task_token=held.task_token, result=make_failure(outcome=Outcome.INTERRUPTED)
    )
    await client.complete(interrupted)
    with pytest.raises(FailedPrecondition):
        await client.complete(CompleteRequest(task_token=held.task_token, result=make_success()))


@pytest.mark.parametrize(
    ("key", "error"), [(None, Unauthenticated), ("airk_x_y", Unauthenticated), ("reader", PermissionDenied)]
)
async def test_api_keys(services: Services, key: str | None, error: type[AirunnerError]) -> None:
    minted = mint_key("reader", ["jobs:read"], [], 0)
    await services.store.add_key(minted.key)
    async with serve(services, AppOptions()) as url:
        async with AsyncClient(url, api_key=minted.text if key == "reader" else key) as client:
            with pytest.raises(error):
                await client.enqueue(JobParams(command="make"))
        async with AsyncClient(url, api_key=minted.text) as reader:
            assert (await reader.list_jobs(JobQuery())).jobs == []


async def test_tls_trusts_what_the_ca_file_signed(services: Services, tmp_path: Path) -> None:
    authority, stranger = trustme.CA(), trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    certificate = Certificate(cert_file=tmp_path / "cert.pem", key_file=tmp_path / "key.pem")
    issued.cert_chain_pems[0].write_to_path(certificate.cert_file)
    issued.private_key_pem.write_to_path(certificate.key_file)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    stranger.cert_pem.write_to_path(tmp_path / "stranger.pem")
    async with serve(services, certificate=certificate) as url:
        async with AsyncClient(url, ca_file=tmp_path / "ca.pem") as client:
            assert await client.list_queues() == []
        async with AsyncClient(url, ca_file=tmp_path / "stranger.pem", retry=ONCE) as client:
            with pytest.raises(Unavailable, match="cannot connect"):
                await client.list_queues()


async def test_events_may_have_servers_of_their_own(services: Services) -> None:
    async with (
        serve(services, AppOptions(no_auth=True, services=("jobs",))) as jobs_url,
        serve(services, AppOptions(no_auth=True, services=("events",))) as events_url,
        AsyncClient(jobs_url, events_servers=events_url) as client,
    ):
        held = await hold(client)
        await client.publish_events(held.task_token, [make_line(1)])
        stream = client.monitor(held.job.job_id)
        assert (await anext(stream)).sequence == 1
        await stream.aclose()


async def test_cancelling_a_waiting_dequeue(client: AsyncClient, services: Services) -> None:
    for _ in range(2):
        waiting = asyncio.create_task(client.dequeue(QUEUE, wait_seconds=20))
        await until(lambda: services.dispatcher.waiting == 1)
        waiting.cancel()
        async with asyncio.timeout(5):
            with pytest.raises(asyncio.CancelledError):
                await waiting
        # Until the server has seen that nobody waits, it may claim a job for them, which then has to lapse.
        await until(lambda: services.dispatcher.waiting == 0)
    await client.enqueue(JobParams(command="make"), queue=QUEUE)
    (held,) = await client.dequeue(QUEUE, wait_seconds=20)
    assert held.job.attempt - held.job.life.handed_back == 1


async def test_a_watcher_that_leaves_closes_its_stream(client: AsyncClient, services: Services) -> None:
    held = await hold(client)
    await client.publish_events(held.task_token, [make_line(1), make_line(2)])
    seen: list[Event] = []
    async for event in client.monitor(held.job.job_id):
        seen.append(event)
        assert services.watchers.streams == 1
        break
    assert len(seen) == 1
    await until(lambda: services.watchers.streams == 0)
    watcher = asyncio.create_task(anext(client.monitor(held.job.job_id, from_sequence=3)))
    await until(lambda: services.watchers.streams == 1)
    watcher.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watcher
    await until(lambda: services.watchers.streams == 0)
