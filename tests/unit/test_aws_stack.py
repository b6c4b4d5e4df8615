"""How a stack of processes ends: by its own `stop`, or as whoever runs it wants."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from airunner.config import load_settings
from airunner.local.aws_plan import StackRequest
from airunner.local.aws_stack import AwsStack, StackCallbacks


class StuckStack(AwsStack):
    """Never gets beyond its start."""

    started = False

    async def _start(self, stack: AsyncExitStack) -> Any:
        self.started = True
        await asyncio.get_running_loop().create_future()


@pytest.fixture
def stack(tmp_path: Path) -> StuckStack:
    request = StackRequest(loaded=load_settings(environ={}, cwd=tmp_path))
    callbacks = StackCallbacks(on_ready=print, on_line=print, on_server_lost=print)
    return StuckStack(request, callbacks)


@pytest.mark.parametrize("end", ["stop", "kill"])
async def test_a_start_that_hangs_can_be_stopped_and_that_is_a_good_end(stack: StuckStack, end: str) -> None:
    running = asyncio.create_task(stack.run())
    await asyncio.sleep(0)
    assert stack.started
    getattr(stack, end)()
    stack.stop()
    async with asyncio.timeout(10):
        await running


async def test_what_is_stopped_before_it_runs_starts_nothing(stack: StuckStack) -> None:
    stack.stop()
    await stack.run()
    assert not stack.started


async def test_a_cancellation_from_outside_is_not_hidden(stack: StuckStack) -> None:
    running = asyncio.create_task(stack.run())
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
