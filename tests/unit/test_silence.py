"""The bound of each wait of a stream: like a time-out for each, with one timer for all."""

from __future__ import annotations

import asyncio
from contextlib import closing

import pytest

from airunner.client.http.base import ConnectionLost
from airunner.client.silence import SilenceLimit
from airunner.testing.conditions import until

LONG = 60.0


async def passed(seconds: float) -> None:
    loop = asyncio.get_running_loop()
    due_at = loop.time() + seconds
    await until(lambda: loop.time() > due_at)


async def test_a_wait_that_takes_too_long_is_ended() -> None:
    with closing(SilenceLimit(0.01)) as silence:
        with pytest.raises(ConnectionLost), silence:
            await asyncio.get_running_loop().create_future()
        task = asyncio.current_task()
        assert task
        assert not task.cancelling()


async def test_time_between_waits_does_not_count_nor_do_earlier_waits() -> None:
    loop = asyncio.get_running_loop()
    with closing(SilenceLimit(0.05)) as silence:
        with silence:
            pass
        await passed(0.1)
        began = loop.time()
        for _ in range(3):
            with silence:
                await passed(0.03)
        with pytest.raises(ConnectionLost), silence:
            await loop.create_future()
        assert loop.time() - began >= 0.14


async def test_whoever_is_cancelled_from_outside_is_not_late() -> None:
    async def wait() -> None:
        with closing(SilenceLimit(LONG)) as silence, silence:
            await asyncio.get_running_loop().create_future()

    waiting = asyncio.create_task(wait())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert waiting.cancelled()


async def test_many_waits_have_one_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, made = asyncio.get_running_loop(), list[float]()
    call_at = loop.call_at

    def counted(when: float, *rest: object, **more: object) -> asyncio.TimerHandle:
        made.append(when)
        return call_at(when, *rest, **more)  # type: ignore[arg-type]  # passed on as it came

    monkeypatch.setattr(loop, "call_at", counted)
    with closing(SilenceLimit(LONG)) as silence:
        for _ in range(10):
            with silence:
                await asyncio.sleep(0)
    assert len(made) == 1
