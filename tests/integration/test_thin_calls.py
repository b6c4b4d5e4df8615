"""The short way beside the long one: the same requests, the same answers, the same effects."""

from __future__ import annotations

import asyncio
import random
import re
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import pytest
import uvloop

from airunner.codec import methods
from airunner.codec.gen.job.v1 import job_pb2 as pb
from airunner.codec.methods import Method
from airunner.domain.listing import JobQuery
from airunner.server.asgi import AppOptions
from airunner.server.connections import ConnectionGuard, ConnectionLimits
from airunner.server.guarded_protocol import GuardedProtocol
from airunner.services.admission import AdmissionLimits
from airunner.services.composition import Services
from airunner.stores.memory import MemoryStore
from airunner.testing.clock import ManualClock
from airunner.testing.conditions import until
from airunner.testing.factories import make_services
from tests.integration.wire import METHODS, Mischief, path_of
from tests.support.serving import OPEN, serve

HOT: list[Method[Any, Any]] = [
    methods.ENQUEUE_JOB,
    methods.ENQUEUE_JOBS,
    methods.DEQUEUE_JOBS,
    methods.UPDATE_JOB,
    methods.COMPLETE_JOB,
    methods.COMPLETE_JOBS,
    methods.RELEASE_JOB,
    methods.GET_JOB,
    methods.LIST_WORKERS,
    methods.PUBLISH_JOB_EVENT_BATCH,
]
HOT_PATHS = {method.path: method for method in HOT}
# Ids are made anew for each store, and tokens are signed with them.
_OWN = re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[A-Za-z0-9_.-]{40,}")


@dataclass(frozen=True)
class RawAnswer:
    status: int
    headers: dict[bytes, bytes]
    body: bytes

    @property
    def told(self) -> tuple[int, bytes, bytes, bytes]:
        """What must be the same on both ways."""
        kind, retry = self.headers.get(b"content-type", b""), self.headers.get(b"retry-after", b"")
        return self.status, kind, retry, _OWN.sub(b"own", self.body)

    @property
    def took_the_short_way(self) -> bool:
        return b"content-length" in self.headers and b"vary" not in self.headers


class Line:
    """One connection, in bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, url: str) -> Line:
        address = urlsplit(url)
        return cls(*await asyncio.open_connection(address.hostname, address.port))

    async def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            self._writer.write(piece)
            await self._writer.drain()

    async def answer(self) -> RawAnswer:
        head, *lines = (await self._reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
        headers = dict(line.lower().split(b": ", 1) for line in lines if line)
        if headers.get(b"transfer-encoding") == b"chunked":
            body = b""
            while size := int(await self._reader.readline(), 16):
                body += await self._reader.readexactly(size)
                await self._reader.readline()
            await self._reader.readline()
        else:
            body = await self._reader.readexactly(int(headers[b"content-length"]))
        return RawAnswer(int(head.split()[1]), headers, body)

    async def ended(self) -> bool:
        return await self._reader.read() == b""

    @property
    def port(self) -> int:
        return int(self._writer.get_extra_info("sockname")[1])

    def read_nothing(self) -> None:
        transport = self._writer.transport
        assert isinstance(transport, asyncio.ReadTransport)
        transport.pause_reading()

    def close(self) -> None:
        self._writer.close()


def request(
    method: Method[Any, Any] | str, message: object, *headers: str, length: int | None = None
) -> bytes:
    """Return a request as our client sends it."""
    body = message if isinstance(message, bytes) else message.SerializeToString()  # type: ignore[attr-defined]
    path = method if isinstance(method, str) else method.path
    said = ["host: 127.0.0.1", "content-type: application/proto", "connect-protocol-version: 1", *headers]
    lines = [f"POST {path} HTTP/1.1", *said, f"content-length: {len(body) if length is None else length}"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@dataclass
class Way:
    """A server that has the short way or not, with a store of its own."""

    url: str
    services: Services
    guard: ConnectionGuard
    job_id: str = ""
    token: str = ""
    lines: list[Line] = field(default_factory=list)

    async def line(self) -> Line:
        self.lines.append(await Line.open(self.url))
        return self.lines[-1]

    async def newest_connection(self) -> GuardedProtocol:
        """Return the server's side of the line that was opened last, and that nothing was sent on."""
        port = self.lines[-1].port
        found: list[GuardedProtocol] = []

        def is_found() -> bool:
            found[:] = [one for one in self.guard.open if one.client and one.client[1] == port]
            return bool(found)

        await until(is_found)
        return found[0]

    async def ask(self, *pieces: bytes) -> RawAnswer:
        line = await self.line()
        await line.send(*pieces)
        return await asyncio.wait_for(line.answer(), 30)

    async def states(self) -> Counter[str]:
        page = await self.services.jobs.list_jobs(JobQuery())
        return Counter(job.state.name for job in page.jobs)


@asynccontextmanager
async def both_ways(
    options: AppOptions = OPEN, admission: AdmissionLimits | None = None
) -> AsyncIterator[tuple[Way, Way]]:
    clock = ManualClock()
    async with AsyncExitStack() as stack:
        ways = []
        for short in (True, False):
            services = await stack.enter_async_context(make_services(MemoryStore(clock), clock))
            if admission:
                services.admission.limits = admission
            guard = ConnectionGuard(ConnectionLimits(), clock)
            url = await stack.enter_async_context(serve(services, options, guard=guard, short_ways=short))
            ways.append(Way(url, services, guard))
        try:
            yield ways[0], ways[1]
        finally:
            for line in (line for way in ways for line in way.lines):
                line.close()


def enqueue(number: int = 1, **more: Any) -> pb.EnqueueJobRequest:
    params = pb.JobParams(command="true")
    return pb.EnqueueJobRequest(request_id=str(uuid.UUID(int=number)), queue="q", job_params=params, **more)


Step = Callable[[Way], bytes]

_LIVES: list[tuple[str, Step]] = [
    ("no-op", lambda _: request(methods.LIST_WORKERS, pb.ListWorkersRequest())),
    ("enqueue", lambda _: request(methods.ENQUEUE_JOB, enqueue())),
    ("enqueue again", lambda _: request(methods.ENQUEUE_JOB, enqueue())),
    (
        "enqueue otherwise",
        lambda _: request(methods.ENQUEUE_JOB, enqueue(delay_seconds=5)),
    ),
    (
        "enqueue some, one of them wrong",
        lambda _: request(
            methods.ENQUEUE_JOBS, pb.EnqueueJobsRequest(jobs=[enqueue(2), pb.EnqueueJobRequest()])
        ),
    ),
    ("dequeue", lambda _: request(methods.DEQUEUE_JOBS, pb.DequeueJobsRequest(queue="q", max_jobs=1))),
    ("get", lambda way: request(methods.GET_JOB, pb.GetJobRequest(job_id=way.job_id))),
    ("get nothing", lambda _: request(methods.GET_JOB, pb.GetJobRequest(job_id="0" * 32))),
    ("get wrong", lambda _: request(methods.GET_JOB, pb.GetJobRequest(job_id="what"))),
    (
        "update",
        lambda way: request(
            methods.UPDATE_JOB, pb.UpdateJobRequest(task_token=way.token, visibility_timeout_seconds=60)
        ),
    ),
    ("publish nothing", lambda _: request(methods.PUBLISH_JOB_EVENT_BATCH, b"")),
    (
        "publish",
        lambda way: request(
            methods.PUBLISH_JOB_EVENT_BATCH,
            pb.PublishJobEventBatchRequest(
                task_token=way.token,
                events=[pb.JobEvent(sequence=1, output_data=pb.OutputEvent(output=b"line\n"))],
            ),
        ),
    ),
    (
        "publish out of order",
        lambda way: request(
            methods.PUBLISH_JOB_EVENT_BATCH,
            pb.PublishJobEventBatchRequest(
                task_token=way.token,
                events=[pb.JobEvent(sequence=9, output_data=pb.OutputEvent(output=b"line\n"))],
            ),
        ),
    ),
    ("update by nobody", lambda _: request(methods.UPDATE_JOB, pb.UpdateJobRequest(task_token="x"))),
    ("release", lambda way: request(methods.RELEASE_JOB, pb.ReleaseJobRequest(task_token=way.token))),
    (
        "complete too late",
        lambda way: request(methods.COMPLETE_JOB, pb.CompleteJobRequest(task_token=way.token)),
    ),
    ("complete none", lambda _: request(methods.COMPLETE_JOBS, pb.CompleteJobsRequest())),
    ("malformed", lambda _: request(methods.ENQUEUE_JOB, b"\xff\xff\xff")),
    ("malformed batch", lambda _: request(methods.COMPLETE_JOBS, b"\x0a\x05ab")),
    ("empty", lambda _: request(methods.ENQUEUE_JOB, b"")),
    ("too large", lambda _: request(methods.ENQUEUE_JOB, bytes(70_000))),
    (
        "expired",
        lambda _: request(
            methods.DEQUEUE_JOBS, pb.DequeueJobsRequest(queue="r", wait_seconds=20), "connect-timeout-ms: 1"
        ),
    ),
    ("no time", lambda _: request(methods.GET_JOB, pb.GetJobRequest(), "connect-timeout-ms: 0")),
    ("odd time", lambda _: request(methods.GET_JOB, pb.GetJobRequest(), "connect-timeout-ms: -1")),
    ("another version", lambda _: request(methods.GET_JOB, b"").replace(b"version: 1", b"version: 2")),
    ("another type", lambda _: request(methods.GET_JOB, b"{}").replace(b"n/proto", b"n/json")),
    ("compressed", lambda _: request(methods.GET_JOB, b"x", "content-encoding: gzip")),
    ("twice a header", lambda _: request(methods.LIST_WORKERS, b"", "x-a: 1", "x-a: 2")),
    ("another host", lambda _: request(methods.LIST_WORKERS, b"").replace(b"127.0.0.1", b"evil.example")),
    ("a foreign page", lambda _: request(methods.LIST_WORKERS, b"", "origin: https://evil.example")),
    ("a query", lambda _: request(methods.LIST_WORKERS.path + "?x=1", b"")),
    ("GET", lambda _: request(methods.GET_JOB, b"").replace(b"POST", b"GET", 1)),
]  # fmt: skip


async def test_a_life_of_jobs_is_the_same_on_both_ways() -> None:
    options = AppOptions(no_auth=True, max_message_bytes=65_536)
    taken = set()
    async with both_ways(options) as ways:
        for name, step in _LIVES:
            answers = [await way.ask(step(way)) for way in ways]
            assert answers[0].told == answers[1].told, name
            assert not answers[1].took_the_short_way
            if answers[0].took_the_short_way:
                taken.add(name)
            if name == "dequeue":
                for way, answer in zip(ways, answers, strict=True):
                    (job,) = pb.DequeueJobsResponse.FromString(answer.body).jobs
                    way.job_id, way.token = job.job.job_id, job.task_token
        assert await ways[0].states() == await ways[1].states()
    assert {"no-op", "enqueue", "malformed", "expired", "publish out of order"} <= taken
    unusual = {"compressed", "another type", "twice a header", "another host", "a query", "GET", "odd time"}
    assert not unusual & taken


@pytest.mark.parametrize("seed", range(3))
async def test_nonsense_is_answered_the_same_on_both_ways(seed: int) -> None:
    chance = random.Random(seed)
    mischief = Mischief(chance, ["0" * 32], ["token"])
    hot = [
        method for method in METHODS if f"/{method.containing_service.full_name}/{method.name}" in HOT_PATHS
    ]
    assert len(hot) == len(HOT)
    async with both_ways() as ways:
        lines = [await way.line() for way in ways]
        for _ in range(150):
            called = chance.choice(hot)
            message, encoding = mischief.request(called)
            if encoding != "proto":
                continue
            path = path_of(called)
            answers = []
            for line in lines:
                await line.send(request(path, message, "connect-timeout-ms: 100"))
                answers.append(await asyncio.wait_for(line.answer(), 30))
            assert answers[0].told == answers[1].told, (path, message)
        assert await ways[0].states() == await ways[1].states()


async def test_keys_and_rates_are_asked_on_both_ways() -> None:
    no_op = request(methods.LIST_WORKERS, b"")
    async with both_ways(AppOptions()) as ways:
        for headers in ([], ["authorization: Bearer airk_0123456789abcdef_wrong"], ["authorization: \u00e9"]):
            wanted = request(methods.LIST_WORKERS, b"", *headers)
            answers = [await way.ask(wanted) for way in ways]
            assert answers[0].told == answers[1].told
            assert answers[0].status == 401
    limits = AdmissionLimits(max_body_bytes=400)
    async with both_ways(admission=limits) as ways:
        small, large = request(methods.ENQUEUE_JOB, enqueue()), request(methods.ENQUEUE_JOB, bytes(1000))
        for wanted, status in ((no_op, 200), (small, 200), (large, 429)):
            answers = [await way.ask(wanted) for way in ways]
            assert answers[0].told == answers[1].told
            assert answers[0].status == status
            assert answers[0].took_the_short_way
        assert [way.services.admission.body_bytes for way in ways] == [0, 0]


async def test_whoever_goes_while_a_call_waits_takes_no_job() -> None:
    wanted = request(methods.DEQUEUE_JOBS, pb.DequeueJobsRequest(queue="q", wait_seconds=20))
    async with both_ways() as ways:
        for way in ways:
            await _go_while_waiting(way, wanted)
            await way.ask(request(methods.ENQUEUE_JOB, enqueue()))
            answer = await way.ask(wanted)
            assert len(pb.DequeueJobsResponse.FromString(answer.body).jobs) == 1


async def _go_while_waiting(way: Way, wanted: bytes) -> None:
    line = await way.line()
    await line.send(wanted)
    await until(lambda: way.services.dispatcher.waiting == 1)
    line.close()
    await until(lambda: way.services.dispatcher.waiting == 0)


async def test_requests_may_come_behind_each_other_and_in_pieces() -> None:
    no_op = request(methods.LIST_WORKERS, pb.ListWorkersRequest())
    first, second = request(methods.ENQUEUE_JOB, enqueue(1)), request(methods.ENQUEUE_JOB, enqueue(2))
    async with both_ways() as ways:
        for way in ways:
            line = await way.line()
            await line.send(no_op + first + no_op + second)
            assert [(await line.answer()).status for _ in range(4)] == [200] * 4
            for cut in (10, len(second) - 3):
                await line.send(second[:cut])
                await asyncio.sleep(0)
                await line.send(second[cut:])
                assert (await line.answer()).status == 200
            await line.send(no_op)
            assert (await line.answer()).took_the_short_way == (way is ways[0])
        assert await ways[0].states() == await ways[1].states() == {"SCHEDULED": 2}


async def test_a_request_whose_head_is_known_is_not_parsed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[bytes] = []

    def note(_: object, name: bytes, value: bytes) -> None:
        if name == b"content-length":
            parsed.append(value)

    async with both_ways() as (way, _):
        line, other = await way.line(), await way.line()
        sent = [
            request(methods.ENQUEUE_JOB, enqueue(number, delay_seconds=number)) for number in range(1, 300)
        ]
        await line.send(sent[0])
        assert (await line.answer()).status == 200
        monkeypatch.setattr(GuardedProtocol, "on_header", note)
        for number, one in enumerate(sent[1:]):
            # What one connection said holds for all of them.
            asked = (line, other)[number % 2]
            await asked.send(one)
            answer = await asked.answer()
            assert answer.status == 200
            assert answer.took_the_short_way
        assert parsed == []
        assert await way.states() == {"SCHEDULED": 20}
        assert len({len(one) for one in sent}) > 1


async def test_known_heads_are_parsed_where_they_are_not_a_request_by_themselves() -> None:
    """Behind another, within a body, in pieces or cut: each of it means what it meant before."""
    known = request(methods.LIST_WORKERS, b"")
    late = request(methods.DEQUEUE_JOBS, pb.DequeueJobsRequest(queue="q", wait_seconds=20))
    chunked = request(methods.LIST_WORKERS, b"").replace(b"content-length: 0", b"transfer-encoding: chunked")
    async with both_ways() as ways:
        for way in ways:
            line = await way.line()
            await line.send(known)
            assert (await line.answer()).status == 200
            # In the body of another request it is no request.
            await line.send(request(methods.ENQUEUE_JOB, known)[: -len(known)])
            await until(lambda way=way: any(one._phase.value == "body" for one in way.guard.open))  # type: ignore[misc]
            await line.send(known)
            assert (await line.answer()).status == 400
            await line.send(chunked)
            await line.send(b"%x\r\n" % len(known) + known + b"\r\n0\r\n\r\n")
            assert (await line.answer()).status == 400
            # Its beginning was there already.
            await line.send(known[:7])
            await line.send(known[7:])
            assert (await line.answer()).status == 200
            await line.send(known + known[:7])
            assert (await line.answer()).status == 200
            await line.send(known[7:] + known)
            assert [(await line.answer()).status for _ in range(2)] == [200, 200]
            # It ends the head of another, whose method nobody has.
            await line.send(b"POST /nowhere HTTP/1.1\r\nx-odd: ")
            await until(lambda way=way: any(one._phase.value == "headers" for one in way.guard.open))  # type: ignore[misc]
            await line.send(known)
            assert (await line.answer()).status == 404
            # The one before it has no answer yet, which comes first.
            await line.send(late)
            await until(lambda way=way: way.services.dispatcher.waiting == 1)  # type: ignore[misc]
            await line.send(known)
            await way.ask(request(methods.ENQUEUE_JOB, enqueue()))
            assert len(pb.DequeueJobsResponse.FromString((await line.answer()).body).jobs) == 1
            assert pb.ListWorkersResponse.FromString((await line.answer()).body) == pb.ListWorkersResponse()


async def test_nobody_can_have_the_requests_of_others_taken_for_something_else() -> None:
    """What was the rest of a head for one is a whole request for another."""
    known = request(methods.LIST_WORKERS, b"").replace(b"host: 127.0.0.1\r\n", b"x-host: 127.0.0.1\r\n")
    known = known.replace(b"content-type", b"x-type").replace(b"connect-protocol", b"x-protocol")
    begun = b"POST %b HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/proto\r\nx-odd: "
    async with both_ways() as ways:
        for way in ways:
            line, other = await way.line(), await way.line()
            await line.send(begun % methods.GET_JOB.path.encode())
            await until(lambda way=way: any(one._phase.value == "headers" for one in way.guard.open))  # type: ignore[misc]
            await line.send(known)
            refused = await line.answer()
            assert refused.status == 400
            assert refused.took_the_short_way == (way is ways[0])
            await other.send(known)
            # It says no host that anybody is allowed to.
            assert (await other.answer()).status == 403


async def test_a_known_request_ends_the_wait_for_one() -> None:
    nothing = request(methods.DEQUEUE_JOBS, pb.DequeueJobsRequest(queue="q", wait_seconds=0))
    late = request(methods.DEQUEUE_JOBS, pb.DequeueJobsRequest(queue="q", wait_seconds=20))
    async with both_ways() as ways:
        for way in ways:
            await way.ask(nothing)
            line = await way.line()
            await line.send(late)
            await until(lambda way=way: way.services.dispatcher.waiting == 1)  # type: ignore[misc]
            # From the first byte on it is the server that takes its time.
            way.guard.sweep(asyncio.get_running_loop().time() + 100)
            await way.ask(request(methods.ENQUEUE_JOB, enqueue(1)))
            assert (await line.answer()).status == 200
            await line.send(late)
            await until(lambda way=way: way.services.dispatcher.waiting == 1)  # type: ignore[misc]
            assert [one.timeout_keep_alive_task for one in way.guard.open if one._is_busy()] == [None]
            await way.ask(request(methods.ENQUEUE_JOB, enqueue(2)))
            assert (await line.answer()).status == 200


async def test_a_caller_who_does_not_read_is_not_read_either() -> None:
    large = enqueue(1)
    large.job_params.args.append("y" * 240_000)
    async with both_ways() as ways:
        for way in ways:
            job_id = pb.EnqueueJobResponse.FromString(
                (await way.ask(request(methods.ENQUEUE_JOB, large))).body
            ).job_id
            wanted = request(methods.GET_JOB, pb.GetJobRequest(job_id=job_id))
            line = await way.line()
            line.read_nothing()
            connection = await way.newest_connection()
            for count in range(1, 200):
                await line.send(wanted)
                size = count * len(wanted)
                await until(lambda: connection.flow.read_paused or connection.bytes_received == size)  # noqa: B023
                if connection.flow.read_paused:
                    break
            assert connection.flow.read_paused
            assert connection.transport.get_write_buffer_size() < 16 * 240_000


async def test_a_blank_line_before_a_request_changes_nothing() -> None:
    known = request(methods.LIST_WORKERS, b"")
    async with both_ways() as ways:
        for way in ways:
            await way.ask(known)
            line = await way.line()
            connection = await way.newest_connection()
            for blanks in (b"\r\n", b"\r\n\r\n"):
                await line.send(blanks)
                await until(lambda: connection.bytes_received > 0)  # noqa: B023
                await line.send(known)
                assert (await line.answer()).status == 200
            await line.send(b"POST /x HTTP/1.1\r\nhost: 127.0.0.1")
            await until(lambda: connection._deadline is not None)  # noqa: B023
            # The next request has to come to its end, as any other.
            way.guard.sweep(asyncio.get_running_loop().time() + 100)
            assert (await line.answer()).status == 408


def test_a_call_that_is_late_before_it_has_begun_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """On this loop timers go before tasks: a turn that takes long ends calls that came in it."""
    take = GuardedProtocol.data_received

    def take_long(protocol: GuardedProtocol, data: bytes) -> None:
        take(protocol, data)
        began = time.monotonic()
        while time.monotonic() - began < 0.01:
            """Do what else there is to do in this turn."""

    monkeypatch.setattr(GuardedProtocol, "data_received", take_long)

    async def main() -> int:
        async with both_ways() as (way, _):
            line = await way.line()
            await line.send(request(methods.LIST_WORKERS, b"", "connect-timeout-ms: 1"))
            await asyncio.wait_for(line.answer(), 10)
            await line.send(request(methods.LIST_WORKERS, b""))
            return (await asyncio.wait_for(line.answer(), 10)).status

    assert uvloop.run(main()) == 200


async def test_a_known_head_is_asked_for_its_key_each_time() -> None:
    known = request(methods.LIST_WORKERS, b"", "authorization: Bearer airk_0123456789abcdef_wrong")
    async with both_ways(AppOptions()) as ways:
        for way in ways:
            line = await way.line()
            for _ in range(3):
                await line.send(known)
                assert (await line.answer()).status == 401


async def test_a_refusal_by_the_head_does_not_wait_for_the_body() -> None:
    """A body that is still to come is the application's to read, which looks at the key first."""
    async with both_ways(AppOptions()) as ways:
        for way in ways:
            answer = await way.ask(request(methods.ENQUEUE_JOB, b"only the beginning", length=1000))
            assert answer.status == 401


async def test_connection_close_is_answered_and_done() -> None:
    async with both_ways() as ways:
        for way in ways:
            for _ in range(2):
                line = await way.line()
                await line.send(request(methods.LIST_WORKERS, b"", "connection: close"))
                answer = await line.answer()
                assert answer.headers[b"connection"] == b"close"
                assert await asyncio.wait_for(line.ended(), 30)


async def test_an_answer_is_one_write() -> None:
    written: list[int] = []

    async with both_ways() as (way, _):
        line = await way.line()
        await line.send(request(methods.LIST_WORKERS, b""))
        await line.answer()
        (connection,) = way.guard.open
        transport = connection.transport

        class Counting:
            def __getattr__(self, name: str) -> object:
                return getattr(transport, name)

            def write(self, data: bytes) -> None:
                written.append(len(data))
                transport.write(data)

        connection.transport = Counting()  # type: ignore[assignment]  # it has all that a transport has
        await line.send(request(methods.LIST_WORKERS, b""))
        answer = await line.answer()
        connection.transport = transport
    assert len(written) == 1
    assert written[0] > len(answer.body)


def test_only_what_is_written_down_of_uvicorn_is_used() -> None:
    """The version is pinned: whoever raises it looks at these, which are nobody's promise."""
    import uvicorn
    from uvicorn.protocols.http import httptools_impl

    assert uvicorn.__version__ == "0.54.0"
    used: Sequence[str] = (
        "connection_made", "connection_lost", "data_received", "on_message_begin", "on_headers_complete",
        "on_body", "on_message_complete", "on_response_complete", "send_400_response", "shutdown",
        "_unset_keepalive_if_required",
    )  # fmt: skip
    assert all(hasattr(httptools_impl.HttpToolsProtocol, name) for name in used)
    assert httptools_impl.STATUS_LINE[200] == b"HTTP/1.1 200 OK\r\n"
