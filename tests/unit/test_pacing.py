"""Coroutines that are held back at an await."""

from __future__ import annotations

import asyncio

import pytest

from airunner.handlers.pacing import run_paced
from tests.support.consumers import turns


class Room:
    """Room or none, as the test says."""

    def __init__(self) -> None:
        self.space: asyncio.Future[None] | None = None
        self.looks = 0

    def shut(self) -> None:
        self.space = asyncio.get_running_loop().create_future()

    def open(self) -> None:
        assert self.space
        self.space.set_result(None)
        self.space = None

    def __call__(self) -> asyncio.Future[None] | None:
        self.looks += 1
        return self.space


async def test_who_never_waits_is_never_held_back() -> None:
    async def answer() -> int:
        return 42

    room = Room()
    room.shut()
    assert await run_paced(answer(), room) == 42
    assert room.looks == 0


async def test_without_room_it_goes_on_when_there_is_some() -> None:
    steps = []

    async def work() -> str:
        for step in range(3):
            steps.append(step)
            await asyncio.sleep(0)
        return "done"

    room = Room()
    room.shut()
    working = asyncio.ensure_future(run_paced(work(), room))
    await turns()
    assert steps == [0]
    room.open()
    assert await working == "done"
    assert steps == [0, 1, 2]


async def test_what_is_awaited_answers_and_fails_as_ever() -> None:
    async def fail() -> None:
        await asyncio.sleep(0)
        raise ValueError("no good")

    async def work() -> list[object]:
        answer = await asyncio.gather(asyncio.sleep(0, "one"), asyncio.to_thread(lambda: "two"))
        with pytest.raises(ValueError, match="no good"):
            await fail()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await asyncio.sleep(60)
        return [*answer, "three"]

    assert await run_paced(work(), Room()) == ["one", "two", "three"]
    with pytest.raises(ValueError, match="no good"):
        await run_paced(fail(), Room())


@pytest.mark.parametrize("has_room", [True, False])
async def test_a_cancellation_is_the_coroutines(has_room: bool) -> None:
    seen = []

    async def work() -> str:
        try:
            await asyncio.sleep(0 if not has_room else 60)
        except asyncio.CancelledError:
            seen.append("cancelled")
        return "all the same"

    room = Room()
    if not has_room:
        room.shut()
    working = asyncio.ensure_future(run_paced(work(), room))
    await turns()
    working.cancel()
    room.space = None
    assert await working == "all the same"
    assert seen == ["cancelled"]


async def test_one_that_is_given_up_is_closed() -> None:
    closed = []

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            closed.append(True)

    running = run_paced(work(), Room())
    running.send(None)
    running.close()
    assert closed == [True]
