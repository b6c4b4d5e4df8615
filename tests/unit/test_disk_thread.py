"""The thread for what may wait for a disk: order, errors, a disk that hangs, and its own end."""

from __future__ import annotations

import asyncio
import threading

import pytest

from airunner.testing.conditions import until
from airunner.worker.disk_thread import DiskThread


async def test_calls_run_in_their_order_beside_the_loop() -> None:
    disk, order = DiskThread("disk"), list[int]()
    gate = threading.Event()
    first = disk.call(gate.wait)
    others = [disk.call(lambda number=number: order.append(number)) for number in range(50)]  # type: ignore[misc]
    await asyncio.sleep(0)
    assert not first.done()
    assert order == []
    gate.set()
    await asyncio.gather(first, *others)
    assert order == list(range(50))
    disk.close()


async def test_an_error_is_its_caller_s_and_the_next_call_runs() -> None:
    disk = DiskThread("disk")

    def fail() -> None:
        raise SystemExit(3)

    with pytest.raises(OSError, match="no room"):
        await disk.call(lambda: (_ for _ in ()).throw(OSError(28, "no room")))
    failing = disk.call(fail)
    await asyncio.wait({failing})
    assert isinstance(failing.exception(), SystemExit)
    assert await disk.call(lambda: 7) == 7
    disk.close()


async def test_nobody_waits_for_it_and_a_call_after_its_end_is_answered() -> None:
    disk = DiskThread("disk of the test")
    thread = await disk.call(threading.current_thread)
    assert thread.daemon
    disk.close()
    disk.close()
    for _ in range(20):
        assert (await disk.call(threading.current_thread)).daemon
        disk.close()
    await until(lambda: not any(running.name == "disk of the test" for running in threading.enumerate()))


async def test_without_threads_the_caller_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(BlockingIOError):
        await DiskThread("disk").call(lambda: 7)


def test_a_loop_that_is_closed_stops_nothing() -> None:
    disk, gate, done = DiskThread("disk"), threading.Event(), threading.Event()

    async def leave() -> None:
        disk.call(gate.wait)
        disk.call(done.set)

    asyncio.run(leave())
    gate.set()
    assert done.wait(30)
    disk.close()
