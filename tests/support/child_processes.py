"""Starting real processes in tests, on each event loop, and seeing that nothing of them stays."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import os
import select
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import uvloop

from airunner.domain.clock import SystemClock
from airunner.worker.process.process import Process, ProcessExit, ProcessSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from airunner.domain.clock import Clock

LIMIT_SECONDS = 60
PATH = {"PATH": os.defpath}


def on_both_loops(test: Callable[..., Coroutine[Any, Any, None]]) -> Any:
    def run(loop_factory: Any, **fixtures: Any) -> None:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(asyncio.wait_for(test(**fixtures), LIMIT_SECONDS))

    functools.update_wrapper(run, test)
    asked = list(inspect.signature(test).parameters.values())
    loop_factory = inspect.Parameter("loop_factory", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    run.__signature__ = inspect.Signature([loop_factory, *asked])  # type: ignore[attr-defined] # what pytest reads
    factories = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
    return pytest.mark.parametrize("loop_factory", factories.values(), ids=factories)(run)


@pytest.fixture
def nothing_left_behind() -> Iterator[None]:
    """No descriptor and no child, zombies included, more than before."""
    uvloop.new_event_loop().close()  # the first one opens a pipe for all that follow
    before = (descriptors(), children())
    yield
    assert (descriptors(), children()) == before


def descriptors() -> dict[str, str]:
    open_now = {}
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the descriptor of this listing
            open_now[entry.name] = str(entry.readlink())
    return open_now


def children() -> str:
    """Direct children of this process, zombies included."""
    found = ""
    for file in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the thread has just ended
            found += file.read_text()
    return found


class Received:
    def __init__(self) -> None:
        self.calls: list[tuple[list[bytes], bool]] = []
        self._news = asyncio.Event()

    def __call__(self, lines: list[bytes], is_stderr: bool) -> None:
        self.calls.append((lines, is_stderr))
        self._news.set()

    @property
    def stdout(self) -> bytes:
        return b"".join(b"".join(lines) for lines, is_stderr in self.calls if not is_stderr)

    @property
    def stderr(self) -> bytes:
        return b"".join(b"".join(lines) for lines, is_stderr in self.calls if is_stderr)

    async def until(self, text: bytes) -> None:
        while text not in self.stdout:
            self._news.clear()
            await self._news.wait()

    async def pid(self) -> int:
        await self.until(b"\n")
        return int(self.stdout.split()[0])


async def start(
    *command: str, on_output: Any = None, clock: Clock | None = None, **spec: Any
) -> tuple[Process, Received]:
    received = Received()
    asked = ProcessSpec(command=command[0], args=command[1:], **{"environment": PATH} | spec)
    process = await Process.start(asked, on_output=on_output or received, clock=clock or SystemClock())
    return process, received


async def finish(*command: str, **spec: Any) -> tuple[ProcessExit, Received]:
    process, received = await start(*command, **spec)
    return await process.wait(), received


def wait_until_gone(pid: int) -> None:
    """Return once the process has exited, whoever's child it is."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([descriptor], [], [], LIMIT_SECONDS)[0], f"process {pid} lives on"
    finally:
        os.close(descriptor)
