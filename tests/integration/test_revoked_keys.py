"""Keys that are revoked while a call lasts: from the next second on it tells nothing more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, suppress

import pytest
from connectrpc.errors import ConnectError

from airunner.client import AsyncClient
from airunner.codec.gen.job.v1 import job_pb2 as pb
from airunner.codec.gen.job.v1.job_connect import JobEventsServiceClient, JobServiceClient
from airunner.codec.publishing import publish_to_pb
from airunner.domain.errors import Unauthenticated, Unavailable
from airunner.domain.requests import DequeueRequest, StreamRequest
from airunner.rpc.auth import Scope, mint_key
from airunner.server.asgi import AppOptions
from airunner.services.composition import Services
from airunner.stores.memory import MemoryStore
from airunner.testing.clock import ManualClock
from airunner.testing.conditions import until
from airunner.testing.factories import make_line, make_request, make_services
from tests.support.http_client import HttpClient
from tests.support.serving import serve


class Office:
    """A server, one key that is about to be revoked, and a job that somebody else holds."""

    def __init__(self, services: Services, clock: ManualClock, url: str) -> None:
        self.services = services
        self.clock = clock
        self.url = url
        minted = mint_key("ann", [Scope.ADMIN], (), 0)
        self._key = minted.key
        self.text = minted.text
        self.headers = {"authorization": f"Bearer {minted.text}"}
        self.job_id = ""
        self.task_token = ""

    async def open(self) -> None:
        await self.services.store.add_key(self._key)
        await self.services.jobs.enqueue_jobs([make_request()])
        [held] = await self.services.jobs.dequeue_jobs(DequeueRequest(queue="builds", wait_seconds=0))
        self.job_id, self.task_token = held.job.job_id, held.task_token

    async def publish(self, sequence: int) -> None:
        await self.services.events.publish_events(self.task_token, [make_line(sequence)])

    async def revoke(self) -> None:
        """Revoke the key, and let as much time pass as a server may take to note it."""
        await self.services.store.revoke_key(self._key.key_id, self.clock.now())
        self.clock.advance(2)


@pytest.fixture
async def office() -> AsyncIterator[Office]:
    clock = ManualClock()
    async with (
        make_services(MemoryStore(clock), clock) as services,
        serve(services, AppOptions(no_auth=False)) as url,
    ):
        opened = Office(services, clock, url)
        await opened.open()
        yield opened


async def _single_events(office: Office, seen: list[int]) -> None:
    """Read as any client of the contract does."""
    request = pb.StreamJobEventsRequest(job_id=office.job_id)
    stream = JobEventsServiceClient(office.url).stream_job_events(request, headers=office.headers)
    async for answer in stream:
        seen += [answer.event.sequence]


async def _batches(office: Office, seen: list[int]) -> None:
    """Read as our own client does."""
    async with AsyncClient([office.url], api_key=office.text) as client:
        async for event in client.stream_events(StreamRequest(job_id=office.job_id)):
            seen += [event.sequence]


async def _server_sent_events(office: Office, seen: list[int]) -> None:
    """Read as a browser does."""
    address = f"{office.url}/v1/jobs/{office.job_id}/events"
    async with HttpClient().stream("GET", address, headers=office.headers) as answer:
        async for piece in answer.content:
            assert b"event: end" not in piece
            seen.extend([len(seen) + 1] * piece.count(b"event: output_data"))


Reader = Callable[[Office, list[int]], "asyncio.Future[None]"]
READERS = pytest.mark.parametrize("read", [_single_events, _batches, _server_sent_events])


@READERS
async def test_a_stream_shows_nothing_more(office: Office, read: Reader) -> None:
    seen: list[int] = []
    reading = asyncio.ensure_future(read(office, seen))
    await office.publish(1)
    await until(lambda: seen == [1])
    await office.publish(2)
    await until(lambda: seen == [1, 2])
    await office.revoke()
    await office.publish(3)
    await until(reading.done)
    assert seen == [1, 2]
    with suppress(ConnectError, Unauthenticated):
        await reading
    assert not office.services.watchers.watched(office.job_id)


@READERS
async def test_a_stream_in_which_nothing_happens_ends_with_its_next_sign_of_life(
    office: Office, read: Reader
) -> None:
    seen: list[int] = []
    reading = asyncio.ensure_future(read(office, seen))
    await office.publish(1)
    await until(lambda: seen == [1])
    await office.revoke()
    office.clock.advance(15)
    await until(reading.done)
    with suppress(ConnectError, Unauthenticated):
        await reading


@READERS
async def test_a_key_that_cannot_be_looked_up_again_is_trusted_meanwhile(
    office: Office, read: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def find_key(*_: object) -> None:
        raise Unavailable("the table is throttled")

    seen: list[int] = []
    reading = asyncio.ensure_future(read(office, seen))
    await office.publish(1)
    await until(lambda: seen == [1])
    monkeypatch.setattr(MemoryStore, "find_key", find_key)
    office.clock.advance(2)
    await office.publish(2)
    await until(lambda: seen == [1, 2])
    reading.cancel()


async def test_a_dequeue_that_waits_gets_no_job(office: Office) -> None:
    request = pb.DequeueJobsRequest(queue="builds", wait_seconds=20)
    waiting = asyncio.ensure_future(
        JobServiceClient(office.url).dequeue_jobs(request, headers=office.headers)
    )
    await until(lambda: office.services.admission.waiting == 1)
    await office.revoke()
    [enqueued] = await office.services.jobs.enqueue_jobs([make_request()])
    with pytest.raises(ConnectError, match="API key"):
        await waiting
    # Somebody else gets it, and it has all of its tries.
    [held] = await office.services.jobs.dequeue_jobs(DequeueRequest(queue="builds", wait_seconds=0))
    assert held.job.job_id == getattr(enqueued, "job_id", None)
    assert held.job.life.handed_back == 1


async def test_a_get_that_waits_shows_no_end(office: Office) -> None:
    request = pb.GetJobRequest(job_id=office.job_id, wait_seconds=60)
    waiting = asyncio.ensure_future(JobServiceClient(office.url).get_job(request, headers=office.headers))
    await until(lambda: office.services.admission.waiting == 1)
    await office.revoke()
    await office.services.jobs.cancel_job(office.job_id)
    office.clock.advance(60)
    with pytest.raises(ConnectError, match="API key"):
        await waiting


async def test_an_update_that_waits_tells_nothing(office: Office) -> None:
    request = pb.UpdateJobRequest(queue="builds", task_token=office.task_token, wait_seconds=60)
    waiting = asyncio.ensure_future(JobServiceClient(office.url).update_job(request, headers=office.headers))
    await until(lambda: office.services.admission.waiting == 1)
    await office.revoke()
    await office.services.jobs.cancel_job(office.job_id)
    with pytest.raises(ConnectError, match="API key"):
        await waiting


async def test_a_stream_of_published_events_stores_nothing_more(office: Office) -> None:
    going_on = asyncio.Event()

    async def messages() -> AsyncIterator[pb.PublishJobEventsRequest]:
        yield _message(office, 1)
        await going_on.wait()
        yield _message(office, 2)

    publishing = asyncio.ensure_future(
        JobEventsServiceClient(office.url).publish_job_events(messages(), headers=office.headers)
    )
    async with aclosing(office.services.events.stream_events(StreamRequest(job_id=office.job_id))) as events:
        assert (await anext(events)).sequence == 1
    await office.revoke()
    going_on.set()
    with pytest.raises(ConnectError, match="API key"):
        await publishing
    assert (await office.services.store.get_life(office.job_id)).last_sequence == 1


def _message(office: Office, sequence: int) -> pb.PublishJobEventsRequest:
    batch = publish_to_pb(office.task_token, [make_line(sequence)])
    return pb.PublishJobEventsRequest(task_token=batch.task_token, events=batch.events)
