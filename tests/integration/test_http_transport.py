"""Both transports against a server that does what no good server does."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path

import pytest
import trustme

from airunner.client.http.base import (
    MAX_HEADER_BYTES,
    ConnectionLost,
    HttpTransport,
    Target,
    Unreachable,
)
from airunner.client.http.http1 import Http1Connection
from airunner.client.http.library import LibraryTransport
from airunner.client.http.pool import ConnectionPool
from airunner.domain.errors import DeadlineExceeded, InvalidArgument
from airunner.testing.conditions import until
from tests.support.scripted_http import CHUNKED, LAST_CHUNK, ScriptedHttp, Visit, answer, chunk, scripted_http

PATIENT_MS = 30_000
_Script = Callable[[Visit], Awaitable[None]]


@pytest.fixture(params=[ConnectionPool, LibraryTransport], ids=["own", "library"])
async def transport(request: pytest.FixtureRequest) -> AsyncIterator[HttpTransport]:
    made: HttpTransport = request.param()
    yield made
    await made.aclose()


@pytest.fixture
async def pool() -> AsyncIterator[ConnectionPool]:
    made = ConnectionPool()
    yield made
    await made.aclose()


def target(server: ScriptedHttp, **headers: str) -> Target:
    return Target(
        server.address, "/job.v1.JobService/GetJob", {"content-type": "application/proto", **headers}
    )


async def post(transport: HttpTransport, server: ScriptedHttp, body: bytes = b"ask") -> bytes:
    return (await transport.send(target(server), body, timeout_ms=PATIENT_MS)).body


async def echo(visit: Visit) -> None:
    while request := await visit.request():
        await visit.send(answer(request.partition(b"\r\n\r\n")[2]))


def sending(*pieces: bytes) -> _Script:
    """Answer each request with pieces, then wait for the client to go."""

    async def serve(visit: Visit) -> None:
        while await visit.request():
            await visit.send(*pieces)

    return serve


async def test_calls_one_after_the_other_share_a_connection(transport: HttpTransport) -> None:
    async with scripted_http(echo) as server:
        assert [await post(transport, server, b"%d" % number) for number in range(5)] == [
            b"0", b"1", b"2", b"3", b"4",
        ]  # fmt: skip
        assert len(server.visits) == 1
    head = server.requests[0].lower()
    assert head.startswith(b"post /job.v1.jobservice/getjob http/1.1\r\n")
    assert b"connect-timeout-ms: 30000" in head
    assert b"content-type: application/proto" in head


async def test_calls_at_the_same_time_have_connections_of_their_own(transport: HttpTransport) -> None:
    async with scripted_http(echo) as server:
        bodies = [b"%d" % number for number in range(8)]
        assert await asyncio.gather(*(post(transport, server, body) for body in bodies)) == bodies


@pytest.mark.parametrize(
    "pieces",
    [
        [bytes([byte]) for byte in answer(b"slowly")],
        [CHUNKED, *(bytes([byte]) for byte in chunk(b"slow") + chunk(b"ly")), LAST_CHUNK],
        [b"HTTP/1.1 103 Early Hints\r\nlink: <a>\r\n\r\n", answer(b"slowly")],
        [b"HTTP/1.1 100 Continue\r\n\r\n" + answer(b"slowly")],
    ],
    ids=["byte by byte", "chunk by chunk", "after a hint", "after a go-ahead"],
)  # fmt: skip
async def test_an_answer_may_come_in_any_pieces(transport: HttpTransport, pieces: list[bytes]) -> None:
    async with scripted_http(sending(*pieces)) as server:
        assert await post(transport, server) == b"slowly"
        assert await post(transport, server) == b"slowly"


@pytest.mark.parametrize(
    "pieces",
    [
        [answer(b"whole")],
        [answer(b"whole").replace(b"content-type", b"Content-Type")],
        [answer(b"whole").replace(b"length: 5", b"length: 05")],
        [answer(b"whole").replace(b"length: 5", b"length: 5\r\nx-last: 1")],
        [b"HTTP/1.1 100 Continue\r\n\r\n", answer(b"whole")],
        [b"HTTP/1.1 200 OK\r\nx-odd: ", answer(b"whole")],
        [answer(b"whole")[:-1], answer(b"whole")[-1:]],
        [answer(b"whole")[:70], answer(b"whole")[70:]],
    ],
)
async def test_an_answer_means_the_same_however_it_begins(pool: ConnectionPool, pieces: list[bytes]) -> None:
    async with scripted_http(sending(*pieces)) as server:
        assert [await post(pool, server) for _ in range(3)] == [b"whole"] * 3
        assert len(server.visits) == 1


async def test_a_body_that_looks_like_an_answer_is_a_body(pool: ConnectionPool) -> None:
    inner = answer(b"inner")

    async def serve(visit: Visit) -> None:
        while await visit.request():
            await visit.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(inner))
            # The body comes by itself, once the head is read.
            await until(lambda: any(connection._status for connection in pool._open))
            await visit.send(inner)

    async with scripted_http(serve) as server:
        assert [await post(pool, server) for _ in range(3)] == [inner] * 3


async def test_nothing_is_kept_of_calls_that_are_over(pool: ConnectionPool) -> None:
    async def serve(visit: Visit) -> None:
        await visit.request()
        await visit.send(answer(b"first"))
        await visit.request()

    async with scripted_http(serve) as server:
        assert await post(pool, server) == b"first"
        with pytest.raises(ConnectionLost):
            await post(pool, server)
        await post(pool, server)
        under_way = asyncio.create_task(post(pool, server))
        await until(lambda: len(server.requests) == 4)
        under_way.cancel()
        await asyncio.wait({under_way})
    assert pool._deadlines
    assert not pool._deadlines._due


@pytest.mark.parametrize(
    "bad",
    [
        answer(b"whole").replace(b"length: 5", b"length: +5"),
        answer(b"whole").replace(b"length: 5", b"length: 5x"),
        answer(b"whole").replace(b"length: 5", b"length: 5\r\ncontent-length: 4"),
        answer(b"whole").replace(b"length: 5", b"length: 99999999999999999999999"),
    ],
)
async def test_a_length_that_is_none_breaks_the_connection(pool: ConnectionPool, bad: bytes) -> None:
    async with scripted_http(sending(bad)) as server:
        with pytest.raises(ConnectionLost):
            await post(pool, server)


async def test_an_answer_that_begins_as_usual_is_not_parsed(pool: ConnectionPool) -> None:
    async with scripted_http(echo) as server:
        await post(pool, server)
        (connection,) = pool._open
        connection._parser = None  # type: ignore[assignment]  # whoever asks it fails
        assert [await post(pool, server, b"%d" % number) for number in range(12)] == [
            b"%d" % number for number in range(12)
        ]
        assert len(server.visits) == 1


async def test_an_answer_may_come_before_the_request_is_read(transport: HttpTransport) -> None:
    async def refuse(visit: Visit) -> None:
        await visit.reader.readuntil(b"\r\n\r\n")
        await visit.send(answer(b"too much", status="413 Content Too Large"))
        await visit.gone()

    async with scripted_http(refuse) as server:
        large = bytes(8 * 1024 * 1024)
        refused = await transport.send(target(server), large, timeout_ms=PATIENT_MS)
        assert (refused.status, refused.body) == (413, b"too much")


async def test_a_request_that_is_still_being_written_takes_its_connection_with_it(
    pool: ConnectionPool,
) -> None:
    async def refuse_large(visit: Visit) -> None:
        head = await visit.reader.readuntil(b"\r\n\r\n")
        if b"content-length: 3\r" in head:
            await visit.reader.readexactly(3)
        await visit.send(answer(b"soon"))
        await visit.gone()

    async with scripted_http(refuse_large) as server:
        assert await post(pool, server, bytes(8 * 1024 * 1024)) == b"soon"
        assert await post(pool, server) == b"soon"
        assert len(server.visits) == 2


@pytest.mark.parametrize(
    "pieces",
    [
        [],
        [b"HTTP/1.1 200 OK\r\ncontent-"],
        [answer(b"whole")[:-2]],
        [CHUNKED + chunk(b"a")],
        [b"220 smtp\r\n\r\n"],
    ],
    ids=["before the answer", "in its head", "in its body", "between chunks", "no HTTP"],
)  # fmt: skip
async def test_a_connection_that_breaks(transport: HttpTransport, pieces: list[bytes]) -> None:
    async def cut(visit: Visit) -> None:
        await visit.request()
        await visit.send(*pieces)

    async with scripted_http(cut) as server:
        with pytest.raises(ConnectionLost, match="lost the connection"):
            await post(transport, server)


async def test_nobody_there(transport: HttpTransport) -> None:
    async with scripted_http(echo) as server:
        pass
    with pytest.raises(Unreachable, match="refused"):
        await post(transport, server)


async def test_a_deadline_closes_the_connection(transport: HttpTransport) -> None:
    gone = asyncio.Event()

    async def stall(visit: Visit) -> None:
        await visit.request()
        await visit.gone()
        gone.set()

    async with scripted_http(stall) as server:
        with pytest.raises(DeadlineExceeded, match="timed out"):
            await transport.send(target(server), b"", timeout_ms=50)
        await asyncio.wait_for(gone.wait(), 30)


async def test_a_call_that_is_cancelled_closes_the_connection(transport: HttpTransport) -> None:
    asked, gone = asyncio.Event(), asyncio.Event()

    async def stall(visit: Visit) -> None:
        await visit.request()
        asked.set()
        await visit.gone()
        gone.set()

    async with scripted_http(stall) as server:
        call = asyncio.create_task(post(transport, server))
        await asyncio.wait_for(asked.wait(), 30)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await asyncio.wait_for(gone.wait(), 30)


async def test_an_answer_that_is_there_before_the_cancellation_is_returned(pool: ConnectionPool) -> None:
    async with scripted_http(echo) as server:
        await post(pool, server)
        call = asyncio.create_task(post(pool, server, b"jobs"))
        (connection,) = await _connections_in_use(pool)
        waiting = connection._exchange
        assert waiting is not None
        waiting.begin(200, [])
        waiting.take(b"jobs")
        waiting.end()
        call.cancel()
        assert await call == b"jobs"
        assert call.cancelling() == 1


async def _connections_in_use(pool: ConnectionPool) -> list[Http1Connection]:
    await asyncio.sleep(0)
    return [connection for connection in pool._open if connection._exchange]


async def test_a_connection_that_the_server_closed_meanwhile_is_no_error(transport: HttpTransport) -> None:
    async def once(visit: Visit) -> None:
        request = await visit.request()
        await visit.send(answer(request[-1:]))

    async with scripted_http(once) as server:
        for number in range(5):
            assert await post(transport, server, b"%d" % number) == b"%d" % number
            # The server has closed, whether this side has noticed or not.
            await until(lambda: all(visit.writer.is_closing() for visit in server.visits))
        assert len(server.visits) == 5


async def test_what_nobody_asked_for_ends_the_connection(transport: HttpTransport) -> None:
    async def twice(visit: Visit) -> None:
        while await visit.request():
            await visit.send(answer(b"first") + answer(b"second"))

    async with scripted_http(twice) as server:
        assert [await post(transport, server) for _ in range(3)] == [b"first"] * 3
        assert len(server.visits) == 3


async def test_what_comes_while_nobody_asks_ends_the_connection(pool: ConnectionPool) -> None:
    async def chatter(visit: Visit) -> None:
        await visit.request()
        await visit.send(answer(b"asked"), answer(b"unasked"))
        await visit.gone()

    async with scripted_http(chatter) as server:
        assert [await post(pool, server) for _ in range(3)] == [b"asked"] * 3
        assert len(server.visits) == 3


async def test_a_client_that_is_closed_while_it_connects_sends_nothing(pool: ConnectionPool) -> None:
    async with scripted_http(echo) as server:
        asking = asyncio.create_task(post(pool, server))
        await asyncio.sleep(0)
        await pool.aclose()
        with pytest.raises(RuntimeError, match="the client is closed"):
            await asking
        assert server.requests == []


@pytest.mark.parametrize(
    "unasked",
    [b"", answer(b"unasked"), b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\n\r\n"],
    ids=["it closes", "it answers", "it says why and closes"],
)
async def test_what_the_loop_had_no_time_to_read_ends_the_connection(
    pool: ConnectionPool, unasked: bytes
) -> None:
    async with scripted_http(echo) as server:
        for number in range(3):
            assert await post(pool, server, b"%d" % number) == b"%d" % number
            # At once, so that the loop has no turn before the next call.
            server_side = server.visits[-1].writer
            server_side.write(unasked)
            server_side.get_extra_info("socket").shutdown(socket.SHUT_WR)
        assert len(server.visits) == 3


@pytest.mark.parametrize(
    "head",
    [
        b"".join(b"x-%d: %b\r\n" % (number, b"y" * 1000) for number in range(200)),
        b"x: " + b"y" * (4 * MAX_HEADER_BYTES),
    ],
    ids=["many", "long"],
)
async def test_a_head_is_bounded(pool: ConnectionPool, head: bytes) -> None:
    async with scripted_http(sending(b"HTTP/1.1 200 OK\r\n", head, b"\r\n")) as server:
        with pytest.raises(ConnectionLost, match="too large"):
            await post(pool, server)


async def test_a_large_body_may_come_with_its_head(pool: ConnectionPool) -> None:
    async with scripted_http(sending(answer(bytes(3 * MAX_HEADER_BYTES)))) as server:
        assert len(await post(pool, server)) == 3 * MAX_HEADER_BYTES


async def test_a_body_is_bounded(pool: ConnectionPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airunner.client.http.exchange.MAX_BODY_BYTES", 1000)
    async with scripted_http(sending(answer(bytes(1001)))) as server:
        with pytest.raises(ConnectionLost, match="too large"):
            await post(pool, server)


async def test_an_answer_without_a_length_may_be_cut_off_so_it_counts_only_as_a_refusal(
    pool: ConnectionPool,
) -> None:
    async def blunt(visit: Visit) -> None:
        request = await visit.request()
        await visit.send(b"HTTP/1.1 %b X\r\n\r\nbody" % request[-3:])

    async with scripted_http(blunt) as server:
        refused = await pool.send(target(server), b"502", timeout_ms=PATIENT_MS)
        assert (refused.status, refused.body) == (502, b"body")
        with pytest.raises(ConnectionLost):
            await post(pool, server, b"200")


async def test_a_redirect_is_not_followed(transport: HttpTransport) -> None:
    moved = b"HTTP/1.1 307 Moved\r\nlocation: /elsewhere\r\nset-cookie: a=b\r\ncontent-length: 0\r\n\r\n"
    async with scripted_http(sending(moved)) as server:
        for _ in range(2):
            assert (await transport.send(target(server), b"", timeout_ms=PATIENT_MS)).status == 307
    assert not any(b"cookie" in request.lower() for request in server.requests)


@pytest.mark.parametrize("value", ["a\r\nb: c", "a\nb", "a\rb", "a\0b"])
def test_a_header_that_would_be_two_is_refused(value: str) -> None:
    with pytest.raises(InvalidArgument, match="authorization"):
        Target("http://127.0.0.1:1", "/x", {"authorization": value})


async def test_idle_connections_are_dropped() -> None:
    pool = ConnectionPool(idle_seconds=0.05)
    async with scripted_http(echo) as server:
        await asyncio.gather(*(post(pool, server) for _ in range(3)))
        await until(lambda: all(visit.reader.at_eof() for visit in server.visits))
        assert await post(pool, server, b"anew") == b"anew"
    await pool.aclose()


def test_another_loop_has_other_connections() -> None:
    pool = ConnectionPool()

    async def call() -> bytes:
        async with scripted_http(echo) as server:
            return await post(pool, server, b"here")

    assert [asyncio.run(call()), asyncio.run(call())] == [b"here", b"here"]


async def test_a_closed_transport_makes_no_calls(transport: HttpTransport) -> None:
    async with scripted_http(echo) as server:
        await post(transport, server)
        await transport.aclose()
        await transport.aclose()
        with pytest.raises(RuntimeError):
            await post(transport, server)


async def test_our_own_transport_has_no_thread(pool: ConnectionPool) -> None:
    before = set(threading.enumerate())
    async with scripted_http(echo) as server:
        await asyncio.gather(*(post(pool, server) for _ in range(8)))
    assert set(threading.enumerate()) == before


async def test_a_stream_gives_what_came_together(transport: HttpTransport) -> None:
    more = asyncio.Event()

    async def serve(visit: Visit) -> None:
        await visit.request()
        await visit.send(CHUNKED + chunk(b"one") + chunk(b"two"))
        await more.wait()
        await visit.send(chunk(b"three"), LAST_CHUNK)
        assert await visit.request()
        await visit.send(answer(b"kept"))

    async with scripted_http(serve) as server, aclosing(await transport.open(target(server), b"")) as stream:
        assert (stream.status, stream.content_type) == (200, "application/connect+proto")
        came = await stream.read()
        while len(came) < 6:
            came += await stream.read()
        assert came == b"onetwo"
        more.set()
        rest = b""
        while piece := await stream.read():
            rest += piece
        assert rest == b"three"
        assert await stream.read() == b""
        if isinstance(transport, ConnectionPool):
            assert await post(transport, server) == b"kept"
            assert len(server.visits) == 1


async def test_a_stream_that_breaks_tells_so_after_what_came(transport: HttpTransport) -> None:
    async def cut(visit: Visit) -> None:
        await visit.request()
        await visit.send(CHUNKED, chunk(b"one"))

    async with scripted_http(cut) as server, aclosing(await transport.open(target(server), b"")) as stream:
        assert await stream.read() == b"one"
        with pytest.raises(ConnectionLost):
            await stream.read()


async def test_a_reader_that_stalls_stops_the_server(pool: ConnectionPool) -> None:
    size = 64 * 1024 * 1024

    async def pour(visit: Visit) -> None:
        await visit.request()
        await visit.send(CHUNKED)
        visit.writer.write(chunk(bytes(size)) + LAST_CHUNK)
        await visit.gone()

    async with scripted_http(pour) as server, aclosing(await pool.open(target(server), b"")) as stream:
        await until(lambda: all(connection._paused for connection in pool._open))
        unsent = server.visits[0].writer.transport.get_write_buffer_size()
        assert unsent > size / 2, "most of it waits at the server"
        came = 0
        while piece := await stream.read():
            came += len(piece)
        assert came == size


async def test_leaving_a_stream_closes_its_connection(transport: HttpTransport) -> None:
    gone = asyncio.Event()

    async def serve(visit: Visit) -> None:
        await visit.request()
        await visit.send(CHUNKED, chunk(b"one"))
        await visit.gone()
        gone.set()

    async with scripted_http(serve) as server:
        stream = await transport.open(target(server), b"")
        await stream.read()
        await stream.aclose()
        await asyncio.wait_for(gone.wait(), 30)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.mark.parametrize("make", [ConnectionPool, LibraryTransport], ids=["own", "library"])
async def test_tls(make: Callable[..., HttpTransport], authority: trustme.CA, tmp_path: Path) -> None:
    ca_file, stranger = tmp_path / "ca.pem", tmp_path / "stranger.pem"
    authority.cert_pem.write_to_path(ca_file)
    trustme.CA().cert_pem.write_to_path(stranger)
    for name, trusted, works in [
        ("127.0.0.1", ca_file, True),
        ("127.0.0.2", ca_file, False),
        ("127.0.0.1", stranger, False),
        ("127.0.0.1", None, False),
    ]:
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        authority.issue_cert(name).configure_cert(tls)
        transport = make(trusted)
        async with scripted_http(echo, tls=tls) as server:
            if works:
                assert await post(transport, server, b"secretly") == b"secretly"
                assert await post(transport, server, b"again") == b"again"
                assert len(server.visits) == 1
            else:
                with pytest.raises(Unreachable):
                    await post(transport, server)
                assert not server.requests
        await transport.aclose()
