"""A server with too many callers: who is refused, what they are told, and that nothing stays counted."""

from __future__ import annotations

import asyncio
import gzip
import json
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import pytest

from airunner.client import AsyncClient
from airunner.domain.errors import Overloaded, ResourceExhausted, Unauthenticated
from airunner.domain.event import Event, Output
from airunner.domain.job import JobParams, JobState
from airunner.domain.requests import CompleteRequest, DequeueRequest, ReleaseRequest, UpdateRequest
from airunner.domain.retry import RetryPolicy
from airunner.rpc.auth import Scope, mint_key
from airunner.server.asgi import AppOptions
from airunner.services.admission import AdmissionLimits
from airunner.services.composition import ServiceRules, Services
from airunner.stores.memory import MemoryStore
from airunner.testing.clock import ManualClock
from airunner.testing.conditions import until
from airunner.testing.factories import (
    NEVER_SECONDS,
    NOON,
    make_line,
    make_request,
    make_services,
    make_success,
)
from tests.support.http_client import HttpClient
from tests.support.serving import serve

JOBS, EVENTS = "/job.v1.JobService", "/job.v1.JobEventsService"
MEBIBYTE = 1024 * 1024
PATIENT = RetryPolicy(first_seconds=0.01, jitter=0)


@dataclass(frozen=True, slots=True)
class Serving:
    """A server, its services and their clock."""

    url: str
    services: Services
    clock: ManualClock

    async def key(self, name: str = "ann", *scopes: Scope) -> str:
        minted = mint_key(name, scopes or [Scope.ADMIN], (), self.clock.now())
        await self.services.store.add_key(minted.key)
        return minted.text

    def client(self, key: str = "", **options: Any) -> AsyncClient:
        return AsyncClient(self.url, api_key=key or None, retry=RetryPolicy(attempts=1), **options)


@asynccontextmanager
async def serving(options: AppOptions | None = None, **limits: Any) -> AsyncIterator[Serving]:
    clock = ManualClock()
    rules = ServiceRules(admission=AdmissionLimits(**limits), maintenance_interval_seconds=NEVER_SECONDS)
    options = options or AppOptions(no_auth=True)
    async with make_services(MemoryStore(clock), clock, rules) as services:
        async with serve(services, options) as url:
            yield Serving(url, services, clock)
        admission = services.admission
        await until(lambda: (admission.streams, admission.waiting, admission.body_bytes) == (0, 0, 0))


class Caller:
    """A connection that sends what a test wants, and goes away in the way that it wants."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def post(cls, url: str, path: str, content_type: str, body: bytes, *more: str) -> Caller:
        """Begin a request without a length, whose body is not said to be over."""
        address = urlsplit(url)
        caller = cls(*await asyncio.open_connection(address.hostname, address.port))
        lines = [f"POST {path} HTTP/1.1", "host: localhost", f"content-type: {content_type}", *more]
        caller.write("\r\n".join([*lines, "transfer-encoding: chunked", "", ""]).encode())
        if body:
            caller.write(b"%x\r\n%b\r\n" % (len(body), body))
        await caller._writer.drain()
        return caller

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    async def answer(self) -> str:
        return (await self._reader.readuntil(b"\r\n\r\n") + await self._reader.read(4096)).decode()

    def leave(self) -> None:
        self._writer.close()

    def reset(self) -> None:
        self._writer.transport.abort()


WAYS: dict[str, Callable[[Caller], None]] = {"leaves": Caller.leave, "resets": Caller.reset}


async def refusal(url: str, path: str, message: dict[str, Any], key: str = "") -> dict[str, Any]:
    """Return what a plain caller is told when it is refused."""
    headers = {"content-type": "application/json", **({"authorization": f"Bearer {key}"} if key else {})}
    answer = await HttpClient().post(f"{url}{path}", headers=headers, content=json.dumps(message).encode())
    assert answer.status == 429
    return {**json.loads(bytes(answer.content)), "retry-after": answer.headers["retry-after"]}


async def test_a_plain_caller_is_told_when_to_come_back() -> None:
    async with serving(max_waiting_calls=0) as server:
        told = await refusal(server.url, f"{JOBS}/DequeueJobs", {"queue": "q", "waitSeconds": 5})
        assert (told["code"], told["retry-after"]) == ("resource_exhausted", "1")
        assert told["details"][0]["type"] == "google.rpc.RetryInfo"


async def test_our_client_comes_back_when_it_was_told_to() -> None:
    async with serving(max_waiting_calls=0) as server:
        clock = ManualClock()
        client = AsyncClient(server.url, clock=clock, retry=PATIENT)
        dequeuing = asyncio.create_task(client.dequeue_jobs(DequeueRequest(queue="q", wait_seconds=5)))
        for _ in range(5):
            await until(lambda: clock.waiting == 1)
            clock.advance(0.99)
            await asyncio.sleep(0)
            assert clock.waiting == 1
            clock.advance(0.01)
        # By then its wait is over, and a call that does not wait is not refused.
        assert await dequeuing == []
        await client.aclose()


@pytest.mark.parametrize("way", WAYS)
async def test_streams_are_counted_from_the_first_byte_until_the_caller_is_gone(way: str) -> None:
    async with serving(max_streams=2) as server:
        (job,) = await server.services.jobs.enqueue_jobs([make_request()])
        path = f"{EVENTS}/StreamJobEvents"
        # One has not sent its request yet, the other is server-sent events.
        first = await Caller.post(server.url, path, "application/connect+json", b"")
        second = await _watch_sse(server.url, job.job_id)  # type: ignore[union-attr]
        await until(lambda: server.services.admission.streams == 2)
        with pytest.raises(Overloaded, match="too many streams"):
            async with server.client(timeout_seconds=1) as client:
                await anext(client.monitor(job.job_id, give_up_seconds=0.5))  # type: ignore[union-attr]
        refused = await HttpClient().get(f"{server.url}/v1/jobs/{job.job_id}/events")  # type: ignore[union-attr]
        assert (refused.status, refused.headers["retry-after"]) == (429, "1")
        WAYS[way](first)
        await until(lambda: server.services.admission.streams == 1)
        WAYS[way](second)
        await until(lambda: server.services.admission.streams == 0)


async def test_a_stream_that_fails_is_counted_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: object) -> None:
        raise RuntimeError("a surprise")

    async with serving() as server:
        (job,) = await server.services.jobs.enqueue_jobs([make_request()])
        path, message = f"{EVENTS}/StreamJobEvents", json.dumps({"jobId": job.job_id}).encode()  # type: ignore[union-attr]
        monkeypatch.setattr(MemoryStore, "read_events", broken)
        envelope = b"\0" + len(message).to_bytes(4, "big") + message
        headers = {"content-type": "application/connect+json"}
        answer = await HttpClient().post(f"{server.url}{path}", headers=headers, content=envelope)
        assert b"internal" in bytes(answer.content)
        answer = await HttpClient().get(f"{server.url}/v1/jobs/{job.job_id}/events")  # type: ignore[union-attr]
        assert answer.status == 500
        unknown = await HttpClient().get(f"{server.url}/v1/jobs/{uuid.uuid4()}/events")
        assert unknown.status in {404, 500}
        await until(lambda: server.services.admission.streams == 0)


async def test_a_monitor_waits_for_a_place() -> None:
    async with serving(max_streams=1) as server, AsyncClient(server.url, retry=PATIENT) as client:
        await server.services.jobs.enqueue_jobs([make_request()])
        (held,) = await client.dequeue_jobs(DequeueRequest(queue="builds"))
        taken = await _watch_sse(server.url, held.job.job_id)
        clock = ManualClock()
        async with AsyncClient(server.url, retry=PATIENT, clock=clock) as waiting:
            watching = asyncio.create_task(anext(waiting.monitor(held.job.job_id)))
            await until(lambda: clock.waiting == 1)
            taken.leave()
            await until(lambda: server.services.admission.streams == 0)
            await client.publish_events(held.task_token, [make_line(1)])
            clock.advance(1)
            assert (await watching).sequence == 1


@pytest.mark.parametrize("way", WAYS)
async def test_a_caller_that_vanishes_waits_no_longer(way: str) -> None:
    async with serving() as server:
        (job,) = await server.services.jobs.enqueue_jobs([make_request()])
        (held,) = await server.services.jobs.dequeue_jobs(DequeueRequest(queue="builds", wait_seconds=0))
        waits = {
            "DequeueJobs": {"queue": "q", "waitSeconds": 20},
            "GetJob": {"jobId": job.job_id, "waitSeconds": 60},  # type: ignore[union-attr]
            "UpdateJob": {"queue": "builds", "taskToken": held.task_token, "waitSeconds": 60},
        }
        callers = []
        for method, message in waits.items():
            body = json.dumps(message).encode()
            caller = await Caller.post(server.url, f"{JOBS}/{method}", "application/json", body)
            caller.write(b"0\r\n\r\n")
            callers.append(caller)
        admission = server.services.admission
        await until(lambda: admission.waiting == 3)
        for count, caller in enumerate(callers, start=1):
            WAYS[way](caller)
            await until(lambda count=count: admission.waiting == 3 - count)  # type: ignore[misc]


async def test_a_large_request_is_refused_in_words_before_it_is_sent() -> None:
    async with serving(max_body_bytes=1024) as server, server.client() as client:
        params = JobParams(command="make", args=("x" * 900_000,))
        (outcome,) = await client.enqueue_jobs([make_request(params=params)])
        assert isinstance(outcome, Overloaded)


@pytest.mark.parametrize("way", [*WAYS, "is answered", "sends too much"])
async def test_bytes_of_requests_are_counted_while_they_are_there(way: str) -> None:
    limit = 4 * MEBIBYTE
    async with serving(max_body_bytes=limit) as server:
        admission = server.services.admission
        path, padding = f"{JOBS}/EnqueueJobs", b" " * (limit * 3 // 4 - 100)
        caller = await Caller.post(server.url, path, "application/json", padding)
        await until(lambda: admission.body_bytes == len(padding))
        told = await refusal(server.url, f"{JOBS}/ListQueues", {"padding": "x" * 200})
        assert (told["code"], told["retry-after"]) == ("resource_exhausted", "1")
        # A small one has its place, and what jobs live by has the last quarter.
        await server.services.jobs.enqueue_jobs([make_request()])
        async with server.client() as client:
            (held,) = await client.dequeue_jobs(DequeueRequest(queue="builds"))
            output = Output(b"x" * 10_000)
            lines = [Event(sequence=number, timestamp=NOON, data=output) for number in range(1, 50)]
            await client.publish_events(held.task_token, lines)
        if way == "is answered":
            caller.write(b"2\r\n{}\r\n0\r\n\r\n")
            assert "jobs must be from 1 to 500" in await caller.answer()
        elif way == "sends too much":
            caller.write(b"1000\r\n" + b" " * 0x1000 + b"\r\n")
            assert "429" in await caller.answer()
        else:
            WAYS[way](caller)
        await until(lambda: admission.body_bytes == 0)
        caller.leave()


async def test_a_compressed_request_counts_as_large_as_it_is() -> None:
    async with serving(max_body_bytes=4 * MEBIBYTE) as server:
        many = {"jobs": [{"requestId": str(uuid.uuid4()), "queue": "x" * 79_000} for _ in range(45)]}
        body = gzip.compress(json.dumps(many).encode())
        assert len(body) < MEBIBYTE
        headers = {"content-type": "application/json", "content-encoding": "gzip"}
        answer = await HttpClient().post(f"{server.url}{JOBS}/EnqueueJobs", headers=headers, content=body)
        assert b"bytes of requests" in bytes(answer.content)
        assert server.services.admission.body_bytes == 0


async def test_a_long_client_stream_counts_what_it_has_in_hand() -> None:
    async with serving(max_body_bytes=4 * MEBIBYTE) as server:
        await server.services.jobs.enqueue_jobs([make_request()])
        (held,) = await server.services.jobs.dequeue_jobs(DequeueRequest(queue="builds", wait_seconds=0))
        caller = await Caller.post(server.url, f"{EVENTS}/PublishJobEvents", "application/connect+json", b"")
        for sequence in range(1, 31):
            event = {"sequence": sequence, "outputData": {"output": "eHh4" * 60_000, "stream": 1}}
            message = json.dumps({"taskToken": held.task_token, "events": [event]}).encode()
            envelope = b"\0" + len(message).to_bytes(4, "big") + message
            caller.write(b"%x\r\n%b\r\n" % (len(envelope), envelope))
        caller.write(b"0\r\n\r\n")
        assert '"nextSequence":"31"' in (await caller.answer()).replace(" ", "")
        caller.leave()


async def test_a_principal_that_calls_too_often_is_refused_and_its_running_jobs_are_not() -> None:
    async with serving(AppOptions(), calls_per_second=1, call_burst=5) as server:
        key = await server.key("ann")
        async with server.client(key) as ann, server.client(await server.key("bob")) as bob:
            for _ in range(3):
                await ann.enqueue_jobs([make_request()])
            held = await ann.dequeue_jobs(DequeueRequest(queue="builds", max_jobs=3))
            tokens = [job.task_token for job in held]
            await ann.list_queues()
            with pytest.raises(Overloaded, match="calls a second"):
                await ann.list_queues()
            told = await refusal(server.url, f"{JOBS}/ListQueues", {}, key)
            assert told["code"] == "resource_exhausted"
            sse = await HttpClient().get(
                f"{server.url}/v1/jobs/{held[0].job.job_id}/events",
                headers={"authorization": f"Bearer {key}"},
            )
            assert sse.status == 429
            for _ in range(20):
                await ann.update_job(UpdateRequest(queue="builds", task_token=tokens[0]))
            for sequence in range(1, 20):
                await ann.publish_events(tokens[0], [make_line(sequence)])
            await ann.release_job(ReleaseRequest(task_token=tokens[1]))
            done = [CompleteRequest(task_token=token, result=make_success()) for token in tokens[::2]]
            assert await ann.complete_jobs(done) == [JobState.COMPLETED] * 2
            await bob.list_queues()
            server.clock.advance(1)
            await ann.list_queues()


async def test_without_keys_there_is_no_rate() -> None:
    async with serving(calls_per_second=1, call_burst=1) as server, server.client() as client:
        for _ in range(10):
            await client.list_queues()


async def test_who_guesses_keys_is_refused_without_a_look_at_the_store() -> None:
    async with serving(AppOptions()) as server:
        good = await server.key()
        looked_up = _count_look_ups(server)
        async with server.client(good) as known:
            await known.list_queues()
            for number in range(20):
                with pytest.raises(Unauthenticated):
                    await _call_with(server, _wrong_key(number))
            before = len(looked_up)
            with pytest.raises(Overloaded, match="wrong API keys"):
                await _call_with(server, _wrong_key(21))
            with pytest.raises(Overloaded):
                await _call_with(server, await server.key("new"))
            assert (await _sse_status(server, _wrong_key(22))) == 429
            assert len(looked_up) == before
            # Who has shown a good key from here goes on, also when it is to be looked up again.
            server.clock.advance(2)
            await known.list_queues()
            assert len(looked_up) == before + 1
        server.clock.advance(1)
        with pytest.raises(Unauthenticated):
            await _call_with(server, _wrong_key(23))


async def test_behind_a_proxy_addresses_say_nothing() -> None:
    async with serving(AppOptions(behind_proxy=True)) as server:
        for number in range(40):
            with pytest.raises(Unauthenticated):
                await _call_with(server, _wrong_key(number))


async def test_calls_without_a_key_guess_nothing() -> None:
    async with serving(AppOptions()) as server:
        for _ in range(40):
            with pytest.raises(Unauthenticated):
                await _call_with(server, "")


async def test_another_limit_is_no_reason_to_come_back() -> None:
    async with serving() as server, server.client() as client:
        server.services.watchers._max_streams = 0
        (job,) = await client.enqueue_jobs([make_request()])
        with pytest.raises(ResourceExhausted) as refused:
            await anext(client.monitor(job.job_id))  # type: ignore[union-attr]
        assert not isinstance(refused.value, Overloaded)


async def test_a_shutdown_leaves_nothing_counted() -> None:
    async with serving() as server:
        (job,) = await server.services.jobs.enqueue_jobs([make_request()])
        stream = await _watch_sse(server.url, job.job_id)  # type: ignore[union-attr]
        waiting = asyncio.create_task(_dequeue(server))
        admission = server.services.admission
        await until(lambda: (admission.streams, admission.waiting) == (1, 1))
    # That all is zero again is asserted by the server's end.
    await asyncio.wait({waiting})
    waiting.exception()
    stream.leave()


async def _dequeue(server: Serving) -> None:
    async with server.client() as client:
        await client.dequeue_jobs(DequeueRequest(queue="q", wait_seconds=20))


async def _watch_sse(url: str, job_id: str) -> Caller:
    address = urlsplit(url)
    caller = Caller(*await asyncio.open_connection(address.hostname, address.port))
    caller.write(f"GET /v1/jobs/{job_id}/events HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
    assert "200 OK" in await caller.answer()
    return caller


async def _sse_status(server: Serving, key: str) -> int:
    headers = {"authorization": f"Bearer {key}"}
    return (await HttpClient().get(f"{server.url}/v1/jobs/{uuid.uuid4()}/events", headers=headers)).status


async def _call_with(server: Serving, key: str) -> None:
    async with server.client(key) as client:
        await client.list_queues()


def _wrong_key(number: int) -> str:
    return mint_key(f"guess {number}", [Scope.ADMIN], (), 0).text


def _count_look_ups(server: Serving) -> list[str]:
    looked_up: list[str] = []
    find: Callable[[str], Awaitable[Any]] = server.services.store.find_key

    async def find_key(key_id: str) -> Any:
        looked_up.append(key_id)
        return await find(key_id)

    server.services.store.find_key = find_key  # type: ignore[method-assign]
    return looked_up
