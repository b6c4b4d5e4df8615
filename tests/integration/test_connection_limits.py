"""What a caller may cost before anybody knows who it is: headers, time, connections. On bare sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest
from structlog.testing import capture_logs

from airunner import telemetry
from airunner.codec.gen.job.v1 import job_pb2
from airunner.domain.clock import SystemClock
from airunner.server.connections import ConnectionGuard, ConnectionLimits, ConnectionRefusal
from airunner.server.guarded_protocol import CLIENT_STREAMS
from airunner.stores.memory import MemoryStore
from airunner.testing.clock import ManualClock
from airunner.testing.conditions import until
from airunner.testing.factories import make_services
from tests.support.scraping import Change
from tests.support.serving import serve

CALL = b"POST /job.v1.JobService/ListQueues HTTP/1.1\r\nhost: localhost\r\n"
SMALL = b"content-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
MANY = ConnectionLimits(max_connections=100)


class Caller:
    """One connection that sends what a test wants, and reads what comes back."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    @asynccontextmanager
    async def open(cls, url: str) -> AsyncIterator[Caller]:
        address = urlsplit(url)
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        try:
            yield cls(reader, writer)
        finally:
            writer.close()

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def send_again_and_again(self, data: bytes) -> None:
        """Send up to a hundred mebibytes."""
        for _ in range(100 * 1024 * 1024 // len(data)):
            await self.send(data)

    async def status(self) -> int:
        """Return the status of the next answer, read to its end; 0 if the connection ended without one."""
        try:
            head = await self._reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            return 0
        lines = head.lower().split(b"\r\n")
        length = next((int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length")), 0)
        if b"transfer-encoding: chunked" in lines:
            await self._reader.readuntil(b"0\r\n\r\n")
        await self._reader.readexactly(length)
        return int(lines[0].split()[1])

    async def ended(self) -> bool:
        """Wait for the end of the connection."""
        try:
            return await self._reader.read() == b""
        except ConnectionError:
            return True


@asynccontextmanager
async def guarded(limits: ConnectionLimits = MANY) -> AsyncIterator[tuple[str, ConnectionGuard]]:
    clock = SystemClock()
    guard = ConnectionGuard(limits, clock)
    async with make_services(MemoryStore(clock), clock) as services, serve(services, guard=guard) as url:
        yield url, guard


def refusals(reason: ConnectionRefusal) -> float:
    return telemetry.connections_refused.read().get((reason.value,), 0)


async def test_calls_one_after_the_other_are_answered() -> None:
    async with guarded() as (url, _), Caller.open(url) as caller:
        for _ in range(3):
            await caller.send(CALL + SMALL)
            assert await caller.status() == 200


async def test_calls_in_one_piece_are_answered() -> None:
    async with guarded() as (url, _), Caller.open(url) as caller:
        await caller.send((CALL + SMALL) * 3)
        assert [await caller.status() for _ in range(3)] == [200, 200, 200]


async def test_endless_header_lines_are_refused() -> None:
    before = refusals(ConnectionRefusal.HEADERS_TOO_LARGE)
    async with guarded() as (url, _), Caller.open(url) as caller:
        await caller.send(CALL)
        with pytest.raises(ConnectionError):
            await caller.send_again_and_again(b"x-header: y\r\n" * 100)
    assert refusals(ConnectionRefusal.HEADERS_TOO_LARGE) == before + 1


async def test_an_endless_header_value_is_refused() -> None:
    async with guarded() as (url, _), Caller.open(url) as caller:
        await caller.send(CALL + b"x-long: ")
        with pytest.raises(ConnectionError):
            await caller.send_again_and_again(b"y" * 1024)


@pytest.mark.parametrize("endless", [b"x-trailer: y\r\n" * 100, b"y" * 1024])
async def test_endless_trailers_are_refused(endless: bytes) -> None:
    chunked = b"content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n"
    async with guarded() as (url, _), Caller.open(url) as caller:
        await caller.send(CALL + chunked + b"x-trailer: ")
        with pytest.raises(ConnectionError):
            await caller.send_again_and_again(endless)


async def test_a_body_in_chunks_of_one_byte_is_read() -> None:
    body = b'{"filler": "' + b"x" * 20_000 + b'"}'
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
    async with guarded() as (url, _), Caller.open(url) as caller:
        await caller.send(CALL + b"content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n")
        await caller.send(chunks)
        # A field that nobody knows: the body was read to its end.
        assert await caller.status() == 400


async def test_headers_of_a_call_behind_another_are_bounded_too() -> None:
    async with guarded() as (url, _), Caller.open(url) as caller:
        await caller.send(CALL + SMALL)
        assert await caller.status() == 200
        await caller.send(CALL + b"x-long: " + b"y" * (65 * 1024))
        assert await caller.status() == 431
        assert await caller.ended()


@pytest.mark.parametrize(("count", "status"), [(90, 200), (100, 431)])
async def test_the_number_of_headers_is_bounded(count: int, status: int) -> None:
    lines = b"".join(b"x-%d: y\r\n" % number for number in range(count))
    async with guarded() as (url, _), Caller.open(url) as caller:
        await caller.send(CALL + lines + SMALL)
        assert await caller.status() == status


async def test_large_headers_in_one_piece_are_refused_before_the_call_begins() -> None:
    async with guarded() as (url, _), Caller.open(url) as caller:
        await caller.send(CALL + b"x-long: " + b"y" * (64 * 1024) + b"\r\n" + SMALL)
        assert await caller.status() == 431


@pytest.mark.parametrize(
    ("sent", "seconds", "reason"),
    [
        (b"", 75, ConnectionRefusal.IDLE),
        (b"POST", 10, ConnectionRefusal.HEADERS_TOO_SLOW),
        (CALL, 10, ConnectionRefusal.HEADERS_TOO_SLOW),
        (CALL + SMALL[:-1], 30, ConnectionRefusal.BODY_TOO_SLOW),
        (CALL + SMALL[:-1].replace(b"/json", b"/grpc-web"), 30, ConnectionRefusal.BODY_TOO_SLOW),
    ],
)
async def test_a_caller_that_says_nothing_more_is_let_go(
    sent: bytes, seconds: float, reason: ConnectionRefusal
) -> None:
    before = refusals(reason)
    async with guarded() as (url, guard), Caller.open(url) as caller:
        await caller.send(sent)
        await until(lambda: len(guard.open) == 1)
        connection = next(iter(guard.open))
        await until(lambda: connection.bytes_received == len(sent))
        now = asyncio.get_running_loop().time()
        guard.sweep(now + seconds - 1)
        assert len(guard.open) == 1
        guard.sweep(now + seconds)
        assert await caller.status() in {0, 408}
    assert refusals(reason) == before + 1


async def test_a_call_that_waits_for_its_answer_is_not_let_go() -> None:
    waiting = b'{"queue":"q","waitSeconds":1}'
    head = CALL.replace(b"ListQueues", b"DequeueJobs") + b"content-type: application/json\r\n"
    async with guarded() as (url, guard), Caller.open(url) as caller:
        await caller.send(head + b"content-length: %d\r\n\r\n" % len(waiting) + waiting)
        await until(lambda: any(connection.cycle for connection in guard.open))
        guard.sweep(asyncio.get_running_loop().time() + 3600)
        assert await caller.status() == 200


def test_bodies_may_pause_in_all_client_streams_and_nowhere_else() -> None:
    services = job_pb2.DESCRIPTOR.services_by_name.values()
    methods = [method for service in services for method in service.methods if method.client_streaming]
    paths = {f"/{method.containing_service.full_name}/{method.name}".encode() for method in methods}
    assert paths == CLIENT_STREAMS


async def test_a_client_stream_may_pause() -> None:
    head = CALL.replace(b"JobService/ListQueues", b"JobEventsService/PublishJobEvents")
    async with guarded() as (url, guard), Caller.open(url) as caller:
        await caller.send(
            head + b"content-type: application/connect+json\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        await until(lambda: any(connection.cycle for connection in guard.open))
        guard.sweep(asyncio.get_running_loop().time() + 3600)
        assert len(guard.open) == 1


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\x16\x03\x01 this is no HTTP\r\n\r\n",
        CALL + b"authorization: Bearer \xff\r\n" + SMALL,
        CALL + b"x-header: \xe9\r\n" + SMALL,
        CALL + b"content-length: two\r\n\r\n{}",
    ],
)
async def test_what_is_no_request_is_refused_and_counted(
    request_bytes: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    refused = Change(telemetry.connections_refused)
    async with guarded() as (url, _):
        async with Caller.open(url) as caller:
            await caller.send(request_bytes)
            assert await caller.status() == 400
            assert await caller.ended()
        async with Caller.open(url) as caller:
            await caller.send(CALL + "x-header: \u00e9\r\n".encode() + SMALL)
            assert await caller.status() == 200
    assert refused(ConnectionRefusal.MALFORMED.value) == 1
    assert "Exception in ASGI application" not in caplog.text


async def test_one_connection_too_many_is_refused_and_others_are_served() -> None:
    async with guarded(ConnectionLimits(max_connections=2)) as (url, guard):
        async with Caller.open(url) as first, Caller.open(url) as second:
            for caller in (first, second):
                await caller.send(CALL + SMALL)
                assert await caller.status() == 200
            async with Caller.open(url) as third:
                assert await third.status() == 503
                assert await third.ended()
            await first.send(CALL + SMALL)
            assert await first.status() == 200
        await until(lambda: not guard.open)
        async with Caller.open(url) as fourth:
            await fourth.send(CALL + SMALL)
            assert await fourth.status() == 200


def test_refusals_are_logged_once_a_minute() -> None:
    clock = ManualClock()
    guard = ConnectionGuard(MANY, clock)
    with capture_logs() as lines:
        for _ in range(3):
            guard.refused(ConnectionRefusal.IDLE)
        clock.advance(60)
        guard.refused(ConnectionRefusal.TOO_MANY)
    assert [(line["event"], line.get("idle"), line.get("too_many")) for line in lines] == [
        ("connections.refused", 1, None),
        ("connections.refused", 2, 1),
    ]
