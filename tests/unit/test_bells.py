"""Bells between servers: what is posted, to whom, how often, and what a server takes of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from airunner import telemetry
from airunner.domain.errors import PermissionDenied, Unavailable
from airunner.domain.lifecycle import Lifecycle
from airunner.domain.limits import is_replica_address
from airunner.domain.token import TaskToken, TokenSigner
from airunner.services.replicas.ringer import MAX_PEERS, RESTS, Ringer
from airunner.services.replicas.signed_bells import MAX_BYTES, MAX_NAMES, SignedBells
from airunner.testing.clock import ManualClock
from airunner.testing.conditions import until

HERE = "http://10.0.0.1:8080"
THERE = "http://10.0.0.2:8080"
NOW = 1_700_000_000_000
KEY, OTHER_KEY = b"a key of sixteen bytes", b"another of the same size"
LIFE = Lifecycle(max_attempts=3, due_at=0, updated_at=NOW)
JOB = "0190b5a0-0000-7000-8000-000000000001"


class Post:
    """Takes bells as another server would; it may be slow, dead or neither."""

    def __init__(self, bells: SignedBells) -> None:
        self.bells = bells
        self.taken: list[tuple[str, list[str]]] = []
        self.calls = 0
        self.error: Exception | None = None
        self.open = asyncio.Event()
        self.open.set()
        self.closed = False

    async def post(self, address: str, body: bytes, signature: str) -> None:
        self.calls += 1
        await self.open.wait()
        if self.error:
            raise self.error
        self.taken.append((address, list(self.bells.open(body, signature))))

    async def aclose(self) -> None:
        self.closed = True


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


@pytest.fixture
def bells(clock: ManualClock) -> SignedBells:
    return SignedBells(TokenSigner([KEY]), clock)


@pytest.fixture
def post(bells: SignedBells) -> Post:
    return Post(bells)


@pytest.fixture
async def ringer(post: Post, bells: SignedBells, clock: ManualClock) -> AsyncIterator[Ringer]:
    ringer = Ringer(HERE, post=post, bells=bells, clock=clock)
    yield ringer
    await ringer.close()


def watched_at(*addresses: str, until: int = NOW + 1) -> Lifecycle:
    return replace(LIFE, watchers_at=tuple((address, until) for address in addresses))


async def test_watchers_are_rung_where_they_are_and_not_here(ringer: Ringer, post: Post) -> None:
    ringer.ring_watchers(watched_at(HERE, THERE), ["job:a"])
    await until(lambda: bool(post.taken))
    assert post.taken == [(THERE, ["job:a"])]


async def test_who_watched_once_is_not_rung(ringer: Ringer, post: Post, clock: ManualClock) -> None:
    ringer.ring_watchers(watched_at(THERE, until=NOW), ["job:a"])
    ringer.ring_holder(LIFE, ["holder:a"])
    ringer.ring_holder(replace(LIFE, holder_at=THERE), ["holder:b"])
    await until(lambda: bool(post.taken))
    assert post.taken == [(THERE, ["holder:b"])]


async def test_what_comes_while_a_bell_is_on_its_way_goes_together(
    ringer: Ringer, post: Post, clock: ManualClock
) -> None:
    post.open.clear()
    for number in range(10):
        ringer.ring_watchers(watched_at(THERE), [f"job:{number % 3}"])
        await asyncio.sleep(0)
    post.open.set()
    await until(lambda: clock.waiting == 1)
    assert post.taken == [(THERE, ["job:0"])]
    clock.advance(0.01)
    await until(lambda: len(post.taken) == 2)
    assert sorted(post.taken[1][1]) == ["job:0", "job:1", "job:2"]


async def test_what_waits_is_bounded(ringer: Ringer, post: Post, clock: ManualClock) -> None:
    post.open.clear()
    before = telemetry.bells_sent.read().get(("dropped",), 0)
    for number in range(1 + MAX_NAMES + 5):
        ringer.ring_watchers(watched_at(THERE), [f"job:{number}"])
        if not number:
            await until(lambda: post.calls == 1)
    assert telemetry.bells_sent.read()["dropped",] - before == 5
    post.open.set()
    await until(lambda: clock.waiting == 1)
    clock.advance(0.01)
    await until(lambda: len(post.taken) == 2)
    assert len(post.taken[1][1]) == MAX_NAMES


async def test_a_full_bell_is_small_enough_to_be_taken(bells: SignedBells) -> None:
    body, _ = bells.seal([f"holder:{JOB[:-3]}{number:03}" for number in range(MAX_NAMES)])
    assert len(body) <= MAX_BYTES


async def test_a_server_that_does_not_answer_is_left_alone_for_longer_each_time(
    post: Post, bells: SignedBells, clock: ManualClock
) -> None:
    ringer = Ringer(HERE, post=post, bells=bells, clock=clock, rests=replace(RESTS, jitter=0))
    post.error = Unavailable("gone")
    for calls, rest_seconds in enumerate((1, 2, 4, 8, 16, 30, 30), start=1):
        ringer.ring_watchers(watched_at(THERE), ["job:a"])
        await until(lambda calls=calls: post.calls == calls and clock.waiting == 1)  # type: ignore[misc]  # of this turn
        ringer.ring_watchers(watched_at(THERE), ["job:a"])
        clock.advance(rest_seconds - 0.001)
        await until(lambda: clock.waiting == 0)
        ringer.ring_watchers(watched_at(THERE), ["job:a"])
        assert post.calls == calls
        clock.advance(0.001)
    post.error = None
    ringer.ring_watchers(watched_at(THERE), ["job:b"])
    await until(lambda: post.taken == [(THERE, ["job:b"])])


async def test_servers_that_were_refused_together_do_not_come_back_together(
    ringer: Ringer, post: Post, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airunner.domain.retry._draw", lambda: 0.8)
    post.error = Unavailable("gone")
    ringer.ring_watchers(watched_at(THERE), ["job:a"])
    await until(lambda: post.calls == 1 and clock.waiting == 1)
    clock.advance(0.599)
    await until(lambda: clock.waiting == 0)
    ringer.ring_watchers(watched_at(THERE), ["job:a"])
    assert post.calls == 1
    clock.advance(0.001)
    ringer.ring_watchers(watched_at(THERE), ["job:a"])
    await until(lambda: post.calls == 2)


async def test_a_dead_server_keeps_no_other_waiting(ringer: Ringer, post: Post) -> None:
    post.open.clear()
    ringer.ring_watchers(watched_at(THERE), ["job:a"])
    await until(lambda: post.calls == 1)
    post.open.set()
    ringer.ring_watchers(watched_at(THERE, "http://10.0.0.3:8080"), ["job:b"])
    await until(lambda: ("http://10.0.0.3:8080", ["job:b"]) in post.taken)


async def test_addresses_are_bounded_and_must_be_addresses(ringer: Ringer, post: Post) -> None:
    post.open.clear()
    many = [f"http://10.0.1.{number}:80" for number in range(MAX_PEERS + 5)]
    ringer.ring_watchers(watched_at("file:///etc/passwd", *many), ["job:a"])
    await until(lambda: post.calls == MAX_PEERS)


async def test_an_idle_server_makes_room_for_another(ringer: Ringer, post: Post, clock: ManualClock) -> None:
    ringer.ring_watchers(
        watched_at(*(f"http://10.0.1.{number}:80" for number in range(MAX_PEERS))), ["job:a"]
    )
    await until(lambda: clock.waiting == MAX_PEERS)
    clock.advance(0.01)
    await until(lambda: clock.waiting == 0)
    ringer.ring_watchers(watched_at(THERE), ["job:b"])
    await until(lambda: (THERE, ["job:b"]) in post.taken)


async def test_after_its_end_nothing_is_rung(ringer: Ringer, post: Post) -> None:
    post.open.clear()
    ringer.ring_watchers(watched_at(THERE), ["job:a"])
    await until(lambda: post.calls == 1)
    await ringer.close()
    ringer.ring_watchers(watched_at(THERE), ["job:b"])
    await asyncio.sleep(0)
    assert (post.calls, post.closed, post.taken) == (1, True, [])


def test_a_bell_is_opened_with_any_of_the_keys(clock: ManualClock) -> None:
    old, new = TokenSigner([KEY]), TokenSigner([OTHER_KEY, KEY])
    sealed = SignedBells(old, clock).seal(["job:a", "holder:b"])
    assert SignedBells(new, clock).open(*sealed) == ["job:a", "holder:b"]


def test_what_is_forged_or_altered_is_refused(bells: SignedBells, clock: ManualClock) -> None:
    body, signature = bells.seal(["job:a"])
    forged = SignedBells(TokenSigner([OTHER_KEY]), clock).seal(["job:a"])
    token = TokenSigner([KEY]).encode(TaskToken(JOB, "builds", 1))
    for bad in [
        forged,
        (body.replace(b"job:a", b"job:b"), signature),
        (body, signature[:-1]),
        (body, ""),
        (body, "ä"),
        (b"", ""),
        (token.encode(), token),
        (body, token),
    ]:
        with pytest.raises(PermissionDenied):
            bells.open(*bad)


def test_what_is_signed_for_something_else_is_no_bell(bells: SignedBells, clock: ManualClock) -> None:
    body, _ = bells.seal(["job:a"])
    with pytest.raises(PermissionDenied):
        bells.open(body, TokenSigner([KEY]).labelled("something else").sign(body))


@pytest.mark.parametrize("seconds", [-16, 16])
def test_a_bell_of_another_time_is_refused(bells: SignedBells, clock: ManualClock, seconds: int) -> None:
    sealed = bells.seal(["job:a"])
    clock.step(seconds)
    with pytest.raises(PermissionDenied):
        bells.open(*sealed)


def test_what_is_signed_and_no_bell_is_refused(bells: SignedBells) -> None:
    signer = TokenSigner([KEY]).labelled("airunner bell v1")
    for body in (b"", b"now\njob:a", b"-1", b"\xff", b"9" * 16):
        with pytest.raises(PermissionDenied):
            bells.open(body, signer.sign(body))


@pytest.mark.parametrize(
    "address",
    [
        "http://10.0.0.1:8080",
        "https://replica-1.internal",
        "http://[::1]:80",
        "http://localhost:1",
        "http://a_b:80",
    ],
)
def test_addresses_of_servers(address: str) -> None:
    assert is_replica_address(address)


@pytest.mark.parametrize(
    "address",
    [
        *("", "10.0.0.1:8080", "file:///etc/passwd", "ftp://10.0.0.1", "http://", "http://:80", "http://a:0"),
        *(
            "http://a/b",
            "http://a?b",
            "http://a#b",
            "http://user@a",
            "http://a:b@c:80",
            "http://a b",
            "http://a\n",
        ),
        *(
            "http://a:80/",
            "http://a:123456",
            "HTTP://a",
            f"http://{'a' * 260}",
            "http://[::1",
            "http://\u00e4",
        ),
    ],
)
def test_what_is_no_address_of_a_server(address: str) -> None:
    assert not is_replica_address(address)
