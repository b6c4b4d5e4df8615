"""The loop of async handlers: one task for many that never wait, one each for those that do."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextvars import ContextVar

import pytest

from airunner.handlers.capture import current_output
from airunner.handlers.loop import HandlerLoop

LIMIT_SECONDS = 20

_left_behind: ContextVar[str] = ContextVar("_left_behind", default="")


class Call:
    """A call that does what the test says, as a handler would."""

    def __init__(self, do: Callable[[], Awaitable[None]]) -> None:
        self._do = do
        self.task: asyncio.Task[None] | None = None

    async def run_async(self, task: asyncio.Task[None] | None) -> None:
        current_output.set(None)
        assert task is asyncio.current_task()
        self.task = task
        await self._do()


class Loop:
    """A handler loop and the order in which its calls end."""

    def __init__(self) -> None:
        self.over: list[Call] = []
        self._wanted = 0
        self._all = threading.Event()
        self.loop = HandlerLoop(self._note)

    def run(self, *calls: Call) -> None:
        self._wanted += len(calls)
        self._all.clear()
        self.loop.begin(calls)

    def wait(self) -> None:
        assert self._all.wait(LIMIT_SECONDS)

    def _note(self, call: Call) -> None:
        self.over.append(call)
        if len(self.over) == self._wanted:
            self._all.set()


@pytest.fixture
def handlers() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.loop.close()


async def _nothing() -> None:
    pass


def test_calls_that_never_wait_share_a_task_and_keep_their_order(handlers: Loop) -> None:
    calls = [Call(_nothing) for _ in range(250)]
    handlers.run(*calls)
    handlers.wait()
    assert handlers.over == calls
    assert len({id(call.task) for call in calls}) == 3


def test_who_waits_holds_nobody_up(handlers: Loop) -> None:
    gate = threading.Event()

    async def wait() -> None:
        await asyncio.get_running_loop().run_in_executor(None, gate.wait, LIMIT_SECONDS)

    async def open_gate() -> None:
        gate.set()

    slow, quick, opener = Call(wait), Call(_nothing), Call(open_gate)
    handlers.run(slow, quick, opener)
    handlers.wait()
    assert handlers.over == [quick, opener, slow]
    assert slow.task is not quick.task


def test_nobody_runs_in_the_task_of_one_who_waited(handlers: Loop) -> None:
    async def wait() -> None:
        await asyncio.sleep(0)

    calls = [Call(wait) for _ in range(20)]
    handlers.run(*calls)
    handlers.wait()
    assert len({id(call.task) for call in calls}) == len(calls)


def test_variables_of_one_call_are_not_seen_by_the_next(handlers: Loop) -> None:
    seen: list[str] = []

    async def leave() -> None:
        seen.append(_left_behind.get())
        _left_behind.set("somebody was here")

    handlers.run(*(Call(leave) for _ in range(5)))
    handlers.wait()
    assert seen == [""] * 5


def test_what_comes_later_runs_too(handlers: Loop) -> None:
    for _ in range(3):
        handlers.run(Call(_nothing))
        handlers.wait()
    assert len(handlers.over) == 3


class Unshowable:
    def __str__(self) -> str:
        raise RuntimeError("no text for this")


@pytest.mark.parametrize(
    "error",
    [SystemExit(3), SystemExit(Unshowable()), KeyboardInterrupt()],
    ids=["exit", "unshowable", "interrupt"],
)
def test_a_task_that_leaves_the_interpreter_ends_alone(handlers: Loop, error: BaseException) -> None:
    started: list[asyncio.Task[None]] = []

    async def leave() -> None:
        raise error

    async def start() -> None:
        started.append(asyncio.create_task(leave()))
        await asyncio.sleep(0)

    async def go_on() -> None:
        await asyncio.sleep(0.01)

    handlers.run(Call(start), *(Call(go_on) for _ in range(3)))
    handlers.wait()
    handlers.run(Call(go_on))
    handlers.wait()
    assert started[0].done()
    with pytest.raises(type(error)):
        started[0].result()
