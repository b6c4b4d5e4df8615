from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from airunner.client.connection import (
    CallRules,
    ServiceConnection,
    parse_servers,
)
from airunner.client.http.base import ConnectionLost, Unreachable
from airunner.domain.errors import (
    AirunnerError,
    DeadlineExceeded,
    InvalidArgument,
    NotFound,
    Overloaded,
    ResourceExhausted,
    Unavailable,
)
from airunner.domain.retry import RetryPolicy
from airunner.testing.clock import ManualClock
from airunner.testing.conditions import until

# What is called does not matter here.
METHOD: Any = None
POLICY = RetryPolicy(first_seconds=1, max_seconds=4, jitter=0)


@dataclass
class Poll:
    wait_seconds: int = 0

    def SerializeToString(self) -> bytes:  # noqa: N802  as protobuf calls it
        raise NotImplementedError


@dataclass
class Call:
    server: str
    wait_seconds: int
    timeout_ms: int | None
    at: int


@dataclass
class Script:
    """Stands for servers: answers each call, at whichever it is made, with the next entry of its list."""

    clock: ManualClock
    answers: list[BaseException | str]
    calls: list[Call] = field(default_factory=list)

    def connect(self, *servers: str, retry: RetryPolicy = POLICY) -> ServiceConnection:
        rules = CallRules(clock=self.clock, retry=retry)
        return ServiceConnection([ScriptedServer(self, name) for name in servers], rules)


@dataclass
class ScriptedServer:
    script: Script
    name: str

    async def call(self, method: Any, request: Any, *, timeout_ms: int) -> Any:
        script = self.script
        script.calls.append(Call(self.name, request.wait_seconds, timeout_ms, script.clock.now()))
        answer = script.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def stream(self, method: Any, request: Any) -> Any:
        raise NotImplementedError


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(0)


def away() -> Unavailable:
    return Unavailable("away")


async def moving(clock: ManualClock, call: asyncio.Task[str]) -> str:
    """Let time pass whenever the call sleeps."""
    while not call.done():
        await asyncio.sleep(0)
        if clock._timers:
            clock.advance(0.5)
    return await call


async def test_all_addresses_are_tried_before_the_first_pause(clock: ManualClock) -> None:
    script = Script(clock, [away(), Unreachable("refused"), ConnectionLost("reset"), away(), "yes"])
    service = script.connect("a", "b")
    assert await moving(clock, asyncio.create_task(service.call(METHOD, Poll()))) == "yes"
    assert [(call.server, call.at) for call in script.calls] == [
        ("a", 0),
        ("b", 0),
        ("a", 1000),
        ("b", 1000),
        ("a", 3000),
    ]
    script.answers.append("again")
    assert await service.call(METHOD, Poll()) == "again"
    assert script.calls[-1].server == "a"


async def test_the_deadline_ends_the_tries(clock: ManualClock) -> None:
    script = Script(clock, [away()] * 100)
    with pytest.raises(Unavailable):
        await moving(clock, asyncio.create_task(script.connect("a").call(METHOD, Poll())))
    # Pauses of 1, 2 and then 4 s, within 30 s.
    assert [call.at for call in script.calls] == [1000 * at for at in (0, 1, 3, 7, 11, 15, 19, 23, 27)]
    assert [call.timeout_ms for call in script.calls] == [30_000 - call.at for call in script.calls]


async def test_the_policy_may_end_them_sooner(clock: ManualClock) -> None:
    script = Script(clock, [away()] * 9)
    service = script.connect("a", "b", retry=RetryPolicy(attempts=1))
    with pytest.raises(Unavailable):
        await service.call(METHOD, Poll())
    assert [call.server for call in script.calls] == ["a", "b"]


async def test_a_long_poll_that_begins_anew_waits_for_the_rest(clock: ManualClock) -> None:
    script = Script(clock, [away(), away(), away(), "yes"])
    service = script.connect("a")
    poll = service.call(METHOD, Poll(wait_seconds=5), wait_seconds=5)
    await moving(clock, asyncio.create_task(poll))
    assert [(call.at, call.wait_seconds, call.timeout_ms) for call in script.calls] == [
        (0, 5, 35_000),
        (1000, 4, 34_000),
        (3000, 2, 32_000),
        (7000, 0, 28_000),
    ]


def busy(seconds: float) -> Overloaded:
    return Overloaded("too many", retry_after_seconds=seconds)


async def test_a_busy_server_is_asked_again_when_it_wants_to_be(clock: ManualClock) -> None:
    script = Script(clock, [busy(7), busy(0.5), "yes"])
    await moving(clock, asyncio.create_task(script.connect("a").call(METHOD, Poll())))
    # The pauses of the policy, 1 s and 2 s, are a minimum too.
    assert [call.at for call in script.calls] == [0, 7000, 9000]


async def test_a_call_that_was_refused_elsewhere_goes_on_as_if_it_had_been_made_here(
    clock: ManualClock,
) -> None:
    script = Script(clock, [away(), "yes"])
    service = script.connect("a")
    clock.advance(2)
    busy = Overloaded("busy", retry_after_seconds=7)
    going_on = asyncio.create_task(service.call_again(METHOD, Poll(), busy, began=0))
    assert await moving(clock, going_on) == "yes"
    # After the pause that was asked for, and with what is left of its time.
    assert [(call.at, call.timeout_ms) for call in script.calls] == [(9_000, 21_000), (11_000, 19_000)]


async def test_a_call_that_was_refused_elsewhere_is_not_made_when_its_time_is_over(
    clock: ManualClock,
) -> None:
    script = Script(clock, ["yes"])
    clock.advance(30)
    with pytest.raises(Overloaded, match="busy"):
        await script.connect("a", "b").call_again(
            METHOD, Poll(), Overloaded("busy", retry_after_seconds=0), began=0
        )
    assert script.calls == []


async def test_another_server_is_asked_while_one_is_busy(clock: ManualClock) -> None:
    script = Script(clock, [busy(7), "yes", "yes"])
    service = script.connect("a", "b")
    assert await service.call(METHOD, Poll()) == "yes"
    await service.call(METHOD, Poll())
    assert [(call.server, call.at) for call in script.calls] == [("a", 0), ("b", 0), ("b", 0)]


async def test_a_dequeue_that_was_refused_has_claimed_nothing_and_is_repeated(clock: ManualClock) -> None:
    async def undo(answer: str) -> None:
        raise AssertionError(answer)

    script = Script(clock, [busy(2), "yes"])
    poll = script.connect("a").call(METHOD, Poll(wait_seconds=5), wait_seconds=5, undo=undo)
    assert await moving(clock, asyncio.create_task(poll)) == "yes"
    assert [(call.at, call.wait_seconds) for call in script.calls] == [(0, 5), (2000, 3)]


async def test_a_wait_that_is_longer_than_the_deadline_is_not_begun(clock: ManualClock) -> None:
    script = Script(clock, [busy(60), "yes"])
    with pytest.raises(Overloaded) as refused:
        await script.connect("a").call(METHOD, Poll())
    assert refused.value.retry_after_seconds == 60
    assert script.answers == ["yes"]


@pytest.mark.parametrize(
    "error", [NotFound("no"), InvalidArgument("no"), DeadlineExceeded("late"), ResourceExhausted("full")]
)
async def test_other_errors_are_not_repeated(clock: ManualClock, error: AirunnerError) -> None:
    script = Script(clock, [error, "yes"])
    service = script.connect("a", "b")
    with pytest.raises(type(error)):
        await service.call(METHOD, Poll())
    await service.call(METHOD, Poll())
    # Only a server that did not answer in time is avoided afterwards.
    assert script.calls[1].server == ("b" if isinstance(error, DeadlineExceeded) else "a")


async def test_a_call_that_can_be_undone_is_not_repeated_when_its_answer_is_lost(clock: ManualClock) -> None:
    async def undo(answer: str) -> None:
        raise AssertionError(answer)

    script = Script(clock, [Unreachable("refused"), away(), ConnectionLost("reset"), "yes"])
    with pytest.raises(ConnectionLost):
        await moving(
            clock, asyncio.create_task(script.connect("a", "b", "c", "d").call(METHOD, Poll(), undo=undo))
        )
    assert script.answers == ["yes"]


async def test_an_answer_that_beats_the_cancellation_is_undone(clock: ManualClock) -> None:
    undone: list[str] = []
    waiting = asyncio.Event()

    class Stubborn(ScriptedServer):
        async def call(self, method: Any, request: Any, *, timeout_ms: int) -> Any:
            waiting.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return "jobs"

    async def undo(answer: str) -> None:
        undone.append(answer)

    service = ServiceConnection([Stubborn(Script(clock, []), "a")], CallRules(clock=clock))
    call = asyncio.create_task(service.call(METHOD, Poll(), undo=undo))
    await until(waiting.is_set)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert undone == ["jobs"]


@pytest.mark.parametrize("servers", ["a", "ab"])
async def test_a_refusal_that_beats_the_cancellation_keeps_nobody(clock: ManualClock, servers: str) -> None:
    waiting = asyncio.Event()

    class Draining(ScriptedServer):
        async def call(self, method: Any, request: Any, *, timeout_ms: int) -> Any:
            assert not waiting.is_set(), "there is no further try"
            waiting.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise Unavailable("the server ends") from None

    script = Script(clock, [])
    service = ServiceConnection([Draining(script, name) for name in servers], CallRules(clock=clock))
    call = asyncio.create_task(service.call(METHOD, Poll()))
    await until(waiting.is_set)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await moving(clock, call)


def test_addresses() -> None:
    assert parse_servers(" http://a:1/ ,https://b,http://a:1") == ("http://a:1", "https://b")
    assert parse_servers(["http://[::1]:8080"]) == ("http://[::1]:8080",)


@pytest.mark.parametrize(
    "servers", ["", [], " , ", "localhost:8080", "ftp://a", "http://", "http://a:b", "http://a:0"]
)
def test_what_is_no_address(servers: str | list[str]) -> None:
    with pytest.raises(InvalidArgument):
        parse_servers(servers)
