"""What is known of requests by the bytes that they begin with."""

from __future__ import annotations

import pytest

from airunner.codec import methods
from airunner.rpc.thin import ThinMethod, ThinRequest
from airunner.server.known_heads import KnownHeads


async def endpoint(*_: object) -> None:
    """Stand in for one that nobody calls here."""


REQUEST = ThinRequest(ThinMethod(methods.LIST_WORKERS, endpoint, "ListWorkers", waits=False), "", None)
HEAD = b"POST /job.v1.JobService/ListWorkers HTTP/1.1\r\nhost: here"


def request(body: bytes, length: bytes | None = None, head: bytes = HEAD) -> bytes:
    return b"%b\r\ncontent-length: %b\r\n\r\n%b" % (head, length or b"%d" % len(body), body)


@pytest.fixture
def heads() -> KnownHeads:
    heads = KnownHeads()
    heads.note(request(b"12345"), 5, REQUEST)
    return heads


@pytest.mark.parametrize(
    "body", [b"", b"1", b"12345", b"\r\n\r\n", b"\r\ncontent-length: 3\r\n\r\n", bytes(99)]
)
def test_a_request_that_says_the_same_is_known_whatever_its_body(heads: KnownHeads, body: bytes) -> None:
    assert heads.find(request(body)) == (REQUEST, body)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\r\n\r\n",
        HEAD,
        request(b"12345")[:-1],
        request(b"12345") + b"x",
        request(b"12345") * 2,
        request(b"12345")[1:],
        b"\r\n" + request(b"12345"),
        request(b"12345", b"+5"),
        request(b"12345", b" 5"),
        request(b"12345", b"5 "),
        request(b"12345", b"0x5"),
        request(b"12345", "\u0665".encode()),
        request(b"12345", b"00000000005"),
        request(b"12345", b"5\r\nx-more: 1"),
        request(b"12345", b"5\r\ncontent-length: 5"),
        request(b"12345", head=HEAD + b"\r\nx-more: 1"),
        request(b"12345", head=HEAD[:-1]),
        HEAD + b"\r\n\r\n12345",
        HEAD + b"\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    ],
)
def test_whatever_is_more_or_less_is_not_known(heads: KnownHeads, data: bytes) -> None:
    assert heads.find(data) is None


@pytest.mark.parametrize(
    ("data", "body_bytes"),
    [
        (request(b"12345") + b"\r\n", 5),
        (request(b"12345", b"05"), 5),
        (request(b"12345", b"5\r\nx-last: 1"), 5),
        (request(b"12345"), 4),
        (request(b"") + request(b"12345"), 5),
        (request(b"12345", head=HEAD + b"\r\nx: " + b"y" * 2_048), 5),
        (b"content-length: 5\r\n\r\n12345", 5),
    ],
)
def test_only_a_short_head_that_ends_with_its_length_is_remembered(data: bytes, body_bytes: int) -> None:
    heads = KnownHeads()
    heads.note(data, body_bytes, REQUEST)
    assert heads.find(data) is None
    assert not heads._requests


def test_what_is_remembered_is_bounded() -> None:
    heads = KnownHeads()
    for number in range(2_500):
        heads.note(request(b"", head=HEAD + b"-%d" % number), 0, REQUEST)
        assert len(heads._requests) <= 1_000
    assert heads.find(request(b"", head=HEAD + b"-2499")) == (REQUEST, b"")
